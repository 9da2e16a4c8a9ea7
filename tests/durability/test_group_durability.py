"""If `__consumer_offsets` has flush.messages, the coordinator acknowledges nothing that a power loss could remove."""

import threading

import pytest

from odradek.protocol.errors import ErrorCode
from tests.api.group_talk import GroupTalk, assignment
from tests.children import kill
from tests.durability.test_readers_wait import set_flush_messages
from tests.waiting import readable, until
from tests.wire import Wire

pytestmark = [pytest.mark.timeout(300)]

OFFSETS = "__consumer_offsets"
SETTINGS = {
    "offsets_topic_num_partitions": 1,
    "group_initial_rebalance_delay_ms": 0,
    "offsets_commit_timeout_ms": 90_000,
    "group_consumer_session_timeout_ms": 60_000,
}
NONE = ErrorCode.NONE


@pytest.fixture
def broker(start):
    return start({"topic": {"partitions": "1"}}, log_flush_interval_messages=1, **SETTINGS)


@pytest.fixture
def talk(broker):
    with GroupTalk(broker.host, broker.port) as wire:
        wire.until_coordinated("g")
        yield wire


def answered(wire):
    return readable(wire.socket)


class Ends:
    """The log end of `__consumer_offsets`-0, and how much of it consumers see."""

    def __init__(self, broker):
        self._wire = Wire.to(broker)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._wire.socket.close()

    def log_end(self):
        return self._wire.log_end(OFFSETS, 0)

    def readable(self):
        return self._wire.latest(OFFSETS, 0)


def waits_for_its_sync(broker, syncs, wire, ask):
    """Whether a request is answered after the sync of what it appends, and not before; the answer.

    :param ask: sends it, without waiting.
    """
    with Ends(broker) as ends:
        before = ends.log_end()
        syncs.hold()
        ask()
        until(lambda: ends.log_end() > before, "its records are in the log")
        assert ends.readable() == before
        assert not answered(wire)
        syncs.release()
        return wire.receive()


@pytest.mark.parametrize("acks", [0, 1])
def test_a_commit_that_waits_for_no_other_replica_waits_for_the_device(start, syncs, acks):
    config = SETTINGS | {"log_flush_interval_messages": 1, "offsets_commit_required_acks": acks}
    broker = start({"topic": {"partitions": "1"}}, **config)
    with GroupTalk(broker.host, broker.port) as wire:
        wire.until_coordinated("g")
        until(
            lambda: wire.commit("g", {("topic", 0): 1}).topics[0].partitions[0].error_code == NONE, "commits are served"
        )
        answer = waits_for_its_sync(broker, syncs, wire, lambda: sent(wire, "commit", "g", {("topic", 0): 2}))
        assert answer.topics[0].partitions[0].error_code == NONE


class Sent(Exception):
    """A placeholder for a missing response."""


def sent(wire, verb, *arguments, **fields):
    """Make a method of GroupTalk only send its request."""

    def send_only(request, api_key, version):
        wire.send(request, api_key, version)
        raise Sent

    wire.ask = send_only
    try:
        getattr(wire, verb)(*arguments, **fields)
    except Sent:
        pass
    finally:
        del wire.ask


def test_a_commit_is_acknowledged_after_its_sync(broker, syncs, talk):
    def ask():
        sent(talk, "commit", "g", {("topic", 0): 5})

    answer = waits_for_its_sync(broker, syncs, talk, ask)
    assert answer.topics[0].partitions[0].error_code == NONE
    assert talk.committed("g") == {("topic", 0): 5}


def test_commits_of_many_groups_share_a_sync(broker, syncs, talk):
    wires = [GroupTalk(broker.host, broker.port) for _ in range(8)]
    with Ends(broker) as ends:
        before = ends.log_end()
        syncs.hold()
        for number, wire in enumerate(wires):
            sent(wire, "commit", f"g{number}", {("topic", 0): number})
        until(lambda: ends.log_end() == before + len(wires), "all are in the log")
        assert not any(answered(wire) for wire in wires)
        syncs.release()
        for wire in wires:
            assert wire.receive().topics[0].partitions[0].error_code == NONE
    assert sum(n for file, n in syncs.counts().items() if f"{OFFSETS}-0/" in file and file.endswith(".log")) <= 3
    for wire in wires:
        wire.socket.close()


def test_a_member_of_kip_848_is_told_what_is_synced(broker, syncs, talk):
    answer = waits_for_its_sync(broker, syncs, talk, lambda: sent(talk, "beat", "g", "m", 0))
    assert (answer.error_code, answer.member_epoch) == (NONE, 1)
    left = waits_for_its_sync(broker, syncs, talk, lambda: sent(talk, "beat", "g", "m", -1))
    assert left.error_code == NONE


def test_an_assignment_is_told_when_it_is_synced(broker, syncs, talk):
    joined = talk.join("g")
    told = {joined.member_id: assignment("topic", 0)}

    def ask():
        talk.send_sync("g", joined.member_id, joined.generation_id, assignments=told)

    answer = waits_for_its_sync(broker, syncs, talk, ask)
    assert (answer.error_code, answer.assignment) == (NONE, told[joined.member_id])


def test_what_is_deleted_is_acknowledged_when_that_is_synced(broker, syncs, talk):
    assert talk.commit("g", {("topic", 0): 5}).topics[0].partitions[0].error_code == NONE
    deleted = waits_for_its_sync(broker, syncs, talk, lambda: sent(talk, "delete_offsets", "g", "topic", 0))
    assert deleted.topics[0].partitions[0].error_code == NONE
    assert talk.commit("h", {("topic", 0): 5}).topics[0].partitions[0].error_code == NONE
    gone = waits_for_its_sync(broker, syncs, talk, lambda: sent(talk, "delete_groups", "h"))
    assert gone.results[0].error_code == NONE


def test_a_flush_messages_of_the_topic_alone_is_kept_too(start, syncs):
    broker = start({"topic": {"partitions": "1"}}, **SETTINGS)
    with GroupTalk(broker.host, broker.port) as talk, Wire.to(broker) as admin:
        talk.until_coordinated("g")
        set_flush_messages(admin, OFFSETS, 1)
        answer = waits_for_its_sync(broker, syncs, talk, lambda: sent(talk, "commit", "g", {("topic", 0): 5}))
        assert answer.topics[0].partitions[0].error_code == NONE


def coordinator(broker):
    return next(one["pid"] for one in broker.processes() if one["kind"] == "coordinator")


def test_a_successor_serves_what_its_predecessor_appended_when_that_is_synced(broker, syncs, talk):
    """Otherwise it could be lost after members received it."""
    assert talk.commit("g", {("topic", 0): 5}).topics[0].partitions[0].error_code == NONE
    with Ends(broker) as ends:
        before = ends.log_end()
        syncs.hold()
        syncs.ask_who_comes()
        sent(talk, "commit", "g", {("topic", 0): 6})
        old = syncs.who_came()
        assert old == coordinator(broker)
        assert ends.log_end() == before + 1
        kill(old)
        syncs.ask_who_comes()
        assert syncs.who_came() not in (0, old)  # the successor's, or the cleaner's
        with GroupTalk(broker.host, broker.port) as other:
            until(lambda: coordinator(broker) not in (None, old), "a successor")
            assert ends.readable() == before
            for _ in range(20):
                told = other.fetch_offsets("g", None)
                assert told.error_code in (
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    ErrorCode.NOT_COORDINATOR,
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                )
            syncs.release()
            until(lambda: other.fetch_offsets("g", None).error_code == NONE, "the groups are served")
            assert other.committed("g") == {("topic", 0): 6}


def test_a_stop_acknowledges_what_waits_for_the_device(broker, syncs, talk):
    with Ends(broker) as ends:
        before = ends.log_end()
        syncs.hold()
        sent(talk, "commit", "g", {("topic", 0): 5})
        until(lambda: ends.log_end() > before, "it is in the log")
    stopping = threading.Thread(target=broker.stop)
    stopping.start()
    syncs.release()
    stopping.join()
    try:
        assert talk.receive().topics[0].partitions[0].error_code in (NONE, ErrorCode.NOT_COORDINATOR)
    except EOFError:
        pass  # the worker stopped first
    broker.start()
    with GroupTalk(broker.host, broker.port) as other:
        until(lambda: other.fetch_offsets("g", None).error_code == NONE, "the groups are served")
        assert other.committed("g") == {("topic", 0): 5}
