"""The search for hanging and late transactions and its requests, with simulated connections."""

from types import SimpleNamespace

import pytest

from odradek.cli.health_transactions import judge_hanging, judge_late
from odradek.clients import transactions
from odradek.clients.transactions import HangingTransaction, OpenTransaction, Search, TransactionDescription
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


def test_doctor_tells_transactions_that_time_out_late_from_markers_that_are_missing():
    late, prepared = judge_late([description(), description("PrepareCommit"), description("PrepareAbort")], NOW_MS)
    assert (late.severity, prepared.severity) == ("warning", "error")
    assert "`odradek transaction abort id`" in late.remedy and "1 h" in late.what
    assert prepared.what.startswith("2 transactions") and "'id' waits for t-1" in prepared.remedy
    assert not list(judge_late([], NOW_MS))
