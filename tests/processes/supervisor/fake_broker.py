"""A supervisor with the main functions of `fake_mains`: as a program, and as the object with which a test controls it.

All events arrive on one datagram socket: the notifications to systemd and the events of the main functions. So tests wait for
events instead of sleeping.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

from odradek.config.pid_file import read_pid_file
from odradek.testing.process_tree import descendants, open_pidfds, wait_for_end
from odradek.testing.status import read_status
from tests.waiting import readable, which_readable

ROOT = Path(__file__).parents[3]
PATIENCE_S = 90.0


class Client:
    """A connection, and the greeting of its worker."""

    def __init__(self, port, source="127.0.0.1", host="127.0.0.1", greeted=True):
        self.socket = socket.create_connection((host, port), PATIENCE_S, source_address=(source, 0))
        self.lines = self.socket.makefile("rb")
        self.hello = self.greeting() if greeted else None

    def greeting(self):
        line = self.lines.readline()
        self.hello = json.loads(line) if line else None
        return self.hello

    def command(self, word):
        self.socket.sendall(word.encode() + b"\n")

    def ask(self, word):
        self.command(word)
        return self.lines.readline().decode().strip()

    def ended(self):
        """Wait until the other side has closed. Returns True."""
        try:
            return self.lines.readline() == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.lines.close()
        self.socket.close()


class FakeBroker:
    """The broker of a test; `start` may be called again after it has ended."""

    def __init__(self, directory):
        self.data_dir = Path(directory) / "data"
        self.log_file = Path(directory) / "log"
        self.process = None
        self.messages = []
        self._unread = deque()
        self._clients = []
        self._place = tempfile.TemporaryDirectory(prefix="odradek-events-")
        self._events = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._events.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._events.bind(f"{self._place.name}/events")

    def launch(self, *settings, mains="", environment=None):
        """Start it without waiting. `settings` are "key=value"."""
        settings = [
            "listeners=PLAINTEXT://127.0.0.1:0",
            f"log.dirs={self.data_dir}",
            "num.network.threads=2",
            "metrics.listener=",
            "usage.spool.max.bytes=0",
            *settings,
        ]
        variables = os.environ | {"NOTIFY_SOCKET": f"{self._place.name}/events", "PYTHONPATH": str(ROOT)}
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.processes.supervisor.fake_broker", mains, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=variables | (environment or {}),
                start_new_session=True,
            )

    def start(self, *settings, **options):
        self.launch(*settings, **options)
        self.wait_for("READY=1")
        return self

    def wait_for(self, word):
        """The next message that contains `word`; earlier messages are kept in `messages`."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            if not self._unread and not self._take(deadline):
                raise AssertionError(f"no {word!r} came but {self.messages}\n{self.log()}")
            message = self._unread.popleft()
            self.messages.append(message)
            if word in message:
                return message

    def _take(self, deadline, *other):
        """Wait for a message or another descriptor; whether something came. Messages are there to be read then."""
        ready = which_readable([self._events, *other], max(0.0, deadline - time.monotonic()))
        if self._events in ready:
            self._unread.append(self._events.recv(65536).decode())
        return bool(ready)

    def wait_for_pid(self, word):
        return int(self.wait_for(word).rpartition(" ")[2])

    @property
    def listeners(self):
        return read_pid_file(str(self.data_dir)).listeners

    @property
    def port(self):
        return self.listeners[0].port

    def connect(self, **options):
        client = Client(options.pop("port", None) or self.port, **options)
        self._clients.append(client)
        return client

    def status(self):
        return read_status(str(self.data_dir), PATIENCE_S)

    def processes(self, kind=None):
        return [process for process in self.status()["processes"] if kind in (None, process["kind"])]

    def pids(self):
        return {f"{process['kind']}-{process['ordinal']}": process["pid"] for process in self.processes()}

    def log(self):
        return self.log_file.read_text() if self.log_file.exists() else ""

    def end(self):
        """Wait for the supervisor's end; its exit code. Meanwhile messages are taken: few fit into the socket."""
        deadline = time.monotonic() + PATIENCE_S
        ended = os.pidfd_open(self.process.pid)
        try:
            while not readable(ended) and self._take(deadline, ended):
                continue
        finally:
            os.close(ended)
        return self.process.wait(max(0.0, deadline - time.monotonic()))

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.end()

    def error_line(self):
        """The message of a start that failed, which must be one line."""
        code = self.end()
        lines = [line for line in self.log().splitlines() if line.startswith("odradek: ")]
        assert code == 1 and len(lines) == 1 and "Traceback" not in self.log(), self.log()
        return lines[0]

    def close(self):
        for client in self._clients:
            client.close()
        if self.process is not None and self.process.poll() is None:
            pidfds = open_pidfds(descendants(self.process.pid))
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            wait_for_end(pidfds, PATIENCE_S)
            for pidfd in pidfds:
                os.close(pidfd)
        self._events.close()
        self._place.cleanup()


def main(mains, *settings):
    from odradek.config.broker_config import load
    from odradek.processes.supervisor.launch import StartError, run
    from tests.processes.supervisor.fake_mains import rows

    try:
        return run(load(None, settings), rows(mains))
    except StartError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
