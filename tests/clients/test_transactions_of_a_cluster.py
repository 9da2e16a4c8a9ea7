"""The search for hanging and late transactions and its requests, with simulated connections."""

from types import SimpleNamespace

import pytest

from odradek.cli.health import transactions as health_transactions
from odradek.cli.health.transactions import judge_decided, judge_hanging, judge_late, lasting
from odradek.clients import marker_waits, transactions
from odradek.clients.cluster import Partition, TopicInfo, View
from odradek.clients.marker_waits import LOG, MarkerWait, waits_of
from odradek.clients.transactions import (
    HangingTransaction,
    OpenTransaction,
    PartitionProducer,
    Search,
    TransactionDescription,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_producers

Response = describe_producers.Response
NOW_MS = 1_700_000_000_000
OPEN = OpenTransaction(
    "t", 1, 1, producer_id=7, producer_epoch=0, coordinator_epoch=-1, start_offset=40, written_ms=NOW_MS - 3_600_000
)


def description(state="Ongoing", partitions=(("t", 1),), started_ms=NOW_MS - 3_600_000):
    return TransactionDescription("id", 3, state, 7, 0, 60_000, started_ms, tuple(partitions))


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (None, "no coordinator has a transactional id with this producer"),
        (description(), None),
        (description("PrepareAbort"), None),
        (
            description(partitions=[("t", 0)]),
            "the open transaction of transactional id 'id' does not contain this partition",
        ),
        (
            description("CompleteAbort", ()),
            "transactional id 'id' has no open transaction (its state is CompleteAbort)",
        ),
    ],
)
def test_a_transaction_hangs_if_no_coordinator_will_end_it_in_the_partition(known, reason):
    assert transactions.why_hanging(OPEN, known) == reason


@pytest.mark.parametrize(("pattern", "expression"), [("a.b-*", r"a\.b\-.*"), ("?", "."), ("a+", r"a\+"), ("", "")])
def test_shell_patterns_become_regular_expressions(pattern, expression):
    assert transactions.regular_expression(pattern) == expression


class LimitedLeader:
    """A leader that describes at most `most` producers in one response, as this broker does."""

    def __init__(self, most):
        self.most = most
        self.requests = 0

    def ask(self, _, request):
        self.requests += 1
        room = self.most
        topics = []
        for topic in request.topics:
            partitions = []
            for number in topic.partition_indexes:
                answer = Response.PartitionResponse(partition_index=number, error_code=ErrorCode.INVALID_REQUEST)
                if room > 0:
                    room -= 3
                    answer = Response.PartitionResponse(
                        partition_index=number, active_producers=[Response.ProducerState(producer_id=1)] * 3
                    )
                partitions.append(answer)
            topics.append(Response.TopicResponse(name=topic.name, partitions=partitions))
        return Response(topics=topics)


@pytest.mark.parametrize(("most", "requests"), [(3, 5), (4, 3), (100, 1)])
def test_partitions_that_a_full_response_refuses_are_asked_for_again(most, requests):
    leader = LimitedLeader(most)
    places = [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("c", 5)]
    answers = transactions._producers(leader, places)
    assert {place: len(answer.active_producers) for place, answer in answers.items()} == dict.fromkeys(places, 3)
    assert leader.requests == requests


def test_a_leader_that_describes_nothing_is_not_asked_for_ever():
    leader = LimitedLeader(0)
    (answer,) = transactions._producers(leader, [("a", 0)]).values()
    assert answer.error_code == ErrorCode.INVALID_REQUEST and leader.requests == 1


def test_only_partitions_with_offsets_above_the_last_stable_one_may_have_open_transactions(monkeypatch):
    offsets = {0: (5, 5), 1: (5, 9), 2: (5, 9)}

    def list_offsets(_, partitions, __, committed_only=False):
        return {
            ("t", part.number): SimpleNamespace(offset=offsets[part.number][not committed_only], error=part.number == 2)
            for part in partitions
        }

    monkeypatch.setattr(transactions.topics, "list_offsets", list_offsets)
    partitions = [SimpleNamespace(topic="t", number=number, leader=1) for number in offsets]
    unled = SimpleNamespace(topic="t", number=3, leader=-1)
    assert transactions.unstable(None, [*partitions, unled]) == {("t", 1): 4, ("t", 2): 0}


def test_doctor_names_hanging_transactions_with_the_command_that_ends_them():
    other = OPEN._replace(topic="a topic", start_offset=3, written_ms=NOW_MS - 60_000)
    hanging = [HangingTransaction(transaction, None, "") for transaction in (OPEN, other)]
    blocked = {OPEN.place: 1500, other.place: 1, ("t", 0): 7}
    (finding,) = judge_hanging(Search(hanging, [], {}, blocked), NOW_MS)
    assert (finding.severity, finding.subject) == ("error", "t-1, a topic-1")
    assert "2 hanging transactions" in finding.what and "1 h ago" in finding.what
    assert "1,501 offsets are blocked" in finding.reason
    assert "`odradek transaction abort --topic t --partition 1 --start-offset 40`" in finding.remedy
    (finding,) = judge_hanging(Search(hanging[1:], [], {}, blocked), NOW_MS)
    assert "--topic 'a topic' --partition 1 --start-offset 3`" in finding.remedy
    assert not list(judge_hanging(Search([], [], {("t", 1): "no leader"}, {}), NOW_MS))


def test_doctor_reports_transactions_that_their_coordinator_has_not_aborted():
    (late,) = judge_late([description()], NOW_MS)
    assert late.severity == "warning"
    assert "`odradek transaction abort id`" in late.remedy and "1 h" in late.what
    assert not list(judge_late([], NOW_MS))


def test_doctor_reports_each_decided_transaction_with_its_partition_its_reason_and_a_remedy():
    other = description("PrepareAbort")._replace(transactional_id="other")
    last = description("PrepareCommit", ())._replace(transactional_id="last")
    waits = {
        "id": [MarkerWait("t", 1, "it has no leader", "start broker 2")],
        "other": [MarkerWait("u", 0, "some reason", "start broker 2"), MarkerWait("v", 3, "another", "look at v")],
        "last": [],
    }
    (finding,) = judge_decided([description("PrepareCommit"), other, last], waits, NOW_MS)
    assert (finding.severity, finding.subject) == ("error", "transactional ids id, other, last")
    assert finding.what.startswith("3 transactions") and "1 h ago" in finding.what
    assert "'id' waits for t-1: it has no leader" in finding.what
    assert "'other' waits for u-0: some reason; v-3: another" in finding.what
    assert "'last' has all markers" in finding.what
    assert finding.remedy == "start broker 2; look at v"
    assert not list(judge_decided([], {}, NOW_MS))


def test_a_decided_transaction_is_reported_if_two_looks_find_it():
    stuck, ended = description("PrepareCommit"), description("PrepareAbort")._replace(transactional_id="ended")
    reused = description("PrepareCommit")._replace(transactional_id="reused")
    again = reused._replace(started_ms=reused.started_ms + 1)
    ongoing = description()._replace(transactional_id="ongoing")
    after = stuck._replace(partitions=())
    assert lasting([stuck, ended, reused], [after, again, ongoing]) == [after]


class DoctoredCluster:
    """What `examine_transactions` finds at each look. :param looks: the transactions that the coordinators describe."""

    def __init__(self, monkeypatch, *looks):
        self.slept = []
        found = iter(looks)
        nothing = Search([], [], {}, {})

        def open_longer_than(_, limit_ms, now_ms):
            return [each for each in next(found) if now_ms - each.started_ms > limit_ms]

        monkeypatch.setattr(health_transactions, "now_ms", lambda: NOW_MS)
        monkeypatch.setattr(transactions, "late_after_ms", lambda _: 1_200_000)
        monkeypatch.setattr(transactions, "find_late", lambda *_: nothing)
        monkeypatch.setattr(transactions, "open_longer_than", open_longer_than)
        monkeypatch.setattr(marker_waits, "waits_of", lambda _, __, some: {each.transactional_id: [] for each in some})

    def examine(self):
        return health_transactions.examine_transactions(None, View(None, 1, {}, {}, {}), self.slept.append)


@pytest.mark.parametrize(("age_ms", "severities"), [(61_000, ["error"]), (59_000, [])])
def test_doctor_reports_a_decided_transaction_after_a_minute(monkeypatch, age_ms, severities):
    stuck = description("PrepareCommit", started_ms=NOW_MS - age_ms)
    cluster = DoctoredCluster(monkeypatch, [stuck], [stuck])
    assert [finding.severity for finding in cluster.examine()] == severities
    assert cluster.slept == [health_transactions.SECOND_LOOK_S] * len(severities)


def test_doctor_does_not_report_open_transactions_before_they_are_late(monkeypatch):
    young, late = description(started_ms=NOW_MS - 600_000), description()._replace(transactional_id="late")
    (finding,) = DoctoredCluster(monkeypatch, [young, late]).examine()
    assert (finding.severity, finding.subject) == ("warning", "transactional id late")


def partition(topic, number, **changes):
    return Partition(topic, number, 1, 5, (1, 2), (1, 2), (), ErrorCode.NONE)._replace(**changes)


def waits(monkeypatch, part, producer=None, unchecked=None, minimum="1"):
    """The waits of a transaction in t-1, whose coordinator has the epoch 5."""
    topics = {LOG: [partition(LOG, number) for number in range(3)], "t": [] if part is None else [part]}
    view = View(None, 1, {}, {}, {name: TopicInfo(name, b"", False, tuple(parts)) for name, parts in topics.items()})
    producers = [] if producer is None else [producer]
    monkeypatch.setattr(transactions, "producers", lambda *_: (producers, unchecked or {}))
    entry = SimpleNamespace(value=minimum)
    monkeypatch.setattr(marker_waits.configs, "of_topics", lambda _, names, __: dict.fromkeys(names, entry))
    return waits_of(None, view, [description("PrepareCommit")])["id"]


PRODUCER = PartitionProducer("t", 1, 1, 7, producer_epoch=0, coordinator_epoch=5, start_offset=3, written_ms=NOW_MS)


@pytest.mark.parametrize(
    ("facts", "reason", "remedy"),
    [
        ({"part": None}, "it was deleted", "none is needed"),
        ({"part": partition("t", 1, leader=-1)}, "it has no leader", "start brokers 1, 2"),
        (
            {"part": partition("t", 1), "unchecked": {("t", 1): "no response"}},
            "broker 1, its leader, does not describe its producers: no response",
            "check that broker 1 runs",
        ),
        (
            {"part": partition("t", 1, in_sync=(1,)), "minimum": "2"},
            "it has 1 in-sync replicas, and min.insync.replicas is 2",
            "start broker 2, or lower min.insync.replicas",
        ),
        (
            {"part": partition("t", 1), "producer": PRODUCER._replace(producer_epoch=5)},
            "a newer epoch of producer 7, 5, than the transaction, 0 (INVALID_PRODUCER_EPOCH)",
            "at its next attempt",
        ),
        (
            {"part": partition("t", 1), "producer": PRODUCER._replace(coordinator_epoch=50)},
            "coordinator epoch, 50, than the coordinator, 5 (TRANSACTION_COORDINATOR_FENCED)",
            "at its next attempt",
        ),
        ({"part": partition("t", 1), "producer": PRODUCER}, "has not written the marker", "the log of broker 3"),
    ],
)
def test_the_reason_why_a_marker_is_missing_is_found(monkeypatch, facts, reason, remedy):
    (wait,) = waits(monkeypatch, **facts)
    assert str(wait).startswith("t-1: ") and reason in wait.reason and remedy in wait.remedy
