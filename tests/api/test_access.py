"""What the native handlers of Produce and Fetch decide by ACLs, and when they decide again."""

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek._ext.api.access import AccessControl
from odradek._ext.testing import lock_probe
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch, produce
from odradek.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from odradek.security.authorizer import Authorizer
from odradek.security.hosts import host_of_peer
from tests.api.worker_harness import HandWorker, nothing_came
from tests.wire import NOBODY, Wire, batch, fetch_request, produce_request

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
READ, WRITE = Operation.READ, Operation.WRITE


def allow(name: str, operation: int, principal: str = "User:ANONYMOUS", kind: int = ResourceType.TOPIC) -> Acl:
    return Acl(kind, PatternType.LITERAL, name, principal, "*", operation, Permission.ALLOW)


class Rules:
    """The published rules: a version word and what is read when it has moved."""

    def __init__(self, worker: HandWorker) -> None:
        self.word = array("Q", [1])
        self.authorizer = Authorizer()
        self.reads = 0
        self.noted: list[tuple[Any, ...]] = []
        self.control = AccessControl(memoryview(self.word), self._read, self._note, host_of_peer)
        worker.handler.produce_handler.authorize(self.control)
        worker.fetch_handler.control = self.control

    def _read(self) -> tuple[int, Authorizer]:
        self.reads += 1
        return self.word[0], self.authorizer

    def _note(self, access: Any, operation: int, kind: int, name: str, key: int, rule: Any, quiet: bool) -> None:
        self.noted.append((access.principal, operation, name, rule.allowed))

    def publish(self, acls: Iterable[Acl]) -> None:
        self.authorizer = Authorizer(acls)
        self.word[0] += 1


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[HandWorker]:
    worker = HandWorker(tmp_path)
    yield worker
    worker.close()


@pytest.fixture
def rules(worker: HandWorker) -> Rules:
    return Rules(worker)


def become(worker: HandWorker, wire_number: int, principal: str) -> None:
    """As after a login on the connection."""
    worker.loop.connections.by_id[wire_number].principal = principal


def produced(worker: HandWorker, wire: Wire, *topics: str | bytes, version: int = 9, **fields: Any) -> list[int]:
    wire.send(produce_request([(topic, [(0, batch(b"v"))]) for topic in topics], **fields), produce.API_KEY, version)
    worker.turn()
    return [topic.partition_responses[0].error_code for topic in wire.receive().responses]


def fetched(worker: HandWorker, wire: Wire, *topics: str | bytes, version: int = 12, **fields: Any) -> list[int]:
    wire.send(fetch_request([(topic, 0, 0) for topic in topics], **fields), fetch.API_KEY, version)
    worker.turn()
    return [topic.partitions[0].error_code for topic in wire.receive().responses]


def test_names_are_decided_before_their_existence_and_ids_after(worker: HandWorker, rules: Rules) -> None:
    worker.create("mine")
    worker.create("theirs")
    ids = [bytes(worker.topics.get(name).topic_id) for name in ("mine", "theirs")]
    rules.publish([allow("mine", WRITE), allow("absent", WRITE)])
    wire = worker.connect()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produced(worker, wire, "mine", "theirs", "absent", "nothing") == [0, DENIED, unknown, DENIED]
    assert produced(worker, wire, *ids, NOBODY, version=13) == [0, DENIED, ErrorCode.UNKNOWN_TOPIC_ID]
    rules.publish([allow("mine", READ), allow("absent", READ)])
    assert fetched(worker, wire, "mine", "theirs", "absent", "nothing") == [0, DENIED, unknown, DENIED]
    assert fetched(worker, wire, *ids, NOBODY, version=17) == [0, DENIED, ErrorCode.UNKNOWN_TOPIC_ID]


def test_the_rules_are_read_once_for_a_version_and_remembered_decisions_end_with_it(
    worker: HandWorker, rules: Rules
) -> None:
    worker.create("t")
    wire = worker.connect()
    rules.publish([allow("t", WRITE)])
    assert [produced(worker, wire, "t") for _ in range(5)] == [[0]] * 5
    assert rules.reads == 2  # the first when the control was made
    rules.publish([])
    assert produced(worker, wire, "t") == [DENIED]
    rules.publish([allow("t", WRITE)])
    assert produced(worker, wire, "t") == [0]
    assert rules.reads == 4


def test_a_connection_has_the_rights_of_its_present_principal(worker: HandWorker, rules: Rules) -> None:
    worker.create("t")
    rules.publish([allow("t", WRITE, "User:alice")])
    first, second = worker.connect(), worker.connect()
    become(worker, 1, "User:alice")
    assert produced(worker, first, "t") == [0]
    assert produced(worker, second, "t") == [DENIED]
    become(worker, 1, "User:bob")
    assert produced(worker, first, "t") == [DENIED]
    become(worker, 1, "User:alice")
    assert produced(worker, first, "t") == [0]
    assert [noted[0] for noted in rules.noted] == ["User:ANONYMOUS", "User:bob"]


def test_an_address_has_its_own_rights(worker: HandWorker, rules: Rules) -> None:
    worker.create("t")
    rules.publish([allow("t", WRITE)._replace(host="127.0.0.2")])
    assert produced(worker, worker.connect(address="127.0.0.2"), "t") == [0]
    assert produced(worker, worker.connect(address="127.0.0.3"), "t") == [DENIED]


def test_a_batch_that_waited_for_a_lock_is_decided_again(worker: HandWorker, rules: Rules) -> None:
    slot = worker.create("t")
    worker.create("u")
    rules.publish([allow("t", WRITE), allow("u", WRITE)])
    wire = worker.connect()
    with lock_probe.SlotLock(slot):
        for topics in (("t", "u"), ("t",)):
            request = produce_request([(topic, [(0, batch(b"v"))]) for topic in topics])
            wire.send(request, produce.API_KEY, 9)
        worker.turn()
        worker.retry()
        assert nothing_came(wire)
        rules.publish([allow("u", WRITE)])
    worker.retry()
    worker.retry()
    first, second = ([topic.partition_responses[0].error_code for topic in wire.receive().responses] for _ in range(2))
    assert (first, second) == ([DENIED, 0], [DENIED])
    rules.publish([allow("t", READ)])
    assert worker.connect() is not None
    reader = worker.connect()
    reader.send(fetch_request([("t", 0, 0)], wait_ms=0), fetch.API_KEY, 12)
    worker.turn()
    assert not reader.receive().responses[0].partitions[0].records


def test_a_long_poll_is_decided_again_when_it_wakes(worker: HandWorker, rules: Rules) -> None:
    worker.create("t")
    rules.publish([allow("t", READ), allow("t", WRITE)])
    reader, writer = worker.connect(), worker.connect()
    reader.send(fetch_request([("t", 0, 0)], wait_ms=600_000), fetch.API_KEY, 12)
    worker.turn()
    assert nothing_came(reader)
    rules.publish([allow("t", WRITE)])
    assert produced(worker, writer, "t") == [0]
    worker.turn()
    (topic,) = reader.receive().responses
    assert topic.partitions[0].error_code == DENIED and not topic.partitions[0].records


def test_a_long_poll_ends_when_its_right_is_taken_away_and_others_go_on(worker: HandWorker, rules: Rules) -> None:
    for name in ("t", "u"):
        worker.create(name)
    rules.publish([allow("t", READ), allow("u", READ)])
    losing, keeping = worker.connect(), worker.connect()
    for wire, topics in ((losing, ("u", "t")), (keeping, ("u",))):
        wire.send(fetch_request([(topic, 0, 0) for topic in topics], wait_ms=600_000), fetch.API_KEY, 12)
    worker.turn()
    rules.publish([allow("u", READ)])
    for connection in list(worker.loop.connections.by_id.values()):
        worker.fetch_handler.rights_changed(connection)
    worker.loop.flush_dirty()
    assert [topic.partitions[0].error_code for topic in losing.receive().responses] == [0, DENIED]
    assert nothing_came(keeping)


def test_a_follower_needs_cluster_action_and_no_right_on_topics(worker: HandWorker, rules: Rules) -> None:
    worker.create("t")
    wire = worker.connect()

    def followed() -> list[int]:
        request = fetch_request([("t", 0, 0), ("u", 0, 0)])
        request.replica_id = 5
        wire.send(request, fetch.API_KEY, 12)
        worker.turn()
        return [topic.partitions[0].error_code for topic in wire.receive().responses]

    rules.publish([allow("t", READ)])
    assert followed() == [DENIED, DENIED]
    assert len(rules.noted) == 1, "the broker's right is one question for the whole request"
    rules.publish([allow("kafka-cluster", Operation.CLUSTER_ACTION, kind=ResourceType.CLUSTER)])
    assert followed() != [DENIED, DENIED]


def test_a_transactional_batch_needs_its_transactional_id_before_anything_else(
    worker: HandWorker, rules: Rules
) -> None:
    worker.create("t")
    wire = worker.connect()
    records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, attributes=0x10)

    def sent(name: str | None) -> list[int]:
        request = produce_request([("t", [(0, records)]), ("theirs", [(0, batch(b"v"))])], transactional_id=name)
        wire.send(request, produce.API_KEY, 9)
        worker.turn()
        if worker.questions:
            worker.answer()
        return [topic.partition_responses[0].error_code for topic in wire.receive().responses]

    id_denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    rules.publish([allow("t", WRITE)])
    assert sent("x") == [id_denied] * 2 == sent(None)
    rules.publish([allow("t", WRITE), allow("x", WRITE, kind=ResourceType.TRANSACTIONAL_ID)])
    assert sent("x") == [0, DENIED]


def test_names_without_number_are_all_decided_and_few_remembered(worker: HandWorker, rules: Rules) -> None:
    worker.create("t")
    rules.publish([allow("t", READ), allow("n", READ)._replace(pattern_type=PatternType.PREFIXED)])
    wire = worker.connect()
    names = [f"n{number}" for number in range(5000)]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for first in (*range(0, 5000, 500), 0):
        some = names[first : first + 500]
        assert fetched(worker, wire, *some) == [unknown] * 500
        assert fetched(worker, wire, *(f"x{name}" for name in some)) == [DENIED] * 500
    assert fetched(worker, wire, "n" * 30_000, "x" * 30_000, "t") == [unknown, DENIED, 0]


def test_allowed_operations_are_noted_only_if_asked(worker: HandWorker, rules: Rules) -> None:
    worker.create("t")
    rules.publish([allow("t", WRITE)])
    wire = worker.connect()
    produced(worker, wire, "t")
    assert rules.noted == []
    rules.control.verbose = True
    produced(worker, wire, "t")
    assert rules.noted == [("User:ANONYMOUS", WRITE, "t", True)]


def test_connections_of_one_client_find_its_rights_once(worker: HandWorker, rules: Rules) -> None:
    """Their principals are equal and not identical: each login makes its own text."""
    worker.connect()
    worker.connect()
    first, second = worker.loop.connections.by_id.values()
    first.principal, second.principal = (b"User:alice".decode() for _ in range(2))
    assert first.principal is not second.principal
    looked_up = []

    def host_of(peer: str) -> str:
        looked_up.append(peer)
        return host_of_peer(peer)

    control = AccessControl(memoryview(rules.word), rules._read, rules._note, host_of)
    for _ in range(3):
        assert control.of(first) is control.of(second)
    assert looked_up == [first.peer, second.peer]
