"""Failures of a cluster of Odradek brokers under load, one after the other, and the checks after them.

``python -m tests.cluster.failures --minutes 30 --seed 7`` runs failures at random; the tests run a few of them.
"""

import argparse
import errno
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.clients.wire import Connection
from odradek.metadata import znodes
from odradek.metadata.store import Session
from odradek.metadata.znodes import NO_LEADER
from odradek.metadata.zookeeper import ZookeeperOptions, ZookeeperStore
from odradek.processes.coordinator.cluster.broker_session import FILE as SESSION_FILE
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import init_producer_id
from odradek.testing.broker_process import Broker
from tests.cluster.peer_processes import Peers
from tests.faults.checker import faults, read_partitions
from tests.faults.failing_calls import FailingCalls, build
from tests.faults.load import Load
from tests.faults.lossy_disk import LossyDisk, cut_power_together
from tests.faults.lossy_disk import missing as no_power_cuts
from tests.ports import reserved
from tests.relay import Relay
from tests.waiting import until
from tests.zookeeper import end_of_session

IDS = (1, 2, 3)
TOPIC = "load"
PARTITIONS = 3
SESSION_TIMEOUT_MS = 3000
LAG_MS = 3000
DISK_MEBIBYTES = 512
PATIENCE_S = 10.0
"""The time in seconds without progress after which a test looks whether progress is possible."""
SETTINGS: dict[str, object] = {
    "metadata.store": "zookeeper",
    "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
    "replica.lag.time.max.ms": LAG_MS,
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "num.network.threads": 1,
    "auto.create.topics.enable": "false",
}


class Links(NamedTuple):
    """The connections of a broker that can be cut: from other brokers to it, and from it to ZooKeeper."""

    from_brokers: Relay
    to_zookeeper: Relay


class Progressing(Protocol):
    """What goes on through all failures."""

    def progress(self, records: int, timeout_s: float = 90.0) -> float:
        """Wait until each producer has acknowledgements of so many more records. Raises TimeoutError."""

    def describe(self) -> str:
        """How far the producers are."""


class FailingCluster:
    """Three brokers with a topic of three replicas, and a load that continues through all failures.

    ``disks``: by broker, makes calls fail that change files of its second log directory.
    ``power``: by broker, the file system with its log directories; empty where file systems cannot be made.
    ``synced``: whether a record is on the devices of the in-sync replicas before it is acknowledged.
    """

    def __init__(
        self,
        peers: Peers,
        brokers: dict[int, Broker],
        links: dict[int, Links],
        disks: dict[int, FailingCalls],
        power: dict[int, LossyDisk],
        load: Progressing,
        synced: bool = False,
    ) -> None:
        self.peers = peers
        self.brokers = brokers
        self.links = links
        self.disks = disks
        self.power = power
        self.lost_bytes = 0  # of logs, by losses of power
        self.load = load
        self.synced = synced

    @property
    def servers(self) -> str:
        """The addresses of all brokers that run."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values() if broker.running)

    def state(self) -> dict[int, tuple[int, frozenset[int]]]:
        """(leader, in-sync replicas) of each partition; empty while no broker answers, or not all brokers are registered."""
        try:
            admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
            found = admin.list_topics(TOPIC, timeout=5)
        except KafkaException:
            return {}
        partitions = found.topics[TOPIC].partitions if len(found.brokers) == len(self.servers.split(",")) else {}
        return {number: (row.leader, frozenset(row.isrs)) for number, row in partitions.items()}

    def go_on_without(self, broker_id: int) -> None:
        """Wait until the producers go on without a broker that does not run.

        Returns also if no other broker may lead a partition: on a loaded machine the sessions of brokers that run end, too, and
        the broker may have been the last in-sync replica just then.
        """

        def alone() -> bool:
            try:
                found = AdminClient({"bootstrap.servers": self.servers, "log_level": 0}).list_topics(TOPIC, timeout=5)
            except KafkaException:
                return False
            rows = found.topics[TOPIC].partitions.values()
            return any(row.leader == NO_LEADER and set(row.isrs) <= {broker_id} for row in rows)

        def went_on() -> bool:
            try:
                self.load.progress(20, PATIENCE_S)
            except TimeoutError:
                return alone()
            return True

        until(went_on, lambda: f"the producers go on without broker {broker_id}: {self.state()}")

    def healed(self) -> bool:
        """Whether all replicas are in sync, as far as the brokers know."""
        state = self.state()
        return len(state) == PARTITIONS and all(isr == set(IDS) for _, isr in state.values())

    def wait_until_healed(self) -> None:
        """Wait until all replicas are in sync."""
        until(self.healed, lambda: f"all replicas are in sync: {self.state()}")

    def last_producer_id(self) -> int:
        """The end of the block of producer ids that was allocated last; -1 if none was."""
        with closing(ZookeeperStore(ZookeeperOptions(self.peers.connect))) as store:
            block = znodes.decode_producer_id_block(store.get(znodes.PRODUCER_ID_BLOCK)[0])
        return -1 if block is None else block.last

    def allocate_producer_ids(self) -> None:
        """Let each broker allocate a producer id; one that has started since its last one allocates a new block."""
        for broker in self.brokers.values():
            host, port = broker.bootstrap_servers.rsplit(":", 1)

            def allocated(host: str = host, port: str = port) -> bool:
                with closing(Connection(host, int(port), PATIENCE_S)) as connection:
                    answer = connection.ask(init_producer_id.SCHEMA, init_producer_id.Request(transactional_id=None))
                return bool(answer.error_code == ErrorCode.NONE)

            until(allocated, "the broker allocates a producer id")

    def leader(self, partition: int = 0) -> int:
        """The leader of a partition; waits until there is one that runs."""
        leader = NO_LEADER

        def known() -> bool:
            nonlocal leader
            leader = self.state().get(partition, (NO_LEADER, ()))[0]
            return leader in self.brokers

        until(known, "the partition has a leader")
        return leader

    def controller(self) -> int:
        """The controller's broker id."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        return int(admin.list_topics(timeout=10).controller_id)

    def process_of(self, broker_id: int, kind: str) -> int:
        """The process id of a child process of a broker."""
        (process,) = (row for row in self.brokers[broker_id].processes() if row["kind"] == kind)
        return int(process["pid"])


# -- failures ----------------------------------------------------------------------------------------------------------

Failure = Callable[[FailingCluster, random.Random], None]


def kill_leader(cluster: FailingCluster, _: random.Random) -> None:
    """All processes of a leader are killed, and start when another broker has taken over."""
    leader = cluster.leader()
    cluster.brokers[leader].kill_group()
    cluster.go_on_without(leader)
    cluster.brokers[leader].start()


def kill_and_start_at_once(cluster: FailingCluster, rng: random.Random) -> None:
    """All processes of a broker are killed, and start while its former session still exists."""
    broker = cluster.brokers[rng.choice(IDS)]
    broker.kill_group()
    broker.start()
    cluster.load.progress(20)


def kill_controller(cluster: FailingCluster, _: random.Random) -> None:
    """All processes of the controller are killed."""
    controller = cluster.controller()
    cluster.brokers[controller].kill_group()
    cluster.go_on_without(controller)
    cluster.brokers[controller].start()


def stop_in_order(cluster: FailingCluster, rng: random.Random) -> None:
    """A broker stops in order, and starts again."""
    broker_id = rng.choice(IDS)
    cluster.brokers[broker_id].stop()
    cluster.go_on_without(broker_id)
    cluster.brokers[broker_id].start()


def kill_process(cluster: FailingCluster, rng: random.Random) -> None:
    """One child process of a broker is killed."""
    os.kill(
        cluster.process_of(rng.choice(IDS), rng.choice(["coordinator", "replicator", "worker", "cleaner"])),
        signal.SIGKILL,
    )
    cluster.load.progress(20)


@contextmanager
def stopped_group(broker: Broker) -> Iterator[None]:
    """All processes of a broker receive no CPU."""
    processes = broker.process_ids()
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in reversed(processes):
            os.kill(process, signal.SIGCONT)


def pause_leader(cluster: FailingCluster, _: random.Random) -> None:
    """A leader stands still until another broker leads, and then continues as a deposed leader."""
    leader = cluster.leader()
    with stopped_group(cluster.brokers[leader]):
        time.sleep(2 * SESSION_TIMEOUT_MS / 1000)  # the fault itself is a pause
    cluster.load.progress(20)


def pause_zookeeper(cluster: FailingCluster, rng: random.Random) -> None:
    """ZooKeeper stands still, shorter or longer than the sessions."""
    cluster.peers.zookeeper.send_signal(signal.SIGSTOP)
    time.sleep(rng.choice([0.5, 2]) * SESSION_TIMEOUT_MS / 1000)  # the fault itself is a pause
    cluster.peers.zookeeper.send_signal(signal.SIGCONT)
    cluster.load.progress(20)


def restart_zookeeper(cluster: FailingCluster, _: random.Random) -> None:
    """ZooKeeper is killed, and starts with its data. Sessions continue: the server counts their timeouts again."""
    cluster.peers.zookeeper.kill()
    cluster.load.progress(20)
    cluster.peers.start_zookeeper()
    cluster.load.progress(20)


def restore_zookeeper(cluster: FailingCluster, rng: random.Random) -> None:
    """ZooKeeper is replaced by a copy that is older than the last elections. All replicas are in sync at that moment, as
    docs/operate/cluster.md asks for: otherwise the copy may name in-sync replicas that do not have all records."""
    peers = cluster.peers
    data, copy = peers.zookeeper_data, peers.zookeeper_data.with_name("copy")
    peers.zookeeper.kill()
    shutil.copytree(data, copy)
    peers.start_zookeeper()
    cluster.load.progress(20)
    kill_leader(cluster, rng)
    kill_controller(cluster, rng)
    cluster.wait_until_healed()
    cluster.allocate_producer_ids()
    last = cluster.last_producer_id()  # the copy does not know this block
    peers.zookeeper.kill()
    while not cluster.healed():  # a replica left the set in the last moment
        peers.start_zookeeper()
        cluster.wait_until_healed()
        peers.zookeeper.kill()
    shutil.rmtree(data)
    copy.rename(data)
    peers.start_zookeeper()
    until(
        lambda: cluster.last_producer_id() > last,
        lambda: (
            f"a broker sees that ZooKeeper has forgotten producer ids: {cluster.last_producer_id()} instead of {last}"
        ),
    )
    cluster.load.progress(20)


def end_session(cluster: FailingCluster, broker_id: int) -> None:
    """End the session of a broker, as ZooKeeper does if it does not hear from the broker for the session timeout."""
    noted = json.loads((cluster.brokers[broker_id].data_dir / SESSION_FILE).read_text())
    session = Session(noted["id"], bytes.fromhex(noted["password"]))

    end_of_session(cluster.peers.connect, session)
    with closing(ZookeeperStore(ZookeeperOptions(cluster.peers.connect))) as store:

        def registered_again() -> bool:
            registration = store.exists(znodes.broker_path(broker_id))
            return registration is not None and registration.owner != session.id

        until(registered_again, f"broker {broker_id} is registered again")


def fail_log_dir(cluster: FailingCluster, rng: random.Random) -> None:
    """A log directory of a broker fails, and works again when the broker has been started again."""
    broker_id = rng.choice(IDS)
    disk, broker = cluster.disks[broker_id], cluster.brokers[broker_id]
    disk.arm(1, errno.EIO)
    until(lambda: disk.failed > 0, f"broker {broker_id} writes to its second log directory")
    cluster.load.progress(20)
    if rng.random() < 0.5:
        broker.stop()
    else:
        broker.kill_group()
    broker.start()
    cluster.load.progress(20)


def lose_power(cluster: FailingCluster, rng: random.Random) -> None:
    """The machine of a broker, often of a leader, loses its power: what was not synced is gone. It starts at once, or when
    other brokers lead."""
    broker_id = rng.choice([cluster.leader(), *IDS])
    disk, broker = cluster.power[broker_id], cluster.brokers[broker_id]
    before = sum(map(len, logs(broker)))
    disk.cut_power()
    broker.kill_group()
    if rng.random() < 0.5:
        cluster.go_on_without(broker_id)
    disk.restore_power()
    cluster.lost_bytes += max(before - sum(map(len, logs(broker))), 0)
    broker.start()
    cluster.load.progress(20)


def lose_power_of_all(cluster: FailingCluster, rng: random.Random) -> None:
    """The machines of all brokers lose their power at the same moment, and start in any order. Only where records are synced:
    nothing else keeps them."""
    before = {broker_id: sum(map(len, logs(broker))) for broker_id, broker in cluster.brokers.items()}
    cut_power_together(cluster.brokers.values(), cluster.power.values())
    for broker_id, disk in cluster.power.items():
        disk.restore_power()
        cluster.lost_bytes += max(before[broker_id] - sum(map(len, logs(cluster.brokers[broker_id]))), 0)
    for broker_id in rng.sample(IDS, len(IDS)):
        cluster.brokers[broker_id].start()
    cluster.load.progress(20)


@contextmanager
def lossy(relays: Iterable[Relay], rng: random.Random) -> Iterator[None]:
    """Requests, responses or both are lost: all of them, and neither side gets an error before the end."""
    for relay in relays:
        relay.requests, relay.responses = rng.choice([(False, True), (True, False), (False, False)])
    try:
        yield
    finally:
        for relay in relays:
            relay.heal_and_cut()


def lose_replication(cluster: FailingCluster, rng: random.Random) -> None:
    """The other brokers do not reach a broker, which reaches them: it leads with followers that fetch nothing."""
    with lossy([cluster.links[rng.choice(IDS)].from_brokers], rng):
        time.sleep(2 * LAG_MS / 1000)  # the fault itself is a pause
    cluster.load.progress(20)


def lose_all_replication(cluster: FailingCluster, rng: random.Random) -> None:
    """No broker reaches another one; all reach ZooKeeper."""
    with lossy([links.from_brokers for links in cluster.links.values()], rng):
        time.sleep(2 * LAG_MS / 1000)  # the fault itself is a pause
    cluster.load.progress(20)


def lose_zookeeper(cluster: FailingCluster, rng: random.Random) -> None:
    """A broker does not reach ZooKeeper until its session has ended, and goes on as a leader that was deposed."""
    with lossy([cluster.links[rng.choice(IDS)].to_zookeeper], rng):
        time.sleep(2 * SESSION_TIMEOUT_MS / 1000)  # the fault itself is a pause
    cluster.load.progress(20)


def lose_broker(cluster: FailingCluster, rng: random.Random) -> None:
    """Neither ZooKeeper nor the other brokers reach a leader; clients do."""
    with lossy(cluster.links[cluster.leader()], rng):
        time.sleep(2 * SESSION_TIMEOUT_MS / 1000)  # the fault itself is a pause
    cluster.load.progress(20)


def cut_connections(cluster: FailingCluster, rng: random.Random) -> None:
    """All connections between brokers, and to ZooKeeper, are cut again and again."""
    for _ in range(20):
        for relay in rng.choice(list(cluster.links.values())):
            relay.cut()
        cluster.load.progress(1)
    cluster.load.progress(20)


def expire_leader(cluster: FailingCluster, _: random.Random) -> None:
    """The session of a leader ends, while the broker runs."""
    end_session(cluster, cluster.leader())
    cluster.load.progress(20)


def expire_controller(cluster: FailingCluster, _: random.Random) -> None:
    """The session of the controller ends, while the broker runs."""
    end_session(cluster, cluster.controller())
    cluster.load.progress(20)


def expire_all(cluster: FailingCluster, _: random.Random) -> None:
    """The sessions of all brokers end at the same time."""
    for broker_id in IDS:
        end_session(cluster, broker_id)
    cluster.load.progress(20)


def kill_two(cluster: FailingCluster, rng: random.Random) -> None:
    """Two brokers are killed; nothing is acknowledged until one of them is back."""
    first, second = rng.sample(IDS, 2)
    cluster.brokers[first].kill_group()
    cluster.brokers[second].kill_group()
    cluster.brokers[second].start()
    cluster.brokers[first].start()
    cluster.load.progress(20)


def kill_all(cluster: FailingCluster, _: random.Random) -> None:
    """All brokers are killed."""
    for broker in cluster.brokers.values():
        broker.kill_group()
    for broker in cluster.brokers.values():
        broker.start()
    cluster.load.progress(20)


FAILURES: dict[str, Failure] = {
    function.__name__: function
    for function in (
        kill_leader, kill_and_start_at_once, kill_controller, stop_in_order, kill_process, pause_leader, pause_zookeeper,
        restart_zookeeper, restore_zookeeper, expire_leader, expire_controller, expire_all, kill_two, kill_all,
        lose_replication, lose_all_replication, lose_zookeeper, lose_broker, cut_connections, fail_log_dir, lose_power,
        lose_power_of_all,
    )
}  # fmt: skip


# -- runs --------------------------------------------------------------------------------------------------------------


class _NoLoad:
    """Nothing is under way, so that nothing is to be waited for."""

    def progress(self, records: int, timeout_s: float = 90.0) -> float:
        return 0.0

    def describe(self) -> str:
        return "no producers"


BrokerSettings = Callable[[int, int, int], dict[str, object]]
"""Settings of a broker, from its id, and its ports for clients and for brokers."""


@contextmanager
def three_brokers(
    directory: Path,
    settings: dict[str, object] | None = None,
    settings_of: BrokerSettings | None = None,
    synced: bool = False,
) -> Iterator[FailingCluster]:
    """A cluster with the topic, and no load. :param synced: see `FailingCluster`."""
    with ExitStack() as stack:
        peers = stack.enter_context(Peers(directory))
        library = build(directory)
        brokers, links, disks, power = {}, {}, {}, {}
        for broker_id in IDS:
            for_clients, for_brokers = stack.enter_context(reserved()), stack.enter_context(reserved())
            link = links[broker_id] = Links(
                stack.enter_context(Relay(for_brokers)), stack.enter_context(Relay(peers.zookeeper.port))
            )
            home = directory / f"odradek-{broker_id}"
            home.mkdir()
            volume = home / "disk"
            if no_power_cuts():
                volume.mkdir()
            else:
                power[broker_id] = stack.enter_context(LossyDisk(home, DISK_MEBIBYTES))
            disks[broker_id] = FailingCalls(home / "calls", volume / "second")
            config = SETTINGS | {
                "broker.id": broker_id,
                "log.dirs": f"{volume / 'first'},{volume / 'second'}",
                "zookeeper.connect": f"127.0.0.1:{link.to_zookeeper.port}",
                "listeners": f"CLIENTS://127.0.0.1:{for_clients},BROKERS://127.0.0.1:{for_brokers}",
                "advertised.listeners": f"CLIENTS://127.0.0.1:{for_clients},BROKERS://127.0.0.1:{link.from_brokers.port}",
            }
            config |= settings or {}
            if settings_of is not None:
                config |= settings_of(broker_id, for_clients, link.from_brokers.port)
            environment = disks[broker_id].environment(library)
            brokers[broker_id] = stack.enter_context(Broker(config, directory=home, environment=environment))
        servers = ",".join(broker.bootstrap_servers for broker in brokers.values())
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        config = {"min.insync.replicas": "2"} | ({"flush.messages": "1"} if synced else {})
        topic = NewTopic(TOPIC, PARTITIONS, 3, config=config)

        def created() -> bool:
            try:
                for future in admin.create_topics([topic], request_timeout=10).values():
                    future.result()
            except KafkaException as error:
                return error.args[0].name() == "TOPIC_ALREADY_EXISTS"
            return True

        until(created, "the topic is created")
        cluster = FailingCluster(peers, brokers, links, disks, power, _NoLoad(), synced)
        cluster.wait_until_healed()
        yield cluster


@contextmanager
def failing_cluster(
    directory: Path, settings: dict[str, object] | None = None, synced: bool = False
) -> Iterator[FailingCluster]:
    """A cluster under load. Checks everything at the end. :param synced: see `FailingCluster`."""
    with (
        three_brokers(directory, settings, synced=synced) as cluster,
        Load(cluster.servers, TOPIC, PARTITIONS, idempotent=2, plain=1) as load,
    ):
        cluster.load = load
        load.progress(50)
        yield cluster
        check(cluster, load)


def check(cluster: FailingCluster, load: Load) -> None:
    """Let the load end and compare what was acknowledged with what the cluster has, and the logs of all replicas."""
    cluster.wait_until_healed()
    load.finish()
    acknowledged = {}
    for producer in load.producers:
        assert producer.fatal == [] and producer.failed == [], (
            f"{producer.name}: {producer.fatal} {producer.failed[:3]}"
        )
        acknowledged |= producer.acknowledged
    idempotent = [producer.name for producer in load.producers if producer.idempotent]
    found = faults(read_partitions(cluster.servers, TOPIC, PARTITIONS), acknowledged, idempotent)
    assert found == [], "\n".join(found)
    until(
        lambda: len({tuple(logs(broker)) for broker in cluster.brokers.values()}) == 1,
        "the logs of all replicas are equal",
    )


def logs(broker: Broker) -> list[bytes]:
    """The whole log of each partition at a broker."""
    return [
        b"".join(
            path.read_bytes()
            for path in sorted(broker.directory.glob(f"disk/*/{TOPIC}-{number}/*.log"), key=lambda path: path.name)
        )
        for number in range(PARTITIONS)
    ]


def explained(cluster: FailingCluster) -> str:
    """What each broker knows of each partition, and how far the producers are."""
    command = [sys.executable, "-m", "odradek.cli.main", "partition", "explain", "-b", cluster.servers]
    texts = [
        subprocess.run([*command, f"{TOPIC}-{n}"], capture_output=True, text=True).stdout for n in range(PARTITIONS)
    ]
    return "\n".join([*texts, cluster.load.describe()])


def keep_files(cluster: FailingCluster) -> None:
    """Copy the log directories from file systems that are removed at the end."""
    for broker_id in cluster.power:
        home = cluster.brokers[broker_id].directory
        shutil.copytree(
            home / "disk", home / "kept", ignore_dangling_symlinks=True, ignore=shutil.ignore_patterns("*.sock")
        )


def possible(name: str, synced: bool) -> bool:
    """Whether a failure can be made on this machine, and a cluster keeps its promises through it. :param synced: see
    `FailingCluster`."""
    if name not in (lose_power.__name__, lose_power_of_all.__name__):
        return True
    return not no_power_cuts() and (synced or name == lose_power.__name__)


def main() -> int:
    """Run failures at random until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", default="", help="names of failures, separated by commas")
    parser.add_argument("--rounds", type=int, default=6, help="failures before each check")
    parser.add_argument(
        "--flush", choices=("no", "yes", "both"), default="both", help="whether records are synced; both: in turns"
    )
    options = parser.parse_args()
    rng, ends, done = random.Random(options.seed), time.monotonic() + 60 * options.minutes, 0
    turns = itertools.cycle({"no": [False], "yes": [True], "both": [False, True]}[options.flush])
    if no_power_cuts():
        print(f"NO LOSS OF POWER IS TESTED: {no_power_cuts()}")
    print(f"seed {options.seed}", flush=True)
    while time.monotonic() < ends:
        directory, synced = Path(tempfile.mkdtemp(prefix="failures-")), next(turns)
        names = options.only.split(",") if options.only else [name for name in FAILURES if possible(name, synced)]
        print(f"records are {'' if synced else 'not '}synced", flush=True)
        with failing_cluster(directory, synced=synced) as cluster:
            for _ in range(options.rounds):
                name = rng.choice(names)
                began = time.monotonic()
                print(f"{done}: {name} ", end="", flush=True)
                try:
                    FAILURES[name](cluster, rng)
                    served = time.monotonic() - began
                    cluster.wait_until_healed()
                except BaseException:
                    keep_files(cluster)
                    print(f"the files are in {directory}\n{explained(cluster)}", flush=True)
                    raise
                print(f"{served:.1f} s, in sync after {time.monotonic() - began:.1f} s", flush=True)
                done += 1
        lost = f"; losses of power took {cluster.lost_bytes} bytes of logs" if cluster.lost_bytes else ""
        print(f"checked, {cluster.load.describe()}{lost}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
