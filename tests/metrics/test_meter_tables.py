"""The tables of a meter page: sums are kept whatever does not fit, is retired, or dies amid it."""

import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek._ext.shm import metering
from odradek._ext.shm.layout import ProcessKind
from odradek._ext.shm.meter_reading import PageInMotion
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.testing import meter_probe
from odradek.metrics import pages
from tests.children import fork, kill_child

HOUR_MS = 3_600_000
PRINCIPAL = b"User:ANONYMOUS"
PRODUCE, FETCH = 0, 1


@pytest.fixture
def shm() -> Iterator[SharedMemory]:
    yield from mapping()


def mapping() -> Iterator[SharedMemory]:
    made = SharedMemory(64, 1 << 20)
    made.add_process(ProcessKind.WORKER)
    made.add_process(ProcessKind.WORKER)
    made.enter(0)
    metering.set_idle_ms(HOUR_MS)
    meter_probe.use_clock(10 * HOUR_MS)
    yield made
    meter_probe.use_clock(0)
    meter_probe.use_owner(0)


def totals(rows: list[pages.UsageRow]) -> tuple[int, ...]:
    return tuple(sum(row[i] for row in rows) for i in range(7, 15))


def usage(client: int, topic: int | None, api: int, n: int = 1) -> None:
    name = None if topic is None else b"topic-%d" % topic
    meter_probe.count_usage(PRINCIPAL, b"client-%d" % client, name, api, (1, 0, 10 * n, 20 * n, n, 0, 0, 0))


def test_what_is_counted_is_read_by_client_topic_and_api(shm: SharedMemory) -> None:
    meter_probe.count_usage(PRINCIPAL, b"one", b"orders", PRODUCE, (1, 2, 3, 4, 5, 6, 7, 8))
    meter_probe.count_usage(PRINCIPAL, b"one", b"orders", PRODUCE, (1, 0, 10, 0, 1, 0, 0, 0))
    meter_probe.count_usage(b"User:x", b"one", None, FETCH, (1, 0, 30, 0, 0, 0, 0, 0))
    meter_probe.count_usage(b"User:x", b"", None, -1, (0, 0, 0, 0, 0, 0, 0, 50))
    meter_probe.count_usage(b"User:x", "naïve".encode() * 100, None, 20101, (0, 0, 0, 0, 0, 0, 0, 1))
    meter_probe.count_usage(b"User:x", b"a", b"t", 12345, (0, 0, 0, 0, 0, 0, 0, 1))
    rows = {row[1:5]: row for row in pages.usage_rows(shm, 0)}
    assert rows["User:ANONYMOUS", "one", "orders", PRODUCE][7:] == (2, 2, 13, 4, 6, 6, 7, 8)
    assert rows["User:x", "one", None, FETCH].bytes_in == 30
    assert rows["User:x", "", None, pages.NO_API].connection_ms == 50
    assert rows["User:x", "a", "t", pages.UNKNOWN_API].connection_ms == 1
    (long,) = [key for key in rows if key[3] == 20101]
    assert "naïve" * 34 in long[1]
    assert len(rows) == 5
    assert len({row.since_ms for row in rows.values()}) == 5
    assert list(pages.usage_rows(shm, 1)) == []
    with pytest.raises(ValueError, match="process 2 of 2"):
        list(pages.usage_rows(shm, 2))


def test_a_hundred_thousand_client_ids_take_bounded_memory_and_lose_nothing(shm: SharedMemory) -> None:
    for i in range(100_000):
        usage(i, i % 7, PRODUCE)
        meter_probe.put_reader_position(PRINCIPAL, b"client-%d" % i, i % 64, 1, i)
    rows = list(pages.usage_rows(shm, 0))
    used = meter_probe.tables()
    assert all(count <= room for count, room in used.values())
    assert len(rows) == used["usage"][0] <= used["usage"][1]
    assert totals(rows)[:5] == (100_000, 0, 1_000_000, 2_000_000, 100_000)
    folded = [row for row in rows if row.client_id == pages.OTHER]
    assert {row.topic for row in folded} == {f"topic-{i}" for i in range(7)}
    assert sum(row.requests for row in folded) == 100_000 - used["clients"][0]
    assert pages.counters(shm, 0)["folded"] >= sum(row.requests for row in folded)
    assert len(list(pages.positions(shm, 0))) == used["positions"][0] == used["clients"][0]


def test_more_topics_than_fit_are_one_topic_of_their_client(shm: SharedMemory) -> None:
    for i in range(20_000):
        usage(0, i, PRODUCE)
    rows = list(pages.usage_rows(shm, 0))
    (other,) = [row for row in rows if row.topic == pages.OTHER]
    assert other.client_id == "client-0"
    assert other.requests == 20_000 - (len(rows) - 1)
    assert totals(rows)[2] == 200_000


def test_the_topics_of_clients_that_do_not_fit_leave_room_for_what_is_of_no_topic(shm: SharedMemory) -> None:
    for i in range(5_000):
        usage(i, None, PRODUCE)
    known = meter_probe.tables()["clients"][0]
    for api in (PRODUCE, FETCH, 2):
        for i in range(6_000):
            usage(10_000, i, api)
    for api in range(93):
        usage(10_000, None, api)
        usage(10_000, 7_000, api)
    rows = list(pages.usage_rows(shm, 0))
    used, room = meter_probe.tables()["usage"]
    assert len(rows) == used <= room
    assert totals(rows)[0] == 5_000 + 18_000 + 2 * 93
    assert {row.api_key for row in rows if row.client_id == pages.OTHER and row.topic is None} == set(range(93))
    assert known < 5_000


def test_what_was_not_used_for_long_makes_room_and_stays_in_the_sum(shm: SharedMemory) -> None:
    for i in range(14_900):
        usage(i % 3000, i % 5000 if i % 5 else None, PRODUCE)
        meter_probe.put_reader_position(PRINCIPAL, b"client-%d" % (i % 3000), i % 64, 1, i)
    before = list(pages.usage_rows(shm, 0))
    meter_probe.use_clock(12 * HOUR_MS)
    for i in range(5000, 5010):
        usage(i, i, FETCH)
    after = list(pages.usage_rows(shm, 0))
    retired = [row for row in after if row.client_id == pages.RETIRED]
    assert [row.topic for row in retired] == [None, pages.OTHER]
    assert totals(retired) == totals(before)
    assert totals(retired[:1]) == totals([row for row in before if row.topic is None])
    assert len(after) == 12
    assert totals(after)[0] == 14_910
    assert pages.counters(shm, 0)["retired_entries"] == len(before)
    assert meter_probe.tables()["clients"][0] == meter_probe.tables()["topics"][0] == 10
    assert list(pages.positions(shm, 0)) == []
    usage(0, 0, PRODUCE)  # as one of the retired: another entry, from 0
    (again,) = [row for row in pages.usage_rows(shm, 0) if row.client_id == "client-0"]
    assert again.requests == 1
    assert again.since_ms > max(row.since_ms for row in before)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("burst"), st.integers(0, 9000), st.integers(1, 9000), st.integers(1, 3)),
        st.tuples(st.just("again"), st.integers(0, 50), st.integers(1, 50), st.integers(1, 3)),
        st.tuples(st.just("hours"), st.integers(0, 3), st.just(0), st.just(0)),
        st.tuples(st.just("successor"), st.just(0), st.just(0), st.just(0)),
    ),
    min_size=2,
    max_size=12,
)


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_sums_are_kept_and_no_entry_goes_back(steps: list[tuple[str, int, int, int]]) -> None:
    for shm in mapping():
        expected = [0, 0, 0, 0, 0]
        now = 10 * HOUR_MS
        seen: dict[tuple[object, ...], tuple[int, ...]] = {}
        for step, start, count, topics in steps:
            if step == "hours":
                now += start * HOUR_MS
                meter_probe.use_clock(now)
            elif step == "successor":
                meter_probe.forget_indexes()
            else:
                for i in range(start, start + count):
                    usage(i, None if i % (topics + 1) == 0 else i % topics, PRODUCE, topics)
                for i, n in enumerate((1, 0, 10 * topics, 20 * topics, topics)):
                    expected[i] += n * count
            rows = list(pages.usage_rows(shm, 0))
            assert list(totals(rows)[:5]) == expected
            assert len({row[1:6] for row in rows}) == len(rows)
            named = [row for row in rows if row.client_id != pages.RETIRED]
            assert len({row.since_ms for row in named}) == len(named)
            for row in named:
                assert all(new >= old for new, old in zip(row[7:], seen.get(row[1:6], (0,) * 8), strict=True))
                seen[row[1:6]] = row[7:]
            assert meter_probe.tables()["usage"][0] <= meter_probe.tables()["usage"][1]


def churn(turns: range) -> None:
    """Count without end, always other clients, an hour a burst: entries are retired all the time."""
    for turn in turns:
        meter_probe.use_clock((20 + 2 * turn) * HOUR_MS)
        for i in range(2500):
            usage(turn * 1000 + i, i % 9, i % 3)


def rows_of(shm: SharedMemory) -> list[pages.UsageRow]:
    """Of the first process. What is rearranged every few ms, as no broker does, may move at each of a reader's looks."""
    while True:
        try:
            return list(pages.usage_rows(shm, 0))
        except PageInMotion:
            continue


def test_a_reader_never_sees_a_sum_go_back_nor_half_an_entry(shm: SharedMemory) -> None:
    seen, write_end = os.pipe()

    def write() -> None:
        shm.enter(0)
        churn(range(20))
        os.read(seen, 1)  # however late the reader comes, there is something left to see
        churn(range(20, 40))

    pid = fork(write)
    last, ended, looks = (0,) * 8, 0, 0
    while not ended:
        ended = os.waitpid(pid, os.WNOHANG)[0]
        rows = rows_of(shm)
        now = totals(rows)
        assert all(new >= old for new, old in zip(now, last, strict=True))
        for row in rows:
            assert row.client_id == pages.RETIRED or row.client_id.startswith("client-")
            assert row.client_id == pages.RETIRED or row.topic in {f"topic-{i}" for i in range(9)}
        last, looks = now, looks + 1
        if looks == 1:
            os.write(write_end, b"x")
    os.close(seen)
    os.close(write_end)
    assert last[0] == 100_000
    assert looks > 1


@pytest.mark.parametrize("seed", range(6))
def test_a_killed_process_takes_no_total_with_it_and_its_successor_goes_on(shm: SharedMemory, seed: int) -> None:
    chance = random.Random(seed)
    last = (0,) * 8

    def write() -> None:
        shm.enter(0)
        meter_probe.forget_indexes()
        churn(range(1000))

    for _ in range(6):
        pid = fork(write)
        seen = totals(rows_of(shm))[0]
        for _ in range(chance.randrange(1, 40)):  # looks: the time that they take is as good as any other
            now = totals(rows_of(shm))
            assert all(new >= old for new, old in zip(now, last, strict=True))
            last = now
        kill_child(pid)
        shm.process_died(0)  # it may have withdrawn entries: until then, nobody can read its page
        now = totals(list(pages.usage_rows(shm, 0)))
        assert all(new >= old for new, old in zip(now, last, strict=True))
        meter_probe.forget_indexes()
        meter_probe.tables()  # taken over
        assert totals(list(pages.usage_rows(shm, 0))) == now
        last = now
        assert now[0] >= seen
    usage(1, 1, PRODUCE)
    assert totals(list(pages.usage_rows(shm, 0)))[0] == last[0] + 1


STRANGER, POLITE, NEIGHBOUR = 7, 8, 9
"""Addresses of clients."""


def clients(shm: SharedMemory) -> set[str]:
    """The client ids with usage of their own, without the stranger's."""
    return {row.client_id for row in pages.usage_rows(shm, 0) if not row.client_id.startswith("client-")}


def as_client(owner: int, name: bytes) -> None:
    meter_probe.use_owner(owner)
    meter_probe.count_usage(PRINCIPAL, name, None, PRODUCE, (1, 0, 10, 20, 1, 0, 0, 0))


def flood(first: int, count: int) -> None:
    """A client of one address that uses so many client ids."""
    meter_probe.use_owner(STRANGER)
    for client in range(first, first + count):
        usage(client, None, PRODUCE)


@pytest.mark.parametrize("owner", [POLITE, STRANGER], ids=["another address", "the same address"])
def test_client_ids_that_an_address_invents_hide_no_later_client(shm: SharedMemory, owner: int) -> None:
    now_ms = 10 * HOUR_MS
    flood(0, 5000)
    meter_probe.use_clock(now_ms + 1_000)
    as_client(owner, b"payroll")
    assert "payroll" in clients(shm)
    for second in range(2, 12):  # the flood goes on, and the client as well
        meter_probe.use_clock(now_ms + 1000 * second)
        as_client(owner, b"payroll")
        flood(5000 * second, 5000)
        as_client(owner, b"payroll")
        assert "payroll" in clients(shm)
    assert totals(list(pages.usage_rows(shm, 0)))[2] == 10 * (5000 * 11 + 1 + 20), "the sum is complete"


@pytest.mark.parametrize("count", [600, 4500])
def test_clients_that_are_alive_behind_one_address_keep_their_entries_and_counts(shm: SharedMemory, count: int) -> None:
    """A gateway, whose clients are connected: each is used in each second."""
    now_ms = 10 * HOUR_MS
    seconds = 30
    for second in range(seconds):
        meter_probe.use_clock(now_ms + 1000 * second)
        for number in range(count):
            as_client(STRANGER, b"live-%d" % number)
        as_client(POLITE, b"new-%d" % second)
    rows = list(pages.usage_rows(shm, 0))
    own = {row.client_id: row.requests for row in rows if row.client_id.startswith("live-")}
    assert set(own.values()) == {seconds}, "no entry of a live client began again"
    assert len(own) == min(count, 4096 - 512)
    assert {row.client_id for row in rows} >= {f"new-{second}" for second in range(seconds)}
    assert sum(row.requests for row in rows) == seconds * (count + 1)
    folded = [row.requests for row in rows if row.client_id in (pages.OTHER, pages.RETIRED)]
    assert sum(folded) == seconds * (count - len(own))


def test_a_flood_behind_a_gateway_takes_no_entry_of_its_live_clients(shm: SharedMemory) -> None:
    now_ms = 10 * HOUR_MS
    for second in range(30):
        meter_probe.use_clock(now_ms + 1000 * second)
        for number in range(1000):
            as_client(STRANGER, b"live-%d" % number)
        flood(5000 * second, 5000)
    own = {row.client_id: row.requests for row in pages.usage_rows(shm, 0) if row.client_id.startswith("live-")}
    assert len(own) == 1000 and set(own.values()) == {30}


def test_clients_that_have_gone_make_room_after_ten_seconds(shm: SharedMemory) -> None:
    """At a full table, the search for them is once a second."""
    now_ms = 10 * HOUR_MS
    for second in range(10):
        meter_probe.use_clock(now_ms + 1000 * second)
        for number in range(4000):
            as_client(STRANGER, b"gone-%d" % number)
    for age_ms, known in ((9_900, False), (10_900, True)):
        meter_probe.use_clock(now_ms + 9000 + age_ms)
        as_client(STRANGER, b"later")
        assert ("later" in clients(shm)) is known


def test_an_address_that_invents_client_ids_loses_its_own_entries_and_none_of_others(shm: SharedMemory) -> None:
    now_ms = 10 * HOUR_MS
    for number in range(100):
        as_client(POLITE, b"polite-%d" % number)
    flood(0, 5000)
    for second in range(1, 6):
        meter_probe.use_clock(now_ms + 1000 * second)
        flood(5000 * second, 5000)
        as_client(NEIGHBOUR, b"neighbour-%d" % second)
    expected = {f"polite-{number}" for number in range(100)} | {f"neighbour-{second}" for second in range(1, 6)}
    assert clients(shm) >= expected


def test_addresses_with_about_as_many_clients_evict_none_of_each_other(shm: SharedMemory) -> None:
    for number in range(4095):
        as_client(1 + number % 64, b"a-%d" % number)
    meter_probe.use_clock(10 * HOUR_MS + 5_000)
    for number in range(40):
        as_client(100, b"b-%d" % number)
    found = clients(shm)
    assert sum(name.startswith("a-") for name in found) >= 4095 - 64
    assert "b-0" in found


def test_a_successor_knows_no_address_and_learns_those_of_clients_that_go_on(shm: SharedMemory) -> None:
    as_client(POLITE, b"payroll")
    flood(0, 5000)
    meter_probe.forget_indexes()
    meter_probe.use_clock(10 * HOUR_MS + 1_000)
    as_client(POLITE, b"payroll")
    meter_probe.use_clock(10 * HOUR_MS + 2_000)
    as_client(NEIGHBOUR, b"another")
    assert clients(shm) >= {"payroll", "another"}
