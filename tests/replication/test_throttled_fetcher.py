"""A replica fetcher whose replication is throttled: what it does not request, for how long, and what it never leaves out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.shm.brokers as brokers
from odradek._ext.partition import roles
from odradek._ext.shm.replication_quota import QuotaSide, set_limit, set_windows, total_bytes
from odradek._ext.shm.slot import ThrottledSide
from odradek._ext.testing import quota_probe, replica_probe, slot_probe
from odradek.replication.fetcher import monotonic_ms
from tests.replication.fake_leader import FakeLeader, Led
from tests.replication.following import SETTINGS, Following, fill, sent
from tests.shm.one_broker import OneBroker
from tests.waiting import until

SIDE = QuotaSide.QUOTA_FOLLOWER
RATE = 100_000
OVERRUN = 5 * RATE


@pytest.fixture
def following(tmp_path: Path) -> Iterator[Following]:
    with OneBroker(tmp_path) as broker, FakeLeader() as leader:
        replica_probe.cluster([1, 2])
        brokers.set_broker_epoch(77)
        set_windows(11, 1)
        set_limit(SIDE, RATE)
        made = Following(broker, leader)
        yield made
        set_limit(SIDE, None)
        made.fetcher.stop()
        made.fetcher.join(30)
        assert made.fetcher.ended
        assert leader.complaints == []


def listed(following: Following, topic: str, *, member: bool = False) -> tuple[int, Led]:
    """A followed partition that is throttled; whether this broker is in sync when the leader epoch begins."""
    slot, led = following.create(topic)
    following.broker.table.configure(slot, {"throttled": ThrottledSide.THROTTLED_FOLLOWER})
    roles.become_follower(
        slot, slot_probe.incarnation_of(slot), leader_id=2, leader_epoch=1, partition_epoch=2, controller_epoch=1,
        replicas=[1, 2], in_sync=[1, 2] if member else [2],
    )  # fmt: skip
    return slot, led


def log_end(slot: int) -> int:
    return slot_facts.describe(slot).log_end_offset


def overrun(bytes_: int = OVERRUN) -> None:
    quota_probe.record(SIDE, bytes_, monotonic_ms())


def test_a_throttled_partition_waits_and_the_others_go_on(following: Following) -> None:
    slow, led = listed(following, "slow")
    free, free_led = following.create("free")
    fill(led, 3)
    fill(free_led, 3)
    overrun()
    following.start()
    following.until_equal(free, free_led)
    for _ in range(20):
        following.leader.append(free_led, sent(free_led.log_end))
        following.until_equal(free, free_led)
    assert log_end(slow) == 0
    assert total_bytes(SIDE) == OVERRUN
    quota_probe.clear(SIDE)
    following.until_equal(slow, led)
    assert total_bytes(SIDE) == sum(map(len, led.batches))


def test_a_fetcher_with_only_such_partitions_sends_nothing_until_the_rate_has_fallen(following: Following) -> None:
    slow, led = listed(following, "slow")
    fill(led, 3)
    overrun(1000 * RATE)
    following.start()
    until(lambda: following.fetcher._native.held == 1, "the partition is held")
    assert following.leader.fetches == []
    quota_probe.clear(SIDE)
    following.until_equal(slow, led)


def test_a_partition_is_held_in_the_middle_and_the_session_forgets_it(following: Following) -> None:
    slow, led = listed(following, "slow")
    free, free_led = following.create("free")
    led.high_watermark = 1000
    fill(led, 3)
    following.start()
    following.until_equal(slow, led)
    overrun()
    following.leader.append(free_led, sent(free_led.log_end))
    until(
        lambda: any(request.forgotten_topics_data for _, request in following.leader.fetches), "the session forgets it"
    )
    following.leader.append(led, sent(led.log_end))
    following.leader.append(free_led, sent(free_led.log_end))
    following.until_equal(free, free_led)
    assert log_end(slow) == led.log_end - 10
    quota_probe.clear(SIDE)
    following.until_equal(slow, led)


@pytest.mark.parametrize("change", ["no limit", "a larger limit", "not listed"])
def test_a_change_of_the_settings_releases_it(following: Following, change: str) -> None:
    slow, led = listed(following, "slow")
    fill(led, 3)
    set_limit(SIDE, 1)
    overrun()
    following.start()
    until(lambda: following.fetcher._native.held == 1, "the partition is held")
    if change == "no limit":
        set_limit(SIDE, None)
    elif change == "a larger limit":
        set_limit(SIDE, 100 * OVERRUN)
    else:
        following.broker.table.configure(slow, {"throttled": 0})
    following.until_equal(slow, led)


@pytest.mark.parametrize("member", [True, False])
def test_a_replica_that_is_in_sync_is_not_throttled(following: Following, member: bool) -> None:
    slow, led = listed(following, "slow", member=member)
    if not member:  # it becomes in sync: it has all committed records
        fill(led, 3)
        following.start()
        following.until_equal(slow, led)
    overrun()
    if member:
        following.start()
    counted = total_bytes(SIDE)
    for _ in range(20):
        led.high_watermark = led.log_end
        following.leader.append(led, sent(led.log_end))
        following.until_equal(slow, led)
    assert total_bytes(SIDE) == counted


def test_a_request_names_the_bytes_that_there_is_room_for(following: Following) -> None:
    for number in range(4):
        _, led = listed(following, f"slow-{number}")
        led.high_watermark = 1000
        fill(led, 3)
    free, free_led = following.create("free")
    fill(free_led, 1)
    following.start()
    following.until_equal(free, free_led)
    _, request = following.leader.fetches[0]
    limits = sorted(topic.partitions[0].partition_max_bytes for topic in request.topics)
    assert limits == [RATE // 4] * 4 + [SETTINGS.max_bytes]
