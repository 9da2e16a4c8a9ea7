"""SIGHUP to each process of a broker, and what a broker takes over from its changed configuration file."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import odradek
from odradek.config.pid_file import read_pid_file
from odradek.protocol.schemas import describe_configs
from odradek.testing import Broker
from odradek.testing.process_tree import descendants
from odradek.testing.status import read_status
from tests.children import kill
from tests.waiting import until
from tests.wire import Wire

pytestmark = [pytest.mark.xdist_group("reload"), pytest.mark.usefixtures("hang_up_by_default")]
BROKER, STATIC, DEFAULT = 4, 4, 5
FIRST = """\
listeners=PLAINTEXT://127.0.0.1:0
metrics.listener=127.0.0.1:0
num.network.threads=1
message.max.bytes=1000
log.roll.ms=500000
"""


class Service(NamedTuple):
    """A broker that a service manager has started. `messages`: those that it sent to the manager."""

    process: "subprocess.Popen[bytes]"
    file: Path
    data: Path
    log_file: Path
    manager: socket.socket

    def log(self) -> str:
        return self.log_file.read_text()

    def message(self) -> dict[str, str]:
        """The next message to the service manager but for keep-alives."""
        while True:
            fields = dict(line.split("=", 1) for line in self.manager.recv(4096).decode().splitlines())
            if "WATCHDOG" not in fields:
                return fields

    def reload(self, text: str) -> dict[str, str]:
        """Change the file, send SIGHUP, and return the message at the end of the reload."""
        self.file.write_text(text)
        self.process.send_signal(signal.SIGHUP)
        begin = self.message()
        assert begin["RELOADING"] == "1" and int(begin["MONOTONIC_USEC"]) > 0
        return self.message()

    def values(self, *names: str) -> dict[str, tuple[str, int]]:
        """Values and sources of keys, of a worker that serves now."""
        running = read_pid_file(str(self.data))
        assert running is not None
        make = describe_configs.Request
        resource = make.DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=list(names))
        with Wire("127.0.0.1", running.listeners[0].port) as wire:
            (result,) = wire.ask(make(resources=[resource]), describe_configs.API_KEY, 4).results
        return {config.name: (config.value, config.config_source) for config in result.configs}

    def pid_of(self, kind: str) -> int:
        return next(row["pid"] for row in read_status(str(self.data))["processes"] if row["kind"] == kind)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    file, data = tmp_path / "server.properties", tmp_path / "data"
    file.write_text(f"{FIRST}log.dirs={data}\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(120)
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "odradek.cli.main", "start", "--config", file, "--set", "usage.spool.max.bytes=0"],
                stderr=log, env=os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify")}, start_new_session=True,
            )  # fmt: skip
        service = Service(process, file, data, tmp_path / "log", manager)
        try:
            assert service.message().get("READY") == "1", service.log()
            yield service
            process.terminate()
            assert process.wait(120) == 0, service.log()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def test_no_process_ends_by_a_hang_up_signal(service: Service) -> None:
    """To each process alone, and to all at once, as `systemctl kill` sends it."""
    until(lambda: len(descendants(service.process.pid)) == 5, "all processes have started")
    before = descendants(service.process.pid)
    for pid in [*before, *before]:
        os.kill(pid, signal.SIGHUP)
    until(lambda: "no setting that can change at run time has changed" in service.log(), "the file was read again")
    assert service.values("num.network.threads") == {"num.network.threads": ("1", STATIC)}
    assert descendants(service.process.pid) == before


def test_changed_settings_are_used_by_all_processes_and_their_successors(service: Service) -> None:
    names = ("message.max.bytes", "log.roll.ms", "num.network.threads")
    text = f"message.max.bytes=2000\nnum.network.threads=2\nlog.level=DEBUG\nlistenrs=x\nlog.dirs={service.data}\n"
    text = (
        FIRST.replace("message.max.bytes=1000\nlog.roll.ms=500000\n", "").replace("num.network.threads=1\n", "") + text
    )
    assert "serving on" in service.reload(text)["STATUS"]
    changed = {
        "message.max.bytes": ("2000", STATIC),
        "log.roll.ms": (None, DEFAULT),
        "num.network.threads": ("1", STATIC),
    }
    assert service.values(*names) == changed
    log = service.log()
    assert f"read {service.file} again: log.level=DEBUG, log.roll.ms unset, message.max.bytes=2000" in log
    assert "need a restart of the broker: num.network.threads" in log
    assert "listenrs" in log
    until(lambda: " DEBUG " in service.log(), "the level of the loggers is used")
    for kind in ("coordinator", "worker"):
        pid = service.pid_of(kind)
        kill(pid)
        until(lambda kind=kind, pid=pid: service.pid_of(kind) not in (0, pid), "a successor runs")
        assert service.values(*names) == changed
    assert "serving on" in service.reload(f"{FIRST}log.dirs={service.data}\n")["STATUS"]
    assert service.values(*names) == {
        "message.max.bytes": ("1000", STATIC), "log.roll.ms": ("500000", STATIC), "num.network.threads": ("1", STATIC)
    }  # fmt: skip


def test_a_wrong_file_changes_nothing_and_the_service_manager_shows_it(service: Service) -> None:
    end = service.reload(f"{FIRST}log.dirs={service.data}\nmessage.max.bytes=many\nlog.roll.ms=7\n")
    assert end["READY"] == "1" and "could not use the changed configuration file" in end["STATUS"]
    assert service.values("message.max.bytes", "log.roll.ms") == {
        "message.max.bytes": ("1000", STATIC), "log.roll.ms": ("500000", STATIC)
    }  # fmt: skip
    kept = "cannot use the changed configuration file; all settings stay as they are: "
    assert f"{kept}message.max.bytes=many" in service.log()
    service.file.unlink()
    os.mkfifo(service.file)
    service.process.send_signal(signal.SIGHUP)
    assert service.message()["RELOADING"] == "1"
    assert "could not use" in service.message()["STATUS"]
    assert f"cannot read the configuration file {service.file}: it is no regular file" in service.log()
    service.file.unlink()
    assert "could not" not in service.reload(f"{FIRST}log.dirs={service.data}\n")["STATUS"]


def test_a_broker_without_a_file_says_that_it_ignores_the_signal(tmp_path: Path) -> None:
    with Broker({"num.network.threads": 1}, directory=tmp_path) as broker:
        broker.signal(signal.SIGHUP)
        until(lambda: "received SIGHUP and ignored it" in broker.log_file.read_text(), "a log line")
        assert broker.running


def test_only_the_supervisor_and_programs_with_a_terminal_handle_the_signal() -> None:
    """`Children` lets it be ignored in all processes that it forks, also in loaders and replicators; none may change that."""
    package = Path(odradek.__file__).parent
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if "signal.SIGHUP" in path.read_text()}
    assert found == {"hang_up.py", "processes/supervisor/children.py", "processes/supervisor/event_loop.py"}
