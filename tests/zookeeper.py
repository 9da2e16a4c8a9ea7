"""A real ZooKeeper server for tests: started on a free port of 127.0.0.1 with Kafka's jars, ended by its process id.

One server for each test process; each test uses its own chroot (`chroot`), so that tests do not see each other's nodes. A test
that stops, pauses or configures a server starts its own (`ZookeeperServer`).
"""

import atexit
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

from odradek.metadata.store import Session, SessionExpired, StoreError
from odradek.metadata.zookeeper import ZookeeperOptions, ZookeeperStore
from tests.ports import reserved
from tests.toolchains import kafka_jars
from tests.waiting import until

VERSION = "3.9.1"
MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
OPTIONS = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dzookeeper.admin.enableServer=false",
)
SETTINGS = """\
dataDir={directory}/data
clientPort={port}
clientPortAddress=127.0.0.1
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=120000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
"""
_numbers = itertools.count()
_running: "ZookeeperServer | None" = None


class ZookeeperServer:
    """A server with its data in a temporary directory. ``port`` is the same after `kill` and `start`.

    :param settings: further lines of its configuration file. :param options: further options of the JVM.
    :param class_path: of ZooKeeper, instead of Kafka's jars.
    """

    def __init__(self, settings: str = "", options: tuple[str, ...] = (), class_path: str = "") -> None:
        self._class_path = class_path or f"{kafka_jars(VERSION)}/*"
        self._settings, self._options = settings, options
        self.directory = Path(tempfile.mkdtemp(prefix="odradek-zookeeper-"))
        self._reservation = ExitStack()
        self.port = self._reservation.enter_context(reserved())
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "ZookeeperServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server and wait until it serves."""
        file = self.directory / "zoo.cfg"
        secure = "secureClientPort" in self._settings
        text = SETTINGS.format(directory=self.directory, port=self.port)
        if secure:
            text = text.replace("clientPort=", "#clientPort=").replace("clientPortAddress=", "secureClientPortAddress=")
        file.write_text(text + self._settings.format(port=self.port, directory=self.directory))
        log4j = self.directory / "log4j.properties"
        log4j.write_text(
            "log4j.rootLogger=INFO, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
        )
        command = ["java", *OPTIONS, *self._options, f"-Dlog4j.configuration=file:{log4j}"]
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*command, "-cp", self._class_path, MAIN, str(file)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self._listens if secure else self._serves, lambda: f"ZooKeeper serves: {self.log()[-4000:]}")

    def _serves(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"ZooKeeper ended: {self.log()[-4000:]}"
        return self.ask("srvr").startswith(b"Zookeeper version")

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"ZooKeeper ended: {self.log()[-4000:]}"
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def ask(self, word: str) -> bytes:
        """The response to a four-letter command; empty if the server does not respond."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(65536), b""))
        except OSError:
            return b""

    def pause(self) -> None:
        """Stop all threads of the server; its connections stay."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        tasks = Path(f"/proc/{self._process.pid}/task")
        until(lambda: all(_stopped(task) for task in tasks.iterdir()), "all threads of ZooKeeper are stopped")

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Kill the server (SIGKILL) and wait for its end; its data stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End the server and remove its data."""
        self.kill()
        self._reservation.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def _stopped(task: Path) -> bool:
    return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"


def shared_server() -> ZookeeperServer:
    """The server of this test process, started on first use and ended with the process."""
    global _running
    if _running is None:
        _running = ZookeeperServer()
        atexit.register(_running.close)
    return _running


def chroot() -> str:
    """Servers and a new chroot, for `zookeeper.connect`."""
    return f"{shared_server().hosts}/test-{os.getpid()}-{next(_numbers)}"


def end_of_session(hosts: str, session: Session) -> None:
    """End somebody's session, as ZooKeeper does if it does not hear from its owner for the session timeout."""

    def ended() -> bool:
        """The owner connects again at once, which ends this connection, if it is faster. So only the next attempt shows
        whether the session has ended."""
        with closing(ZookeeperStore(ZookeeperOptions(hosts))) as store:
            try:
                store.start_session(session, 0)
                store.end_session()
            except SessionExpired:
                return True
            except StoreError:
                return False
        return False

    until(ended, f"the session {session.id:x} ends")
