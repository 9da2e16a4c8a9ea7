"""ZooKeeper and Kafka 3.9.1 brokers in ZooKeeper mode, as processes of a test, on ports of 127.0.0.1.

Each process is ended by its id. Nothing here waits for times: a process counts as started when it listens.
"""

import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.ports import reserved
from tests.toolchains import kafka_jars
from tests.waiting import until

VERSION = "3.9.1"
HEAP = ("-Xms128m", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LOG4J = """\
log4j.rootLogger=INFO, file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File={file}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class JavaProcess:
    """A Java process of a test. ``log_file`` contains what it logs."""

    def __init__(self, directory: Path, main_class: str, port: int) -> None:
        self.directory = directory
        self.port = port
        self.log_file = directory / "server.log"
        self._main_class = main_class
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, configuration: Path) -> None:
        log4j = self.directory / "log4j.properties"
        log4j.write_text(LOG4J.format(file=self.log_file))
        command = ["java", *HEAP, f"-Dlog4j.configuration=file:{log4j}", "-cp", f"{kafka_jars(VERSION)}/*"]
        with open(self.directory / "output.log", "ab") as output:
            self._process = subprocess.Popen(
                [*command, self._main_class, str(configuration)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        until(self._listens, lambda: f"{self._main_class} listens on port {self.port}: {self.log()[-3000:]}")

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self._main_class} ended: {self.log()[-3000:]}"
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def log(self) -> str:
        texts = [
            path.read_text(errors="replace") for path in (self.directory / "output.log", self.log_file) if path.exists()
        ]
        return "\n".join(texts)

    def send_signal(self, number: int) -> None:
        """Send a signal to the process."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(90)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)


class Peers:
    """One ZooKeeper, and Kafka brokers of its cluster. Used as a context manager, which ends all processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self.brokers: dict[int, JavaProcess] = {}
        self.zookeeper: JavaProcess

    def __enter__(self) -> "Peers":
        with ExitStack() as stack:
            directory = self._directory / "zookeeper"
            directory.mkdir(parents=True)
            port = stack.enter_context(reserved())
            (directory / "zoo.cfg").write_text(
                f"dataDir={self.zookeeper_data}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=500\n"
                "minSessionTimeout=1000\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n"
            )
            self.zookeeper = JavaProcess(directory, "org.apache.zookeeper.server.ZooKeeperServerMain", port)
            stack.callback(self.zookeeper.kill)
            self.start_zookeeper()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self._stack.close()

    @property
    def zookeeper_data(self) -> Path:
        """The directory with the snapshots and the log of ZooKeeper."""
        return self._directory / "zookeeper" / "data"

    def start_zookeeper(self) -> None:
        """Start ZooKeeper, after it was killed on the same port."""
        self.zookeeper.start(self.zookeeper.directory / "zoo.cfg")

    @property
    def connect(self) -> str:
        """The value of zookeeper.connect."""
        return f"127.0.0.1:{self.zookeeper.port}"

    def start_kafka(
        self, broker_id: int, settings: Mapping[str, object] | None = None, further_listener: str = ""
    ) -> JavaProcess:
        """Start a Kafka broker and wait until it listens. In values of `settings`, "{port}" is its port.

        :param further_listener: the name of a second listener.
        """
        directory = self._directory / f"kafka-{broker_id}"
        directory.mkdir()
        port = self._stack.enter_context(reserved())
        listeners = f"PLAINTEXT://127.0.0.1:{port}"
        if further_listener:
            listeners += f",{further_listener}://127.0.0.1:{self._stack.enter_context(reserved())}"
        values: dict[str, object] = {
            "broker.id": broker_id,
            "listeners": listeners,
            "log.dirs": directory / "data",
            "zookeeper.connect": self.connect,
            "zookeeper.session.timeout.ms": 6000,
            "group.initial.rebalance.delay.ms": 0,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "controlled.shutdown.enable": "true",
        } | dict(settings or {})
        configuration = directory / "server.properties"
        configuration.write_text(
            "".join(f"{name}={value}\n" for name, value in values.items()).replace("{port}", str(port))
        )
        broker = self.brokers[broker_id] = JavaProcess(directory, "kafka.Kafka", port)
        broker.start(configuration)
        return broker


def tool(main_class: str, *arguments: str, stdin: str = "", timeout_s: float = 120) -> str:
    """The output of one of Kafka's command-line tools of 3.9.1."""
    command = ["java", *HEAP, "-cp", f"{kafka_jars(VERSION)}/*", main_class, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, f"{main_class} {arguments}: {done.stdout}{done.stderr}"
    return done.stdout
