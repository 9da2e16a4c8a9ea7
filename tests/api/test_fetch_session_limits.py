"""Fetch sessions, executed step by step: their ids, their limits, and which sessions are evicted for others."""

from itertools import pairwise

import pytest

from odradek._ext.api.fetch_sessions import FetchSessions
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch, produce
from tests.api.worker_harness import HandWorker, nothing_came
from tests.wire import batch, fetch_request, produce_request, values

TWO_MINUTES_MS = 120_000


def worker_of(path, **limits):
    path.mkdir(exist_ok=True)
    worker = HandWorker(path, **limits)
    worker.create_many("t", 20)
    return worker


@pytest.fixture
def worker(tmp_path):
    worker = worker_of(tmp_path, max_sessions=4)
    yield worker
    worker.close()


class Client:
    """A connection with a session, or without one where it got none."""

    def __init__(self, worker, partitions=1):
        self.worker, self.wire = worker, worker.connect()
        self.id = self.epoch = 0
        self.ask(range(partitions))

    def ask(self, partitions=(), forget=(), **options):
        """(error, partitions that the response names)."""
        request = fetch_request(
            [("t", partition, 0) for partition in partitions],
            session_id=self.id,
            session_epoch=self.epoch,
            forget=[("t", partition) for partition in forget],
            **options,
        )
        self.wire.send(request, fetch.API_KEY, 12)
        self.worker.turn()
        response = self.wire.receive()
        if not response.error_code:
            self.id = response.session_id
            self.epoch = self.epoch + 1 if self.id else 0
        return response.error_code, [one.partition_index for topic in response.responses for one in topic.partitions]

    @property
    def lives(self):
        """Whether its session is there."""
        return bool(self.id) and self.ask()[0] == 0


def test_ids_are_positive_random_and_never_given_twice(tmp_path):
    worker = worker_of(tmp_path, max_sessions=300)
    try:
        ids = [Client(worker).id for _ in range(300)]
    finally:
        worker.close()
    assert len(set(ids)) == 300
    assert all(0 < one < 2**31 for one in ids)
    steps = {second - first for first, second in pairwise(ids)}
    assert len(steps) > 290, "the next id does not follow from the last one"
    assert max(ids) > 2**30 > min(ids), "by chance otherwise once in 2^299"


def test_the_ids_of_workers_do_not_overlap(tmp_path):
    for ordinal in range(3):
        worker = worker_of(tmp_path / str(ordinal), max_sessions=20, ordinal=ordinal, workers=3)
        try:
            ids = [Client(worker).id for _ in range(20)]
        finally:
            worker.close()
        assert {(one - 1) * 3 // (2**31 - 2) for one in ids} == {ordinal}
    with pytest.raises(ValueError, match="worker number 3 is not in 0 to 2"):
        FetchSessions(3, 3, max_sessions=1, max_partitions=1)


def test_any_client_that_knows_its_id_may_use_a_session(worker):
    """As in Kafka: of another connection to the same worker, too."""
    first, second = Client(worker), Client(worker)
    second.id, second.epoch = first.id, first.epoch
    assert second.ask() == (0, [])
    assert first.ask() == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])


def test_without_room_a_client_fetches_without_a_session(worker):
    clients = [Client(worker) for _ in range(4)]
    late = Client(worker, 3)
    assert (late.id, late.ask(range(3))) == (0, (0, [0, 1, 2]))
    assert all(client.lives for client in clients)


def test_no_session_is_created_if_none_is_allowed(tmp_path):
    worker = worker_of(tmp_path, max_sessions=0)
    try:
        assert Client(worker).id == 0
    finally:
        worker.close()


def test_a_session_that_was_not_used_for_two_minutes_makes_room(worker):
    clients = [Client(worker) for _ in range(4)]
    worker.fetch_handler.sessions.grow_older(TWO_MINUTES_MS + 1)
    for client in (0, 1, 3):
        assert clients[client].ask()[0] == 0
    late = Client(worker)
    assert late.id
    assert clients[2].ask() == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    assert all(client.lives for client in (late, clients[0], clients[1], clients[3]))
    assert worker.fetch_handler.sessions.evictions == 1


def test_the_smallest_older_session_is_evicted_only_for_a_larger_one(worker):
    sizes = (5, 3, 4, 6)
    clients = [Client(worker, size) for size in sizes]
    worker.fetch_handler.sessions.grow_older(TWO_MINUTES_MS + 1)
    assert all(client.lives for client in clients), "used now, but made long ago"
    assert Client(worker, 3).id == 0, "it is not larger than any"
    assert Client(worker, 10).id
    assert [client.lives for client in clients] == [True, False, True, True]
    assert Client(worker, 7).id
    assert [client.lives for client in clients] == [True, False, False, True]


def test_one_client_cannot_take_the_place_of_all_sessions_at_once(worker):
    clients = [Client(worker, 2) for _ in range(4)]
    greedy = [Client(worker, 20) for _ in range(10)]
    assert [client.id for client in greedy] == [0] * 10, "no session is two minutes old"
    assert all(client.lives for client in clients)


def test_the_partitions_of_all_sessions_together_are_bounded(tmp_path):
    worker = worker_of(tmp_path, max_session_partitions=20)
    try:
        first, second = Client(worker, 12), Client(worker, 8)
        assert first.id and second.id and worker.fetch_handler.sessions.partitions == 20
        worker.fetch_handler.sessions.grow_older(TWO_MINUTES_MS + 1)
        assert first.lives and second.lives
        assert Client(worker, 1).id == 0, "sessions in use make no room for partitions of others"
        second.wire.socket.close()
        worker.turn()
        assert worker.fetch_handler.sessions.partitions == 12
        assert Client(worker, 8).id
        assert worker.fetch_handler.sessions.partitions == 20
    finally:
        worker.close()


def test_a_session_that_outgrows_the_bound_ends(tmp_path):
    worker = worker_of(tmp_path, max_session_partitions=12)
    try:
        client, other = Client(worker, 5), Client(worker, 5)
        assert client.ask([5, 6]) == (0, [5, 6])
        assert client.ask([7]) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        assert worker.fetch_handler.sessions.partitions == 5
        client.id = client.epoch = 0
        assert client.ask(range(8)) == (0, list(range(8)))
        assert (client.id, other.lives) == (0, True)
    finally:
        worker.close()


def test_a_session_without_partitions_ends(worker):
    """As in Kafka, which says so by session id 0."""
    client = Client(worker, 2)
    known = client.id
    assert client.ask(forget=[0, 1]) == (0, [])
    assert client.id == 0
    client.id, client.epoch = known, 2
    assert client.ask() == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    assert (len(worker.fetch_handler.sessions), worker.fetch_handler.sessions.partitions) == (0, 0)


def test_a_waiting_request_whose_session_was_evicted_is_still_answered(worker):
    """As in Kafka: it is told with its next request."""
    clients = [Client(worker) for _ in range(4)]
    waiting, writing = clients[0], worker.connect()
    waiting.wire.send(
        fetch_request([], session_id=waiting.id, session_epoch=1, wait_ms=10 * TWO_MINUTES_MS), fetch.API_KEY, 12
    )
    worker.turn()
    waiting.epoch += 1
    worker.fetch_handler.sessions.grow_older(TWO_MINUTES_MS + 1)
    for client in clients[1:]:
        assert client.ask()[0] == 0
    assert Client(worker).id
    assert nothing_came(waiting.wire)
    writing.send(produce_request([("t", [(0, batch(b"x"))])], 1), produce.API_KEY, 9)
    worker.turn()
    writing.receive()
    assert values(waiting.wire.receive().responses[0].partitions[0].records) == [b"x"]
    assert waiting.ask() == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


def test_the_sessions_share_of_a_closed_connection_is_released(worker):
    for _ in range(10):
        client = Client(worker, 5)
        assert client.id
        client.wire.socket.close()
        worker.turn()
    assert (len(worker.fetch_handler.sessions), worker.fetch_handler.sessions.partitions) == (0, 0)
