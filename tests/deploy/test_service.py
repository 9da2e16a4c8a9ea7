"""The unit odradek.service in a real systemd: start, limits, journal, watchdog, restart after a kill, ordered stop."""

import re
from collections.abc import Iterator

import pytest

from tests.deploy import service
from tests.deploy.machines import Machine, machine
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("service"), pytest.mark.timeout(600)]

SEND_GARBAGE = """
import socket
with socket.create_connection(("127.0.0.1", 9092)) as client:
    client.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
    client.recv(1)
"""
OPEN_FILES = 1 << 20
STUCK_MS, STOP_MS, STOP_TIMEOUT_S = 12_000, 8_000, 3
"""The limit of a process that hangs, that of each step of a stop, and what systemd allows a stop that asks for no more."""
WATCHDOG_S = 10
RECOVERY = r"\brecover"
DROP_IN = f"[Service]\nWatchdogSec={WATCHDOG_S}\nTimeoutStopSec={STOP_TIMEOUT_S}\nRestartSec=100ms\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine on which the broker runs as a service, with a short watchdog."""
    with machine("server", tmp_path_factory.mktemp("server"), read_only_binds=service.binds()) as made:
        service.install(made, f"odradek.stuck.process.ms={STUCK_MS}", f"odradek.stop.timeout.ms={STOP_MS}")
        made.put(DROP_IN, "/etc/systemd/system/odradek.service.d/test.conf")
        made.run("systemctl", "daemon-reload")
        made.run("systemctl", "enable", "--now", "odradek.service")
        yield made


@pytest.fixture(autouse=True)
def running(server: Machine) -> None:
    """Each test begins with a broker that runs, whatever the one before did."""
    server.run("systemctl", "reset-failed", service.UNIT)
    server.run("systemctl", "start", service.UNIT)


def odradek(server: Machine, *arguments: str) -> str:
    return server.output("/opt/odradek/venv/bin/odradek", *arguments, "-b", service.ADDRESS)


def write(server: Machine, topic: str) -> None:
    """Create a topic with three records."""
    odradek(server, "topic", "create", topic)
    server.run("/opt/odradek/venv/bin/odradek", "produce", topic, "-b", service.ADDRESS, text="1\n2\n3\n")


def open_files(server: Machine, pid: int, hard: bool = True) -> int:
    """The limit of open files of a process of the machine."""
    (line,) = [line for line in server.read(f"/proc/{pid}/limits").splitlines() if line.startswith("Max open files")]
    return int(line.split()[4 if hard else 3])


def ready(server: Machine) -> int:
    """How often the broker has become ready since the machine booted."""
    return len(service.messages(server, r"^supervisor: ready after"))


def started_again(server: Machine, before: int) -> None:
    """Return when the unit is active with another supervisor than `before`."""
    until(
        lambda: service.main_pid(server) not in (0, before) and server.state_of(service.UNIT) == "active",
        lambda: f"the broker does not start again:\n{server.journal(service.UNIT)}",
    )


def stop_cleanly(server: Machine) -> list[str]:
    """Stop the service; the messages of the supervisor of that stop."""
    count = len(service.entries(server, "ODRADEK_PROCESS=supervisor"))
    server.run("systemctl", "stop", service.UNIT)
    return [entry["MESSAGE"] for entry in service.entries(server, "ODRADEK_PROCESS=supervisor")[count:]]


def test_the_service_is_active_when_clients_can_connect(server: Machine) -> None:
    """Type=notify: nothing waits between the return of systemctl and the first request."""
    server.run("systemctl", "restart", service.UNIT)
    assert service.property_of(server, "Type") == "notify"
    odradek(server, "topic", "create", "orders", "-p", "3")
    assert "orders" in odradek(server, "topic", "list")
    assert service.property_of(server, "StatusText").startswith("serving on PLAINTEXT://")
    assert service.property_of(server, "User") == "odradek"
    (owner,) = server.output("ps", "-o", "user=", "-p", str(service.main_pid(server))).split()
    assert owner == "odradek"


def test_the_processes_have_the_limits_and_the_sandbox_of_the_unit(server: Machine) -> None:
    pid = service.main_pid(server)
    assert service.property_of(server, "LimitNOFILE") == str(OPEN_FILES)
    possible = min(OPEN_FILES, open_files(server, 1))  # nothing on the machine can have more than its init process
    for child in [pid, *map(int, server.output("pgrep", "-P", str(pid)).split())]:
        assert open_files(server, child, hard=False) == open_files(server, child) == possible
        status = dict(
            line.split(":\t", 1) for line in server.read(f"/proc/{child}/status").splitlines() if ":\t" in line
        )
        assert (status["NoNewPrivs"], status["Seccomp"], status["CapBnd"].strip("0")) == ("1", "2", "")


def test_messages_are_in_the_journal_with_their_fields(server: Machine) -> None:
    server.run("systemctl", "restart", service.UNIT)
    pid = service.main_pid(server)
    entry = [entry for entry in service.entries(server, "ODRADEK_PROCESS=supervisor") if "ready" in entry["MESSAGE"]][
        -1
    ]
    assert {name: entry[name] for name in ("PRIORITY", "SYSLOG_IDENTIFIER", "ODRADEK_COMPONENT", "ODRADEK_LEVEL", "_PID")} == {
        "PRIORITY": "6", "SYSLOG_IDENTIFIER": "odradek", "ODRADEK_COMPONENT": "odradek.supervisor", "ODRADEK_LEVEL": "INFO",
        "_PID": str(pid),
    }  # fmt: skip
    assert entry["CODE_FUNC"] == "_serve" and entry["_TRANSPORT"] == "journal"
    server.run("python3", "-c", SEND_GARBAGE)
    (bad,) = until(
        lambda: service.entries(server, "ODRADEK_COMPONENT=odradek.connections", "PRIORITY=4"),
        lambda: f"no worker logs the bad client:\n{server.journal(service.UNIT)}",
    )
    assert bad["ODRADEK_PROCESS"].startswith("worker-") and bad["ODRADEK_CONNECTION_ID"].isdigit()
    assert bad["ODRADEK_CLIENT_ADDRESS"].startswith("127.0.0.1:")


def test_an_ordered_stop_needs_no_recovery(server: Machine) -> None:
    write(server, "stopped")
    said = stop_cleanly(server)
    assert said[-1] == "supervisor: stopped" and "supervisor: stopping" in said
    assert service.property_of(server, "Result") == "success"
    assert service.property_of(server, "ExecMainStatus") == "0"
    count = len(service.entries(server))
    server.run("systemctl", "start", service.UNIT)
    after = [str(entry["MESSAGE"]) for entry in service.entries(server)[count:]]
    assert any("ready after" in message for message in after)
    assert not [message for message in after if re.search(RECOVERY, message)], after
    assert odradek(server, "consume", "stopped", "--from", "beginning", "--exit") == "1\n2\n3"


def test_a_broker_whose_supervisor_is_killed_starts_again(server: Machine) -> None:
    write(server, "killed")
    before, count, recoveries = service.main_pid(server), ready(server), len(service.messages(server, RECOVERY))
    server.run("kill", "-KILL", str(before))
    started_again(server, before)
    assert ready(server) == count + 1
    assert len(service.messages(server, RECOVERY)) > recoveries  # the logs were not closed in order
    assert odradek(server, "consume", "killed", "--from", "beginning", "--exit") == "1\n2\n3"
    assert int(service.property_of(server, "NRestarts")) >= 1


@pytest.mark.deploy
def test_the_watchdog_restarts_a_broker_whose_supervisor_hangs(server: Machine) -> None:
    before = service.main_pid(server)
    server.run("kill", "-STOP", str(before))
    started_again(server, before)
    assert service.messages(server, rf"Watchdog timeout \(limit {WATCHDOG_S}s\)")
    odradek(server, "topic", "list")


@pytest.mark.deploy
def test_a_supervisor_that_runs_is_not_restarted_by_the_watchdog_while_a_worker_hangs(server: Machine) -> None:
    """The supervisor kills a worker that hangs, and starts another one; the keep-alives continue."""
    server.run("systemctl", "restart", service.UNIT)
    before = service.main_pid(server)
    (worker, *_) = server.output("pgrep", "-P", str(before), "odradek-worker").split()
    server.run("kill", "-STOP", worker)
    until(
        lambda: service.messages(server, rf"killing worker-\d+ \(pid {worker}\)"),
        lambda: f"the worker is not replaced:\n{server.journal(service.UNIT)}",
    )
    assert service.main_pid(server) == before


@pytest.mark.deploy
def test_systemd_waits_for_a_stop_that_takes_longer_than_its_limit(server: Machine) -> None:
    """A worker that hangs delays the stop for longer than TimeoutStopSec. The supervisor kills it and ends in order."""
    server.run("systemctl", "restart", service.UNIT)
    (worker, *_) = server.output("pgrep", "-P", str(service.main_pid(server)), "odradek-worker").split()
    server.run("kill", "-STOP", worker)
    said = stop_cleanly(server)
    assert any(f"processes did not end within {STOP_MS // 1000} s: killing worker-" in message for message in said), (
        said
    )
    assert said[-1] == "supervisor: stopped"
    assert service.property_of(server, "Result") == "success"


def test_a_reload_uses_the_changed_configuration_and_refuses_one_with_errors(server: Machine) -> None:
    pid, good = service.main_pid(server), server.read(service.CONFIGURATION)

    def value() -> str:
        return odradek(server, "config", "get", "--broker", "1", "message.max.bytes", "--json")

    try:
        server.put(good + "message.max.bytes=200001\n", service.CONFIGURATION)
        server.run("systemctl", "reload", service.UNIT)
        until(lambda: "200001" in value(), lambda: server.journal(service.UNIT))
        server.put(good + "message.max.bytes=many\n", service.CONFIGURATION)
        assert server.run("systemctl", "reload", service.UNIT, check=False).returncode != 0
        assert "message.max.bytes=many" in server.journal(service.UNIT)
        server.run("systemctl", "kill", "-s", "HUP", service.UNIT)  # all processes, without the check
        refused = "it could not use the changed configuration file"
        until(lambda: refused in service.property_of(server, "StatusText"), lambda: server.journal(service.UNIT))
        assert "200001" in value()
    finally:
        server.put(good, service.CONFIGURATION)
        server.run("systemctl", "reload", service.UNIT)

    def is_done() -> bool:
        """While it reads the file, the service is `reloading`, and has another status."""
        return refused not in service.property_of(server, "StatusText") and server.state_of(service.UNIT) == "active"

    until(is_done, lambda: server.journal(service.UNIT))
    assert service.main_pid(server) == pid


def test_a_configuration_with_errors_fails_with_one_line_at_priority_err(server: Machine) -> None:
    server.run("systemctl", "stop", service.UNIT)
    good = server.read(service.CONFIGURATION)
    try:
        server.put(good + "num.network.threads=none\n", service.CONFIGURATION)
        assert server.run("systemctl", "start", service.UNIT, check=False).returncode != 0
        failures = service.entries(server, "ODRADEK_PROCESS=supervisor", "PRIORITY=2")
        assert "num.network.threads=none: must be an integer" in failures[-1]["MESSAGE"]
    finally:
        server.run("systemctl", "stop", service.UNIT)
        server.put(good, service.CONFIGURATION)
