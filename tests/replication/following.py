"""A broker with followers, a leader that tests control, and one replica fetcher between them."""

import uuid
from collections.abc import Callable
from typing import Any

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition.flusher import SharedFlusher
from odradek._ext.replication.followed_slots import FollowedSlots
from odradek.replication.fetcher import Fetcher, FetcherSettings
from odradek.replication.fetchers import FIRST_LANE
from tests.replication.fake_leader import FakeLeader, Led
from tests.shm.one_broker import OneBroker, batch
from tests.waiting import until

LEADER = 2
SETTINGS = FetcherSettings(
    broker_id=1,
    max_wait_ms=50,
    min_bytes=1,
    response_max_bytes=1 << 20,
    max_bytes=1 << 19,
    backoff_ms=20,
    socket_timeout_ms=20_000,
    receive_buffer_bytes=65536,
)


def sent(offset: int, count: int = 10, epoch: int = 1, **fields: Any) -> bytes:
    return batch(count, base_offset=offset, partition_leader_epoch=epoch, **fields)


class Following:
    """A broker with followers, a leader, and one fetcher between them."""

    def __init__(self, broker: OneBroker, leader: FakeLeader) -> None:
        self.broker = broker
        self.leader = leader
        self.slots = FollowedSlots()
        self.fetcher: Fetcher
        self.port: int | None = leader.port
        self.security: Any = None
        self.flusher: SharedFlusher | None = None

    def create(self, topic: str = "t", partition: int = 0, *, epoch: int = 1, **settings: int) -> tuple[int, Led]:
        """A followed partition, and the leader's log of it."""
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, topic).bytes
        slot = self.broker.create(topic, partition, topic_id=topic_id, alone=False, **settings)
        self.broker.obey(slot, epoch)
        self.broker.table.announce([slot])
        return slot, self.leader.lead(topic, topic_id, partition, leader_epoch=epoch)

    def start(self, **changes: Any) -> None:
        address: Callable[[], tuple[str, int] | None] = lambda: ("127.0.0.1", self.port) if self.port else None  # noqa: E731
        settings = FetcherSettings(**(vars(SETTINGS) | changes))
        self.fetcher = Fetcher(
            LEADER, 0, FIRST_LANE, settings, self.broker.shm, [self.broker.path], address, self.security, self.flusher
        )
        self.fetcher.start()
        self.look()

    def look(self) -> None:
        """Tell the fetcher what has changed in the slots, as the replicator does."""
        for slot, followed in self.slots.look():
            if followed is None:
                self.fetcher.remove(slot)
            else:
                self.fetcher.add(slot, followed)

    def obey(self, slot: int, led: Led, epoch: int) -> None:
        """Begin a new leader epoch."""
        with self.leader.changed:
            led.leader_epoch = epoch
        self.broker.obey(slot, epoch)
        self.broker.table.announce([slot])
        self.look()

    def until_equal(self, slot: int, led: Led) -> None:
        until(
            lambda: (
                slot_facts.describe(slot).log_end_offset == led.log_end
                and self.broker.log_bytes(slot) == b"".join(led.batches)
            ),
            lambda: f"the logs are equal: ours {slot_facts.describe(slot).log_end_offset}, leader {led.log_end}",
        )


def fill(led: Led, count: int, epoch: int = 1) -> None:
    for _ in range(count):
        led.batches.append(sent(led.log_end, epoch=epoch))
