"""The membership of one Odradek broker in its cluster: its session and registration through kills, restarts and losses."""

import json
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError

from odradek.metadata import znodes
from odradek.metadata.store import Stat, delete_tree
from odradek.metadata.zookeeper import ZookeeperOptions, ZookeeperStore
from odradek.processes.coordinator.cluster.broker_session import FILE, SessionFile
from odradek.testing.broker_process import Broker, BrokerError
from tests.ports import reserved
from tests.waiting import until
from tests.zookeeper import ZookeeperServer, chroot, end_of_session, shared_server

ID = 1
LONG_MS = 100_000
"""A session timeout that no test reaches."""
SHORT_MS = 2000


@contextmanager
def tree(servers: str) -> Iterator[ZookeeperStore]:
    store = ZookeeperStore(ZookeeperOptions(servers, session_timeout_s=60))
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def servers() -> str:
    return chroot()


@pytest.fixture
def store(servers: str) -> Iterator[ZookeeperStore]:
    with tree(servers) as store:
        yield store


def broker(servers: str, directory: Path, timeout_ms: int = LONG_MS, **settings: object) -> Broker:
    config = {
        "broker.id": ID,
        "zookeeper.connect": servers,
        "zookeeper.session.timeout.ms": timeout_ms,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "num.network.threads": 1,
        "controlled.shutdown.enable": "false",
    }
    return Broker(config | {name.replace("_", "."): value for name, value in settings.items()}, directory=directory)


def registration(store: ZookeeperStore, broker_id: int = ID) -> Stat | None:
    return store.exists(znodes.broker_path(broker_id))


def create_topic(ours: Broker, name: str) -> None:
    """Create a topic, and wait until it has its leader. Repeated while the broker is not the controller again."""

    def created() -> bool:
        try:
            with closing(KafkaAdminClient(bootstrap_servers=ours.bootstrap_servers)) as admin:
                if name not in admin.list_topics():
                    admin.create_topics([NewTopic(name, 1, 1)], timeout_ms=5000)
                (topic,) = admin.describe_topics([name])
                return topic["partitions"][0]["leader_id"] == ID
        except (KafkaError, IndexError, RuntimeError):  # the last: no broker is the controller
            return False

    until(created, lambda: f"topic {name} is created: {ours.log_tail()}")


def produce_and_consume(ours: Broker, topic: str, values: list[str]) -> None:
    with closing(
        KafkaProducer(bootstrap_servers=ours.bootstrap_servers, acks="all", enable_idempotence=False)
    ) as producer:
        for sent in [producer.send(topic, value.encode()) for value in values]:
            sent.get(60)
    with closing(KafkaConsumer(bootstrap_servers=ours.bootstrap_servers, auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        read: list[str] = []

        def poll() -> bool:
            for batch in consumer.poll(timeout_ms=500).values():
                read.extend(record.value.decode() for record in batch)
            return set(values) <= set(read)

        until(poll, lambda: f"{values} are read: {read}")


def kill_child(ours: Broker, kind: str) -> None:
    """Kill a process of the broker, and wait for its successor."""
    (pid,) = [process["pid"] for process in ours.processes() if process["kind"] == kind]
    os.kill(pid, signal.SIGKILL)
    until(
        lambda: [
            p for p in ours.processes() if p["kind"] == kind and p["pid"] not in (0, pid) and p["state"] == "serving"
        ],
        lambda: f"a successor of {kind} serves: {ours.processes()}",
    )


def expire(servers: str, owner: int, ours: Broker) -> None:
    """End the broker's session, as ZooKeeper does after the session timeout."""
    found = SessionFile(ours.data_dir).read()
    assert found is not None and found.id == owner
    end_of_session(servers, found)


def test_a_restarted_coordinator_goes_on_in_the_session(servers: str, store: ZookeeperStore, tmp_path: Path) -> None:
    with broker(servers, tmp_path) as ours:
        create_topic(ours, "before")
        before, controller = registration(store), store.exists(znodes.CONTROLLER)
        assert before is not None and controller is not None and controller.owner == before.owner
        kill_child(ours, "coordinator")
        create_topic(ours, "after")
        after = registration(store)
        assert after is not None and (after.created, after.owner) == (before.created, before.owner)
        assert "resumed session" in ours.log_file.read_text()
        produce_and_consume(ours, "before", ["a"])


def test_a_killed_broker_is_back_with_a_new_epoch_before_its_session_expires(
    servers: str, store: ZookeeperStore, tmp_path: Path
) -> None:
    with broker(servers, tmp_path) as ours:
        create_topic(ours, "topic")
        produce_and_consume(ours, "topic", ["a"])
        before = registration(store)
        for _ in range(2):
            ours.kill_group()
            assert registration(store) == before, "the session of the killed broker is still alive"
            ours.start()
            after = registration(store)
            assert before is not None and after is not None
            assert after.created > before.created and after.owner != before.owner
            produce_and_consume(ours, "topic", ["b"])
            before = after


def test_a_broker_whose_session_file_is_of_another_place_waits_for_the_end_of_that_session(
    servers: str, store: ZookeeperStore, tmp_path: Path
) -> None:
    with broker(servers, tmp_path, SHORT_MS) as ours:
        create_topic(ours, "topic")
        before = registration(store)
        ours.kill_group()
        file = ours.data_dir / FILE
        noted = json.loads(file.read_text())
        noted["place"] = ["another machine", 0, 0]
        file.write_text(json.dumps(noted))
        ours.start()
        after = registration(store)
        assert before is not None and after is not None
        assert after.created > before.created and after.owner != before.owner
        produce_and_consume(ours, "topic", ["a"])


def test_a_memory_fault_counts_as_a_restart(servers: str, store: ZookeeperStore, tmp_path: Path) -> None:
    with broker(servers, tmp_path) as ours:
        create_topic(ours, "topic")
        before = registration(store)
        (pid,) = [process["pid"] for process in ours.processes() if process["kind"] == "worker"]
        os.kill(pid, signal.SIGSEGV)

        def registered_again() -> bool:
            now = registration(store)
            return before is not None and now is not None and now.created > before.created

        until(registered_again, "the broker is registered with a new epoch")
        produce_and_consume(ours, "topic", ["a"])


def test_a_stopped_broker_leaves_nothing_and_only_its_user_may_read_the_session(
    servers: str, store: ZookeeperStore, tmp_path: Path
) -> None:
    with broker(servers, tmp_path) as ours:
        file = ours.data_dir / FILE
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        ours.stop()
        assert registration(store) is None and store.exists(znodes.CONTROLLER) is None
        assert not file.exists()


def refused(ours: Broker) -> str:
    """Start a broker that must refuse to start; the line that says why."""
    with pytest.raises(BrokerError, match="ended with exit code 1"):
        ours.start()
    lines = [line for line in ours.log_file.read_text().splitlines() if "the coordinator cannot start" in line]
    assert len(lines) == 1, lines
    return lines[0]


def test_an_id_or_address_of_a_live_broker_is_refused(servers: str, store: ZookeeperStore, tmp_path: Path) -> None:
    with broker(servers, tmp_path / "one") as ours:
        before = registration(store)
        with ExitStack() as stack:
            second = broker(servers, tmp_path / "two", SHORT_MS)
            stack.callback(second.__exit__, None, None, None)
            assert "another broker is registered with broker.id=1" in refused(second)
        address = f"PLAINTEXT://{ours.bootstrap_servers}"
        with ExitStack() as stack:
            third = broker(servers, tmp_path / "three", SHORT_MS, **{"broker.id": 3, "advertised.listeners": address})
            stack.callback(third.__exit__, None, None, None)
            assert f"broker 1 is registered with the address {ours.bootstrap_servers}" in refused(third)
        assert registration(store) == before and registration(store, 3) is None


@pytest.mark.parametrize("other", ["empty", "foreign"])
def test_used_directories_are_not_taken_to_another_tree(servers: str, tmp_path: Path, other: str) -> None:
    elsewhere = chroot()
    with broker(servers, tmp_path / "ours") as ours:
        create_topic(ours, "topic")
        produce_and_consume(ours, "topic", ["a"])
        ours.stop()
        if other == "foreign":
            with broker(elsewhere, tmp_path / "theirs", **{"broker.id": 7}) as theirs:
                theirs.stop()
        ours.config["zookeeper.connect"] = elsewhere
        reason = {"empty": "leads to an empty tree", "foreign": "leads to cluster"}[other]
        assert reason in refused(ours)
        with tree(elsewhere) as foreign:
            assert (foreign.exists(znodes.CLUSTER_ID) is None) == (other == "empty")
            assert registration(foreign) is None
            assert other == "foreign" or [name for name in foreign.children("/") if name != "zookeeper"] == []
        ours.config["zookeeper.connect"] = servers
        ours.start()
        produce_and_consume(ours, "topic", ["b"])


def test_topics_that_are_absent_from_the_tree_are_not_deleted(
    servers: str, store: ZookeeperStore, tmp_path: Path
) -> None:
    with broker(servers, tmp_path) as ours:
        create_topic(ours, "topic")
        produce_and_consume(ours, "topic", ["a"])
        content = (ours.data_dir / "topic-0" / f"{0:020}.log").read_bytes()
        ours.stop()
        delete_tree(store, znodes.topic_path("topic"))
        ours.start()
        create_topic(ours, "other")
        assert (ours.data_dir / "topic-0" / f"{0:020}.log").read_bytes() == content
        assert "1 partitions of topic topic have a log here, but are not assigned" in ours.log_file.read_text()


def test_an_expired_session_leads_to_a_new_epoch(servers: str, store: ZookeeperStore, tmp_path: Path) -> None:
    with broker(servers, tmp_path) as ours:
        create_topic(ours, "topic")
        for number in range(3):
            before = registration(store)
            assert before is not None
            expire(servers, before.owner, ours)

            def registered_again(before: Stat = before) -> bool:
                now = registration(store)
                return now is not None and now.created > before.created

            until(registered_again, "the broker is registered with a new epoch")
            produce_and_consume(ours, "topic", [f"{number}"])
            create_topic(ours, f"topic-{number}")
        ours.kill_group()
        ours.start()
        produce_and_consume(ours, "topic", ["after the restart"])


# -- ZooKeeper is away ------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[ZookeeperServer]:
    with ZookeeperServer() as server:
        yield server


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_produce_and_fetch_go_on_without_zookeeper(server: ZookeeperServer, tmp_path: Path, fault: str) -> None:
    with broker(server.hosts, tmp_path, timeout_ms=3000) as ours:
        create_topic(ours, "topic")
        getattr(server, fault)()
        produce_and_consume(ours, "topic", ["without"])
        until(lambda: "no connection to ZooKeeper for 3 s" in ours.log_file.read_text(), "the broker notices it")
        produce_and_consume(ours, "topic", ["still without"])
        (server.start if fault == "kill" else server.resume)()
        create_topic(ours, "after")
        produce_and_consume(ours, "after", ["with"])
        produce_and_consume(ours, "topic", ["with"])
        assert "connected to ZooKeeper again" in ours.log_file.read_text()


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_broker_stops_without_zookeeper_and_its_next_start_ends_the_session(
    server: ZookeeperServer, tmp_path: Path, fault: str
) -> None:
    with broker(server.hosts, tmp_path) as ours:
        create_topic(ours, "topic")
        getattr(server, fault)()
        ours.stop()
        assert "the next start ends it" in ours.log_file.read_text()
        (server.start if fault == "kill" else server.resume)()
        ours.start()
        produce_and_consume(ours, "topic", ["again"])


def test_a_coordinator_that_restarts_without_zookeeper_does_not_disturb_clients(
    server: ZookeeperServer, tmp_path: Path
) -> None:
    with broker(server.hosts, tmp_path) as ours:
        create_topic(ours, "topic")
        server.kill()
        kill_child(ours, "coordinator")
        produce_and_consume(ours, "topic", ["without"])
        said = "waiting for ZooKeeper at", "has not reached ZooKeeper at"
        until(lambda: all(text in ours.log_file.read_text() for text in said), "the log says what is waited for")
        server.start()
        create_topic(ours, "after")
        with tree(server.hosts) as store:
            assert registration(store) is not None


def test_a_broker_waits_for_zookeeper_at_its_start_and_can_be_stopped(tmp_path: Path) -> None:
    with reserved() as port:
        ours = broker(f"127.0.0.1:{port}", tmp_path, **{"zookeeper.connection.timeout.ms": 500})
        ours.timeout = 5
        with ExitStack() as stack:
            stack.callback(ours.__exit__, None, None, None)
            with pytest.raises(BrokerError, match="was not ready within 5 s"):
                ours.start()
            waits = f"waiting for ZooKeeper at 127.0.0.1:{port}: ZooKeeper at 127.0.0.1:{port} did not accept"
            assert waits in ours.log_file.read_text()
            ours.timeout = 90
            ours.config["zookeeper.connect"] = f"{shared_server().hosts}/{tmp_path.name}-{os.getpid()}"
            ours.start()
            create_topic(ours, "topic")


def test_brokers_without_an_id_get_one_and_keep_it(servers: str, store: ZookeeperStore, tmp_path: Path) -> None:
    for _ in range(2):
        for number in (1, 2):
            with broker(servers, tmp_path / str(number), broker_id=-1) as one:
                node_id = 1000 + number
                path = znodes.broker_path(node_id)
                until(lambda path=path: store.exists(path) is not None, "it is registered")
                assert f"node.id={node_id}\n" in (one.data_dir / "meta.properties").read_text()
                assert one.status()["node_id"] == node_id
    assert store.get(znodes.BROKER_SEQUENCE)[1].version == 2
    with broker(servers, tmp_path / "3", broker_id=-1, reserved_broker_max_id=4) as one:
        assert one.status()["node_id"] == 4 + 3


def test_a_broker_gets_no_id_from_a_zookeeper_that_is_away(tmp_path: Path) -> None:
    with reserved() as port:
        settings = {"broker_id": -1, "zookeeper_connection_timeout_ms": 100}
        refused = broker(f"127.0.0.1:{port}", tmp_path, **settings)
        with pytest.raises(
            BrokerError,
            match=r"broker.id is not set, and ZooKeeper did not generate one: ZooKeeper at 127.* did not accept",
        ):
            refused.start()
