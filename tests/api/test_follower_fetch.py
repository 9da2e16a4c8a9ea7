"""Fetches of followers, step by step: which are refused, what the leader notes of them, and what their sessions cost."""

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import log_start
from odradek._ext.partition.followers import followers_of
from odradek._ext.partition.slots import raise_high_watermark
from odradek._ext.testing import lock_probe, replica_probe, slot_probe
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch
from tests.api.worker_harness import HandWorker, nothing_came
from tests.waiting import until
from tests.wire import batch, fetch_request, offsets

CONSUMER, LEADER, FOLLOWER, STRANGER = -1, 1, 2, 7
VERSIONS = pytest.mark.parametrize("version", [12, 15, 17, 18])


@pytest.fixture
def make_worker(tmp_path):
    workers = []

    def make(alive=(LEADER, FOLLOWER), *, lag_limit_ms=30_000, **options):
        workers.append(HandWorker(tmp_path, **options))
        replica_probe.cluster(list(alive), lag_limit_ms=lag_limit_ms)
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


@pytest.fixture
def worker(make_worker):
    return make_worker()


class Follower:
    """A connection of a follower, with or without a session."""

    def __init__(self, worker, version=17, broker_id=FOLLOWER, epoch=-1):
        self.worker, self.version, self.broker_id, self.broker_epoch = worker, version, broker_id, epoch
        self.wire = worker.connect()
        self.id = self.epoch = 0

    def send(self, *places, session=True, last_epoch=-1, log_start_offset=0, turn=None, **options):
        """Send a request for (slot's topic, partition, offset)."""
        request = fetch_request(
            list(places),
            session_id=self.id if session else 0,
            session_epoch=self.epoch if session else -1,
            **options,
        )
        for topic in request.topics:
            topic.partitions[0].last_fetched_epoch = last_epoch
            topic.partitions[0].log_start_offset = log_start_offset
        if self.version >= 15:
            request.replica_state = fetch.Request.ReplicaState(
                replica_id=self.broker_id, replica_epoch=self.broker_epoch
            )
        else:
            request.replica_id = self.broker_id
        self.wire.send(request, fetch.API_KEY, self.version)
        (turn or self.worker.turn)()

    def receive(self):
        """(error, {partition: its part of the response})."""
        response = self.wire.receive()
        if not response.error_code and response.session_id:
            self.id, self.epoch = response.session_id, self.epoch + 1
        return response.error_code, {
            part.partition_index: part for topic in response.responses for part in topic.partitions
        }

    def ask(self, *places, **options):
        self.send(*places, **options)
        return self.receive()

    def ask_one(self, *places, **options):
        error, parts = self.ask(*places, session=False, **options)
        assert error == 0
        (part,) = parts.values()
        return part


def led(worker, count):
    """A topic with `count` partitions that this broker leads; their slots."""
    slots = worker.create_many("t", count, alone=False)
    for slot in slots:
        worker.broker.lead(slot, 0, alone=False)
    return slots


def topic_of(slot, version):
    facts = slot_facts.describe(slot)
    return facts.topic_id if version >= 13 else facts.topic


def lagging(worker, count=1, version=17):
    """A partition with `count` records that its follower does not have yet: (slot, what requests name)."""
    slot = worker.create("t", alone=False)
    worker.broker.lead(slot, 0, alone=False)
    for _ in range(count):
        assert slot_probe.append(slot, [batch(b"x")])[0][0] == 0
    return slot, topic_of(slot, version)


def high_watermark(slot):
    return slot_facts.describe(slot).high_watermark


# -- one request ------------------------------------------------------------------------------------------------------


@VERSIONS
def test_a_fetch_moves_the_high_watermark_and_tells_it(worker, version):
    slot, topic = lagging(worker, 2, version)
    follower = Follower(worker, version)
    part = follower.ask_one((topic, 0, 0))
    assert (part.error_code, part.high_watermark, offsets(part.records)) == (0, 0, [0, 1])
    part = follower.ask_one((topic, 0, 2))
    assert (part.error_code, part.high_watermark, offsets(part.records)) == (0, 2, [])
    assert high_watermark(slot) == 2
    (facts,) = followers_of(slot)
    assert (facts.broker_id, facts.log_end_offset, facts.log_start_offset) == (FOLLOWER, 2, 0)


@pytest.mark.parametrize("version", [15, 17, 18])
def test_the_broker_epoch_comes_from_the_replica_state(worker, version):
    slot, topic = lagging(worker, 1, version)
    assert Follower(worker, version, epoch=77).ask_one((topic, 0, 0)).error_code == 0
    assert followers_of(slot)[0].broker_epoch == 77
    assert Follower(worker, version, epoch=78).ask_one((topic, 0, 1)).error_code == 0
    part = Follower(worker, version, epoch=77).ask_one((topic, 0, 0))
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "a request of an earlier registration"
    assert followers_of(slot)[0].log_end_offset == 1


@VERSIONS
def test_leader_epochs_are_checked_before_the_replica(worker, version):
    slot, topic = lagging(worker, 1, version)
    worker.broker.lead(slot, 3, alone=False)
    for broker_id in (FOLLOWER, STRANGER):
        follower = Follower(worker, version, broker_id)
        assert follower.ask_one((topic, 0, 0), leader_epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert follower.ask_one((topic, 0, 0), leader_epoch=4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    stranger = Follower(worker, version, STRANGER)
    assert stranger.ask_one((topic, 0, 0), leader_epoch=3).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert stranger.ask_one((topic, 0, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    worker.broker.obey(slot, 5)
    follower = Follower(worker, version)
    assert follower.ask_one((topic, 0, 0), leader_epoch=5).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@VERSIONS
def test_an_assigned_replica_that_is_not_registered_still_replicates(make_worker, version):
    """It may have lost its session in ZooKeeper, and the controller has not decided anything yet."""
    worker = make_worker(alive=[LEADER])
    slot, topic = lagging(worker, 1, version)
    follower = Follower(worker, version)
    part = follower.ask_one((topic, 0, 0), leader_epoch=0)
    assert (part.error_code, offsets(part.records)) == (0, [0])
    assert high_watermark(slot) == 0
    assert follower.ask_one((topic, 0, 1), leader_epoch=0).error_code == 0
    assert high_watermark(slot) == 1


def test_the_log_start_is_checked_before_the_epochs(worker):
    slot, topic = lagging(worker, 4)
    raise_high_watermark(slot, 4)
    log_start.advance(slot, 2, incarnation=slot_probe.incarnation_of(slot))
    for last_epoch in (-1, 0, 5):
        part = Follower(worker).ask_one((topic, 0, 1), last_epoch=last_epoch)
        assert (part.error_code, part.diverging_epoch.epoch) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_an_offset_behind_the_log_end_is_out_of_range(worker):
    _, topic = lagging(worker, 1)
    assert Follower(worker).ask_one((topic, 0, 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# -- diverging logs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def epochs(worker):
    """Records 0 and 1 in epoch 0, 2 and 3 in epoch 4, none in epoch 6: (slot, topic)."""
    slot, topic = lagging(worker, 2)
    worker.broker.lead(slot, 4, alone=False)
    for _ in range(2):
        assert slot_probe.append(slot, [batch(b"x")])[0][0] == 0
    worker.broker.lead(slot, 6, alone=False)
    return slot, topic


@pytest.mark.parametrize(
    ("last_epoch", "offset", "diverging"),
    [
        (0, 1, None),
        (0, 2, None),
        (0, 3, (0, 2)),
        (2, 2, (0, 2)),
        (4, 4, None),
        (4, 5, (4, 4)),
        (5, 4, (4, 4)),
        (6, 4, None),
    ],
)
def test_a_reader_whose_log_diverges_learns_where(worker, epochs, last_epoch, offset, diverging):
    slot, topic = epochs
    part = Follower(worker).ask_one((topic, 0, offset), last_epoch=last_epoch, leader_epoch=6)
    assert part.error_code == 0
    returned = (part.diverging_epoch.epoch, part.diverging_epoch.end_offset)
    assert returned == (diverging or (-1, -1))
    if diverging:
        assert not part.records
        assert not [facts for facts in followers_of(slot) if facts.log_end_offset >= 0], "its position is not noted"
    else:
        assert followers_of(slot)[0].log_end_offset == offset


def test_a_divergence_is_answered_at_once(worker, epochs):
    slot, topic = epochs
    follower = Follower(worker)
    follower.send((topic, 0, 5), last_epoch=4, wait_ms=60_000)
    assert follower.receive()[1][0].diverging_epoch.end_offset == 4
    assert high_watermark(slot) == 0
    follower.send((topic, 0, 4), last_epoch=4, wait_ms=60_000)
    assert nothing_came(follower.wire)


def test_an_epoch_that_the_leader_does_not_know_is_out_of_range(worker, epochs):
    _, topic = epochs
    assert Follower(worker).ask_one((topic, 0, 4), last_epoch=7).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# -- waiting ----------------------------------------------------------------------------------------------------------


def test_a_long_poll_ends_with_the_log_end_and_not_with_the_high_watermark(worker):
    slot, topic = lagging(worker, 2)
    follower, reader = Follower(worker), Follower(worker, 12, CONSUMER)
    follower.ask((topic, 0, 2))
    reader.send(("t", 0, 2), session=False, wait_ms=60_000)
    follower.send(wait_ms=60_000)
    raise_high_watermark(slot, 2)
    worker.turn()
    assert nothing_came(follower.wire)
    assert slot_probe.append(slot, [batch(b"x")])[0][0] == 0
    worker.turn()
    error, parts = follower.receive()
    assert (error, offsets(parts[0].records), parts[0].high_watermark) == (0, [2], 2)
    assert nothing_came(reader.wire)
    follower.send((topic, 0, 3), wait_ms=60_000)
    assert offsets(reader.receive()[1][0].records) == [2]


def test_the_position_is_noted_at_the_arrival_only(worker):
    slot, topic = lagging(worker, 1)
    follower = Follower(worker)
    follower.ask((topic, 0, 1))
    follower.send(wait_ms=60_000)
    noted = worker.fetch_handler.notes
    for _ in range(3):
        raise_high_watermark(slot, 1)
        worker.turn()
    assert slot_probe.append(slot, [batch(b"x")])[0][0] == 0
    worker.turn()
    assert offsets(follower.receive()[1][0].records) == [1]
    assert worker.fetch_handler.notes == noted


def test_a_position_that_met_a_taken_lock_is_noted_in_a_later_turn(worker):
    slot, topic = lagging(worker, 1)
    follower = Follower(worker)
    with lock_probe.SlotLock(slot):
        follower.send((topic, 0, 1), wait_ms=60_000, turn=worker.read)
        assert high_watermark(slot) == 0
    worker.slice()
    assert high_watermark(slot) == 1
    assert nothing_came(follower.wire)


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_a_follower_gets_a_session_when_the_table_is_full_and_keeps_it(make_worker):
    worker = make_worker(max_sessions=1, max_session_partitions=2)
    led(worker, 5)
    client = Follower(worker, 12, CONSUMER)
    client.ask(("t", 0, 0))
    assert client.id
    follower = Follower(worker, 12)
    follower.ask(*[("t", number, 0) for number in range(5)])
    assert follower.id
    worker.fetch_handler.sessions.grow_older(10**9)
    newcomer = Follower(worker, 12, CONSUMER)
    newcomer.ask(("t", 0, 0), ("t", 1, 0))
    assert newcomer.id
    assert client.ask()[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert follower.ask()[0] == 0


def test_a_client_that_is_no_live_broker_gets_a_session_like_any_client(make_worker):
    worker = make_worker(max_sessions=1)
    led(worker, 2)
    first = Follower(worker, 12, CONSUMER)
    first.ask(("t", 0, 0))
    for broker_id in (STRANGER, LEADER):
        pretender = Follower(worker, 12, broker_id)
        pretender.ask(("t", 0, 0))
        assert not pretender.id


def test_a_session_of_a_follower_serves_nobody_else(worker):
    _, topic = lagging(worker, 1)
    follower = Follower(worker)
    follower.ask((topic, 0, 1))
    thief = Follower(worker, broker_id=CONSUMER)
    thief.id, thief.epoch = follower.id, follower.epoch
    assert thief.ask()[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_follower_that_begins_sessions_again_and_again_keeps_one(worker):
    _, topic = lagging(worker, 1)
    follower = Follower(worker)
    for _ in range(100):
        follower.id = follower.epoch = 0
        follower.ask((topic, 0, 1))
        assert follower.id
        assert len(worker.fetch_handler.sessions) == 1
    assert follower.ask()[0] == 0


@pytest.mark.parametrize("reader", [FOLLOWER, CONSUMER])
def test_another_request_ends_the_wait_of_a_followers_fetch_only(worker, reader):
    """A follower has new partitions to fetch then. Clients may send requests in advance, and wait for records still."""
    _, topic = lagging(worker, 1)
    follower = Follower(worker, broker_id=reader)
    follower.ask((topic, 0, 1))
    follower.send(wait_ms=60_000)
    assert nothing_came(follower.wire)
    follower.epoch += 1
    follower.send(wait_ms=60_000)
    follower.epoch -= 1
    if reader == FOLLOWER:
        assert follower.receive() == (0, {})
    assert nothing_came(follower.wire)


MANY = 400


@pytest.fixture
def idle(make_worker):
    """A follower with a session of many partitions that have nothing new: (worker, slots, topic, follower)."""
    worker = make_worker(max_slots=MANY + 8)
    slots = led(worker, MANY)
    topic = topic_of(slots[0], 17)
    follower = Follower(worker)
    error, parts = follower.ask(*[(topic, number, 0) for number in range(MANY)])
    assert (error, len(parts)) == (0, MANY)

    def settled():
        looks = worker.fetch_handler.looks
        assert follower.ask() == (0, {})
        return worker.fetch_handler.looks == looks

    until(settled, "the first note of a follower moves its log start, which is a move of the partition")
    return worker, slots, topic, follower


def test_an_idle_session_looks_at_no_partition(idle):
    worker, _, _, follower = idle
    looks = worker.fetch_handler.looks
    for _ in range(20):
        assert follower.ask() == (0, {})
    assert worker.fetch_handler.looks == looks


def test_a_session_looks_at_the_partitions_that_moved_or_are_named(idle):
    worker, slots, topic, follower = idle
    for number in (7, 399):
        assert slot_probe.append(slots[number], [batch(b"x")])[0][0] == 0
    worker.turn()
    looks = worker.fetch_handler.looks
    error, parts = follower.ask()
    assert (error, {number: offsets(part.records) for number, part in parts.items()}) == (0, {7: [0], 399: [0]})
    assert worker.fetch_handler.looks <= looks + 2
    error, parts = follower.ask((topic, 7, 1))
    assert parts[7].high_watermark == 1, "its own fetch has moved it"
    assert offsets(parts[399].records) == [0], "the follower did not take it"
    error, parts = follower.ask((topic, 399, 1))
    assert set(parts) == {399}
    assert follower.ask() == (0, {})


def test_a_move_between_two_requests_is_not_missed(idle):
    _worker, slots, topic, follower = idle
    for turn in range(1, 50):
        number = turn * 59 % MANY
        assert slot_probe.append(slots[number], [batch(b"x")])[0][0] == 0
        follower.send(wait_ms=60_000)
        _, parts = follower.receive()
        assert number in parts
        error, parts = follower.ask((topic, number, slot_facts.describe(slots[number]).log_end_offset))
        assert error == 0


def test_a_parked_session_is_answered_with_what_moved(idle):
    worker, slots, _topic, follower = idle
    follower.send(wait_ms=60_000)
    assert nothing_came(follower.wire)
    looks = worker.fetch_handler.looks
    assert slot_probe.append(slots[5], [batch(b"x")])[0][0] == 0
    worker.turn()
    _, parts = follower.receive()
    assert list(parts) == [5]
    assert worker.fetch_handler.looks <= looks + 3


def test_a_high_watermark_is_told_with_the_next_response(idle):
    worker, slots, topic, follower = idle
    assert slot_probe.append(slots[5], [batch(b"x")])[0][0] == 0
    follower.ask()
    follower.ask((topic, 5, 1))
    follower.send(wait_ms=60_000)
    assert nothing_came(follower.wire)
    worker.broker.lead(slots[9], 0, alone=False)  # moves nothing, but wakes whoever waits
    worker.turn()
    assert nothing_came(follower.wire)
    worker.expire()
    assert follower.receive()[0] == 0


def test_a_changed_leader_epoch_ends_the_wait(idle):
    worker, slots, topic, follower = idle
    error, _ = follower.ask((topic, 9, 0), leader_epoch=0)
    assert error == 0
    follower.send(wait_ms=60_000)
    assert nothing_came(follower.wire)
    worker.broker.lead(slots[9], 1, alone=False)
    worker.turn()
    _, parts = follower.receive()
    assert {number: part.error_code for number, part in parts.items()} == {9: ErrorCode.FENCED_LEADER_EPOCH}
    _, parts = follower.ask()
    assert set(parts) == {9}, "an error is returned until the partition is named again"
    _, parts = follower.ask((topic, 9, 0), leader_epoch=1)
    assert parts[9].error_code == 0
    assert follower.ask() == (0, {})


def test_a_forgotten_partition_is_not_told(idle):
    worker, slots, topic, follower = idle
    assert follower.ask(forget=[(topic, 5)]) == (0, {})
    for number in (5, 6):
        assert slot_probe.append(slots[number], [batch(b"x")])[0][0] == 0
    worker.turn()
    assert set(follower.ask()[1]) == {6}
    assert set(follower.ask((topic, 5, 0))[1]) == {5, 6}


def test_partitions_that_had_no_room_come_first_in_the_next_response(idle):
    worker, slots, topic, follower = idle
    for number in range(4):
        assert slot_probe.append(slots[number], [batch(bytes(1000))])[0][0] == 0
    worker.turn()
    served = []
    for _ in range(4):
        _, parts = follower.ask(max_bytes=1)
        (number,) = [number for number, part in parts.items() if part.records]
        served.append(number)
        follower.ask((topic, number, 1), max_bytes=0)
    assert sorted(served) == [0, 1, 2, 3]


def test_an_idle_follower_stays_caught_up_in_every_partition(make_worker):
    """The session names no partition for longer than the lag limit, and none counts as lagging at its next append."""
    worker = make_worker(max_slots=210, lag_limit_ms=400)
    slots = led(worker, 200)
    topic = topic_of(slots[0], 17)
    follower = Follower(worker)
    follower.ask(*[(topic, number, 0) for number in range(200)])
    first = worker.fetch_handler.notes

    def noted():
        assert follower.ask() == (0, {})
        return worker.fetch_handler.notes >= first + 20 * 200

    until(noted, "each partition was noted many times")
    looks = worker.fetch_handler.looks
    follower.ask()
    assert worker.fetch_handler.looks == looks
    ages = [followers_of(slot)[0].caught_up_before_ms for slot in slots]
    assert max(ages) <= 400


def test_a_refreshed_position_is_not_that_of_a_partition_that_moved(make_worker):
    worker = make_worker(lag_limit_ms=8)
    slot, topic = lagging(worker, 1)
    follower = Follower(worker)
    follower.ask((topic, 0, 1))
    assert high_watermark(slot) == 1
    assert slot_probe.append(slot, [batch(b"x")])[0][0] == 0
    for _ in range(50):
        assert offsets(follower.ask()[1][0].records) == [1]
    assert high_watermark(slot) == 1
    assert followers_of(slot)[0].log_end_offset == 1
