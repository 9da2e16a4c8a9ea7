"""The rates of clients in shared memory: Kafka's throttle times, whichever process records, and places in a bounded table."""

import os
import struct
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek._ext.shm import client_quotas
from odradek._ext.shm.client_quotas import QuotaKind
from odradek._ext.shm.layout import ProcessKind
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.testing.client_quota_probe import Use
from tests.children import end_of, fork, kill_child
from tests.quotas.kafkas_rate import KafkasRate

PRODUCE = QuotaKind.QUOTA_PRODUCE
START = 1_000_000_000
WINDOWS, WINDOW_MS = 11, 1000
LIMIT = 1000.0

steps = st.lists(
    st.tuples(st.one_of(st.integers(0, 50), st.integers(0, 3000), st.integers(0, 30_000)), st.integers(0, 20_000)),
    min_size=1,
    max_size=60,
)


@pytest.fixture
def memory():
    shm = SharedMemory(64)
    shm.add_process(ProcessKind.SUPERVISOR)
    shm.process_starts(0)
    shm.enter(0)
    client_quotas.set_windows(WINDOWS, WINDOW_MS // 1000)
    return shm


def on_grid(window_ms):
    return lambda now_ms: now_ms // window_ms * window_ms


numbers = iter(range(10**9))


def fresh(limit=LIMIT, now_ms=START, **options):
    """A bucket that nobody has used."""
    return Use(PRODUCE, None, b"%d-%d" % (os.getpid(), next(numbers)), limit, now_ms=now_ms, **options)


@given(
    steps,
    st.sampled_from([1.0, 250.5, 1000.0, 20_000.0]),
    st.booleans(),
    st.sampled_from([(11, 1), (2, 1), (1, 3), (5, 2), (60, 1)]),
)
def test_throttle_times_are_those_of_kafka_with_windows_on_a_grid(events, limit, bounded, windows):
    number, seconds = windows
    SharedMemory(64)
    client_quotas.set_windows(number, seconds)
    use, model, now = fresh(limit), KafkasRate(number, seconds * 1000, on_grid(seconds * 1000)), START
    for pause, amount in events:
        now += pause
        use.add(amount, now)
        model.record(amount, now)
        assert abs(use.wait_ms(now, bounded) - model.throttle_ms(limit, now, bounded)) <= 1


@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 50), st.integers(0, 30_000)),
            st.lists(st.integers(0, 5000), min_size=1, max_size=6),
        ),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([1.0, 1000.0, 20_000.0]),
    st.sampled_from([PRODUCE, QuotaKind.QUOTA_REQUEST]),
    st.sampled_from([(11, 1), (1, 3), (60, 1)]),
)
def test_amounts_that_are_counted_together_are_throttled_as_if_counted_one_by_one(events, limit, kind, windows):
    SharedMemory(64)
    client_quotas.set_windows(*windows)
    joint, single = (Use(kind, None, name, limit, now_ms=START) for name in (b"joint", b"single"))
    now = START
    for pause, amounts in events:
        now += pause
        expected = []
        for amount in amounts:
            single.add(amount, now)
            expected.append(single.wait_ms(now, kind == QuotaKind.QUOTA_REQUEST))
        assert (joint.count(amounts, now) or [0] * len(amounts)) == expected


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 3000)), min_size=1, max_size=60))
def test_throttle_times_are_those_of_kafka_for_a_client_whose_windows_begin_with_a_record(events):
    """Its records are so placed that Kafka's windows begin where those of the shared memory do."""
    SharedMemory(64)
    client_quotas.set_windows(WINDOWS, 1)
    use, model, now = fresh(), KafkasRate(WINDOWS, WINDOW_MS), START
    for pause, amount in events:
        for _ in range(pause):
            now += WINDOW_MS
            use.add(1, now)
            model.record(1, now)
        use.add(amount, now)
        model.record(amount, now)
        assert abs(use.wait_ms(now) - model.throttle_ms(LIMIT, now)) <= 1


@given(steps)
def test_where_windows_begin_changes_no_more_than_what_one_window_holds(events):
    """The documented difference: the windows of the two may differ by one, and so may what is in them."""
    SharedMemory(64)
    client_quotas.set_windows(WINDOWS, 1)
    use, model, now, recorded = fresh(), KafkasRate(WINDOWS, WINDOW_MS), START, []
    for pause, amount in events:
        now += pause
        use.add(amount, now)
        model.record(amount, now)
        recorded.append((now, amount))
        edges = [
            sum(size for at, size in recorded if 0 <= now - at - edge <= 2 * WINDOW_MS)
            for edge in range(9000, 13_001, 500)
        ]
        most = max(edges) / LIMIT * 1000 + 2 * WINDOW_MS + 1
        assert abs(use.wait_ms(now) - model.throttle_ms(LIMIT, now)) <= most


@pytest.mark.parametrize("processes", range(1, 9))
def test_the_sum_is_exact_whichever_process_records(memory, processes):
    use = fresh(limit=1_000_000.0)
    model = KafkasRate(WINDOWS, WINDOW_MS, on_grid(WINDOW_MS))
    rounds, each = 2000, 700
    gate_read, gate_write = os.pipe()

    def add(amount: int) -> None:
        os.close(gate_write)
        os.read(gate_read, 1)  # all begin when the gate is closed
        for number in range(rounds):
            use.add(amount, START + number)

    children = [fork(partial(add, each + child)) for child in range(processes)]
    os.close(gate_write)
    for pid in children:
        assert end_of(pid) == 0
    os.close(gate_read)
    for number in range(rounds):
        model.record(sum(each + child for child in range(processes)), START + number)
    now = START + rounds
    recorded = [row[8] for row in client_quotas.buckets(now) if row[8]]
    assert recorded == [rounds * sum(each + child for child in range(processes))], "all recorded in one bucket"
    assert abs(use.wait_ms(now) - model.throttle_ms(1_000_000.0, now)) <= 1


def test_a_process_that_is_killed_leaves_a_usable_bucket(memory):
    use = fresh()
    told_read, told_write = os.pipe()

    def add() -> None:
        now = START
        while True:
            use.add(1, now)
            now += 1
            if now == START + 1000:
                os.write(told_write, b"x")

    child = fork(add)
    os.read(told_read, 1)
    kill_child(child)
    (row,) = client_quotas.buckets(START + 2000)
    assert row[8] >= 1000
    before = row[8]
    use.add(5, START + 10**9)
    (row,) = client_quotas.buckets(START + 10**9)
    assert row[8] == before + 5
    os.close(told_read)
    os.close(told_write)


def test_a_negative_amount_takes_back_what_was_counted(memory):
    use = fresh()
    use.add(100_000, START)
    assert use.wait_ms(START) > 0
    use.add(-100_000, START)
    assert use.wait_ms(START) == 0


def test_a_client_that_was_idle_may_use_the_windows_that_it_missed(memory):
    use = fresh()
    assert use.burst == LIMIT * (WINDOWS - 1)
    use.add(10_000, START)
    assert use.wait_ms(START) == 0
    use.add(1, START)
    assert use.wait_ms(START) == 1


def test_names_that_are_told_apart_have_buckets_of_their_own(memory):
    names = [
        (None, b"a"),
        (b"a", None),
        (b"a", b"a"),
        (b"", b"a"),
        (b"a", b""),
        (b"", b"aa"),
        (b"x" * 500 + b"1", None),
        (b"x" * 500 + b"2", None),
    ]
    uses = [Use(kind, user, client, LIMIT, now_ms=START) for user, client in names for kind in range(3)]
    assert len({use.bucket for use in uses}) == len(uses)
    again = [Use(kind, user, client, LIMIT, now_ms=START) for user, client in names for kind in range(3)]
    assert [use.bucket for use in again] == [use.bucket for use in uses]


def test_processes_find_the_same_places(memory):
    names = [b"client-%d" % number for number in range(200)]
    results = []
    gate_read, gate_write = os.pipe()

    def find(out: int) -> None:
        os.close(gate_write)
        os.read(gate_read, 1)
        places = [Use(PRODUCE, None, name, LIMIT, now_ms=START).bucket for name in names]
        os.write(out, struct.pack(f"{len(places)}I", *places))

    for _ in range(4):
        out_read, out_write = os.pipe()
        results.append((fork(partial(find, out_write)), out_read))
        os.close(out_write)
    os.close(gate_write)
    found = set()
    for pid, out in results:
        found.add(os.read(out, 65536))
        os.close(out)
        assert end_of(pid) == 0
    os.close(gate_read)
    assert len(found) == 1 and len(set(struct.unpack(f"{len(names)}I", found.pop()))) == len(names)


def test_unused_buckets_are_freed_and_their_users_find_others(memory):
    use = fresh()
    use.add(1, START)
    assert client_quotas.free_unused(3_600_000, START + 3_600_000) == 0
    assert client_quotas.free_unused(3_600_000, START + 3_600_001) == 1
    assert client_quotas.buckets(START) == []
    use.add(100_000, START + 3_700_000)
    assert use.wait_ms(START + 3_700_000) > 0, "it counts again, in another bucket"


def test_a_flood_of_client_ids_from_one_address_leaves_other_clients_their_buckets(memory):
    """The flooder's clients are evicted, or share a bucket `other` with nobody else."""
    victims = [
        Use(PRODUCE, None, b"victim-%d" % number, LIMIT, owner=number + 10, now_ms=START) for number in range(100)
    ]
    for victim in victims:
        victim.add(50_000, START)
    others = 0
    for number in range(60_000):
        use = Use(PRODUCE, None, b"flood-%d" % number, LIMIT, owner=3, now_ms=START + number // 100)
        others += use.bucket >= 16384
    assert others > 10_000
    for number, victim in enumerate(victims):
        now = START + 600
        assert victim.wait_ms(now) > 0, "it is still throttled"
        newcomer = Use(PRODUCE, None, b"new-%d" % number, LIMIT, owner=number + 500, now_ms=now)
        assert newcomer.bucket < 16384, "a new client gets a bucket"
    counts = client_quotas.counters()
    assert counts["overflows"] == others and counts["used"] <= counts["room"]


def test_buckets_whose_windows_are_over_make_room(memory):
    for number in range(60_000):
        use = Use(PRODUCE, None, b"old-%d" % number, LIMIT, owner=number, now_ms=START + number)
        # A key has 32 places, and no window is over yet: the first 8,000 all find one, but for one run in 40 million.
        assert use.bucket < 16384 or number > 8_000
    late = START + 60_000 + 14_000
    assert all(
        Use(PRODUCE, None, b"new-%d" % number, LIMIT, owner=7, now_ms=late).bucket < 16384 for number in range(5000)
    )


def test_the_buckets_are_shown_with_names_limits_and_rates(memory):
    use = Use(QuotaKind.QUOTA_FETCH, b"alice", None, 500.0, now_ms=START)
    use.add(20_000, START)
    use.throttled(use.wait_ms(START), START)
    (row,) = client_quotas.buckets(START)
    assert row == (1, b"alice", None, 500.0, 2000.0, 1, 30_000, 30_000, 20_000)


def test_a_client_that_gets_the_bucket_of_an_evicted_one_does_not_pay_for_it(memory):
    for number in range(30_000):
        Use(PRODUCE, None, b"flood-%d" % number, LIMIT, owner=3, now_ms=START).add(50_000, START)
    before = client_quotas.counters()["evicted"]
    newcomers = [
        Use(PRODUCE, None, b"new-%d" % number, LIMIT, owner=number + 500, now_ms=START + 600) for number in range(100)
    ]
    assert client_quotas.counters()["evicted"] > before
    assert all(use.wait_ms(START + 600) == 0 for use in newcomers)


@pytest.mark.parametrize("windows_later", [12 * 700_000, 12 * 1_000_000, 12 * 1_390_000, 1 << 24])
def test_a_bucket_counts_again_after_months_without_use(memory, windows_later):
    """The number of a window has 24 bits: half of them are 97 days."""
    use = fresh()
    use.add(1, START)
    later = START + windows_later * WINDOW_MS
    use.add(100_000, later)
    assert use.wait_ms(later) > 0


def allocated_bytes(memory: SharedMemory) -> int:
    return os.fstat(memory.memfd).st_blocks * 512


def test_a_look_at_all_buckets_takes_memory_only_for_those_that_were_used(memory: SharedMemory) -> None:
    before = allocated_bytes(memory)
    assert client_quotas.free_unused(1, START) == 0
    assert client_quotas.counters()["used"] == 0
    assert client_quotas.buckets(START) == []
    assert allocated_bytes(memory) - before <= 8192
    Use(PRODUCE, b"u", b"c", LIMIT, now_ms=START).add(1, START)
    assert client_quotas.counters()["used"] == len(client_quotas.buckets(START)) == 1
    # the places that the key may have, and the group of its bucket
    assert allocated_bytes(memory) - before <= 512 * 1024
