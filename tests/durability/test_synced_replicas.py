"""`flush.messages=1` in a cluster: a record counts in a replica, leader or follower, when it is on the device there."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.errors import ErrorCode
from odradek.testing import Broker
from tests.api.group_talk import GroupTalk
from tests.cluster import shown
from tests.durability.conftest import Syncs
from tests.durability.test_flush_messages import BATCH, nothing_came, send, told, until_appended
from tests.durability.test_group_durability import sent as send_only
from tests.durability.test_readers_wait import seen
from tests.waiting import readable, until
from tests.wire import Wire
from tests.zookeeper import ZookeeperServer

IDS = (1, 2)
SYNCED, THIRD, TIMED, QUICK, OFFSETS = "synced", "third", "timed", "quick", "__consumer_offsets"
NEVER = str(1 << 62)
CONFIG = {
    "num.network.threads": 1,
    "zookeeper.session.timeout.ms": 60_000,
    "controlled.shutdown.enable": "false",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": 2,
    "offsets.topic.replication.factor": 2,
    "offsets.topic.num.partitions": 1,
    "offsets.commit.timeout.ms": 90_000,
    "min.insync.replicas": 2,
    "log.flush.interval.messages": 1,
    "replica.lag.time.max.ms": 600_000,
    "log.retention.ms": -1,
}
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("synced-replicas")]


class Pair:
    """Two brokers, the first of which leads all partitions; both are in sync."""

    def __init__(self, brokers: dict[int, Broker], syncs: dict[int, Syncs]) -> None:
        self.brokers = brokers
        self.leader, self.follower = brokers[1], brokers[2]
        self.syncs = syncs

    def in_sync_of(self, topic: str) -> list[set[int]]:
        """The in-sync replicas of partition 0 that each broker shows."""
        return [shown.in_sync(broker.bootstrap_servers, topic).get(0, set()) for broker in self.brokers.values()]

    def in_sync(self, topic: str) -> bool:
        leaders = [shown.leaders(broker.bootstrap_servers, topic).get(0) for broker in self.brokers.values()]
        return leaders == [1, 1] and self.in_sync_of(topic) == [set(IDS), set(IDS)]

    def wire(self) -> Any:
        return Wire.to(self.leader)


@contextmanager
def running_pair(directory: Path, settings: dict[str, object] | None = None) -> Iterator[Pair]:
    """Two brokers with the topics of these tests, all of them in sync."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZookeeperServer())
        syncs, brokers = {}, {}
        for number in IDS:
            syncs[number] = Syncs(directory / f"syncs-{number}")
            own = {"broker.id": number, "zookeeper.connect": zookeeper.hosts}
            brokers[number] = stack.enter_context(
                Broker(
                    CONFIG | own | (settings or {}),
                    directory=directory / str(number),
                    environment=syncs[number].environment,
                )
            )
            stack.callback(syncs[number].close)
        made = Pair(brokers, syncs)
        admin = AdminClient({"bootstrap.servers": made.leader.bootstrap_servers, "log_level": 0})
        until(lambda: shown.brokers(made.leader.bootstrap_servers)[1] == set(IDS), "the brokers are registered")
        topics = [
            NewTopic(SYNCED, 1, replica_assignment=[[1, 2]]),
            NewTopic(OFFSETS, 1, replica_assignment=[[1, 2]], config={"cleanup.policy": "compact"}),
            NewTopic(QUICK, 1, replica_assignment=[[1, 2]], config={"flush.messages": NEVER}),
            NewTopic(THIRD, 1, replica_assignment=[[1, 2]], config={"flush.messages": "3"}),
            NewTopic(TIMED, 1, replica_assignment=[[1, 2]], config={"flush.messages": NEVER, "flush.ms": "1"}),
        ]
        for future in admin.create_topics(topics, request_timeout=60).values():
            future.result()
        until(lambda: all(made.in_sync(topic.topic) for topic in topics), "all replicas are in sync")
        yield made


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with running_pair(tmp_path_factory.mktemp("pair")) as made:
        yield made


@pytest.mark.parametrize("slow", IDS, ids=["leader", "follower"])
def test_a_record_is_acknowledged_and_read_when_it_is_on_both_devices(pair: Pair, slow: int) -> None:
    with pair.wire() as writer, pair.wire() as reader:
        error, before = told(writer, send(writer, SYNCED, acks=-1))
        assert error == 0
        until(lambda: seen(reader, before, SYNCED) == (before + 1, len(BATCH)), "the record is read")
        pair.syncs[slow].hold(f"/{SYNCED}-0/")
        sent = send(writer, SYNCED, acks=-1)
        until_appended(reader, before + 1, SYNCED)
        for _ in range(5):
            assert told(reader, send(reader, QUICK, acks=-1))[0] == ErrorCode.NONE  # by the same fetcher
        assert seen(reader, before + 1, SYNCED) == (before + 1, 0)
        assert nothing_came(writer)
        pair.syncs[slow].release()
        assert told(writer, sent) == (0, before + 1)
        assert seen(reader, before + 1, SYNCED) == (before + 2, len(BATCH))


@pytest.mark.parametrize("slow", IDS, ids=["leader", "follower"])
def test_only_the_append_that_reaches_flush_messages_waits_for_both_devices(pair: Pair, slow: int) -> None:
    with pair.wire() as writer, pair.wire() as reader:
        pair.syncs[slow].hold(f"/{THIRD}-0/")
        for _ in range(2):
            error, offset = told(writer, send(writer, THIRD, acks=-1))
            assert error == ErrorCode.NONE
            assert seen(reader, offset, THIRD) == (offset + 1, len(BATCH))
        sent = send(writer, THIRD, acks=-1)
        until_appended(reader, offset + 1, THIRD)
        for _ in range(5):
            assert told(reader, send(reader, QUICK, acks=-1))[0] == ErrorCode.NONE  # by the same fetcher
        assert seen(reader, offset + 1, THIRD) == (offset + 1, 0)
        assert nothing_came(writer)
        pair.syncs[slow].release()
        assert told(writer, sent) == (0, offset + 1)


@pytest.mark.parametrize("slow", IDS, ids=["leader", "follower"])
def test_flush_ms_syncs_each_replica_and_no_response_waits_for_it(pair: Pair, slow: int) -> None:
    with pair.wire() as writer:
        pair.syncs[slow].hold(f"/{TIMED}-0/")
        assert told(writer, send(writer, TIMED, acks=-1))[0] == ErrorCode.NONE
        pair.syncs[slow].release()  # waits for the sync to come


@pytest.mark.parametrize("slow", IDS, ids=["leader", "follower"])
def test_a_commit_is_acknowledged_when_it_is_on_both_devices(pair: Pair, slow: int) -> None:
    with GroupTalk(pair.leader.host, pair.leader.port) as talk, pair.wire() as reader:
        talk.until_coordinated("g")
        until(lambda: talk.commit("g", {(SYNCED, 0): 1}).topics[0].partitions[0].error_code == 0, "commits are served")
        before = reader.log_end(OFFSETS, 0)
        pair.syncs[slow].hold(f"/{OFFSETS}-0/")
        send_only(talk, "commit", "g", {(SYNCED, 0): 2})
        until(lambda: reader.log_end(OFFSETS, 0) > before, "the commit is in the log")
        assert told(reader, send(reader, QUICK, acks=-1))[0] == ErrorCode.NONE
        assert reader.latest(OFFSETS, 0) == before
        assert not readable(talk.socket)
        pair.syncs[slow].release()
        assert talk.receive().topics[0].partitions[0].error_code == ErrorCode.NONE


def test_a_follower_whose_device_hangs_leaves_the_in_sync_replicas(tmp_path: Path) -> None:
    with running_pair(tmp_path, {"replica.lag.time.max.ms": 2000}) as pair, pair.wire() as writer:
        follower = pair.syncs[2]
        follower.hold(f"/{SYNCED}-0/")
        sent = send(writer, SYNCED, acks=-1, timeout_ms=1000)
        assert told(writer, sent)[0] == ErrorCode.REQUEST_TIMED_OUT
        until(lambda: pair.in_sync_of(SYNCED) == [{1}, {1}], "the leader alone is in sync")
        assert told(writer, send(writer, SYNCED, acks=-1))[0] == ErrorCode.NOT_ENOUGH_REPLICAS
        assert told(writer, send(writer, QUICK, acks=-1))[0] == ErrorCode.NONE
        follower.release()
        until(lambda: pair.in_sync(SYNCED), "the follower is in sync again")
        assert told(writer, send(writer, SYNCED, acks=-1))[0] == ErrorCode.NONE
