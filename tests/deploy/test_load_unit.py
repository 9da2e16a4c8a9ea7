"""The units of loads in a real systemd: the timer starts a load, and exit codes, second starts and stops are as documented."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.deploy import service
from tests.deploy.machines import JAVA_PACKAGES, Machine, debian_root, machine
from tests.waiting import until

pytestmark = [pytest.mark.deploy, pytest.mark.xdist_group("load-unit"), pytest.mark.timeout(1500)]

UNIT, TIMER = "odradek-load@orders.service", "odradek-load@orders.timer"
OUT = "/var/lib/odradek-load"
LOG = f"{OUT}/version=main/_odradek_load"
OPTIONS = "--reader python --memory 512m --master local[1,4]"
PATIENCE_S = 300.0
#: Not as in the unit: with the policy `idle`, a test would last as long as others use the machine.
AWAKE = "[Service]\nNice=0\nCPUSchedulingPolicy=other\nIOSchedulingClass=none\n"
#: The hour of the timer is now.
AT_ONCE = "[Timer]\nOnCalendar=\nOnActiveSec=0\nRandomizedDelaySec=0\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with a broker, a topic, and the units of a load of it, which is not enabled."""
    root = debian_root(*JAVA_PACKAGES)
    with machine("loads", tmp_path_factory.mktemp("loads"), root, read_only_binds=service.binds()) as made:
        made.put("127.0.0.1 localhost\n", "/etc/hosts")  # the name of the machine has no address
        service.install(made)
        made.run(f"{service.CHECKOUT}/deploy/systemd/install", "--units-only", "--with-report")
        made.put(AWAKE, f"/etc/systemd/system/{UNIT}.d/test.conf")
        made.put(AT_ONCE, f"/etc/systemd/system/{TIMER}.d/test.conf")
        made.run("systemctl", "daemon-reload")
        made.run("systemctl", "start", service.UNIT)
        odradek(made, "topic", "create", "orders")
        configure(made, OPTIONS)
        yield made


def odradek(server: Machine, *arguments: str, text: str | None = None) -> str:
    command = ("/opt/odradek/venv/bin/odradek", *arguments, "-b", service.ADDRESS)
    return server.run(*command, text=text).stdout


def configure(server: Machine, options: str) -> None:
    """Write the file of the load, as deploy/systemd/odradek-load.env explains it."""
    lines = ("ODRADEK_TOPICS=orders", f"ODRADEK_BOOTSTRAP_SERVERS={service.ADDRESS}", f"ODRADEK_LOAD_OPTIONS={options}")
    server.put("\n".join(lines) + "\n", "/etc/odradek/load-orders.env")


def produce(server: Machine, count: int) -> None:
    odradek(server, "produce", "orders", "--create", text="".join(f"{number}\n" for number in range(count)))


def summary(server: Machine) -> dict:
    """What the version `main` has."""
    (found,) = json.loads(server.output("/opt/odradek/venv/bin/odradek", "load", "versions", "--json", "--out", OUT))
    return found


def commits(server: Machine) -> int:
    return len(server.run("ls", f"{LOG}/commits", check=False).stdout.split())


def status_of(server: Machine) -> tuple[str, str, str]:
    """The state of the unit, the result of its last run, and the exit code of the command."""
    return (
        server.state_of(UNIT),
        service.property_of(server, "Result", UNIT),
        service.property_of(server, "ExecMainStatus", UNIT),
    )


def is_failed(server: Machine) -> bool:
    return server.state_of(UNIT) == "failed"


def ended(server: Machine) -> tuple[str, str, str]:
    until(
        lambda: server.state_of(UNIT) in ("inactive", "failed"),
        lambda: f"the load ends:\n{server.journal(UNIT)}",
        PATIENCE_S,
    )
    return status_of(server)


def start(server: Machine) -> int:
    """Start the unit and wait until it has ended; the exit code of systemctl."""
    return server.run("systemctl", "start", UNIT, check=False, timeout_s=PATIENCE_S).returncode


def test_the_timer_starts_the_load(server: Machine) -> None:
    produce(server, 100)
    server.run("systemctl", "enable", "--now", TIMER)
    until(lambda: commits(server) == 1 or is_failed(server), lambda: f"it commits:\n{server.journal(UNIT)}", PATIENCE_S)
    assert ended(server) == ("inactive", "success", "0")
    assert summary(server)["records"] == 100
    (owner,) = server.output("stat", "--format=%U", LOG).split()
    assert owner == "odradek"
    assert "100 records in 1 commit" in server.journal(UNIT, 400)
    server.run("systemctl", "disable", "--now", TIMER)


def test_systemd_sees_the_exit_code_of_findings_and_the_next_run_succeeds(server: Machine) -> None:
    produce(server, 100)
    odradek(server, "topic", "truncate", "orders", "--before-offset", "150", "--yes")
    assert start(server) != 0
    assert status_of(server) == ("failed", "exit-code", "3")
    assert UNIT in server.output("systemctl", "--failed", "--plain", "--no-legend")
    assert "orders-0: offsets 100 to 149 were deleted before they were loaded" in server.journal(UNIT, 400)
    assert summary(server)["records"] == 150
    assert start(server) == 0
    assert status_of(server) == ("inactive", "success", "0")


def test_a_load_that_is_stopped_is_completed_by_the_next_one(server: Machine) -> None:
    produce(server, 400)
    configure(server, f"{OPTIONS} --max-offsets 1")  # a commit for each record, which lasts for minutes
    before = commits(server)
    server.run("systemctl", "start", "--no-block", UNIT)
    until(
        lambda: commits(server) > before or is_failed(server),
        lambda: f"the load commits:\n{server.journal(UNIT)}",
        PATIENCE_S,
    )
    assert server.state_of(UNIT) == "activating"
    run = service.property_of(server, "InvocationID", UNIT)
    # a second start, of the timer or by hand, joins the first; a command of another user's shell is refused
    server.run("systemctl", "start", "--no-block", UNIT)
    by_hand = server.run(
        "/opt/odradek/venv/bin/odradek", "load", "run", "orders", "--out", OUT, "-b", service.ADDRESS, "--reader", "python",
        check=False,
    )  # fmt: skip
    assert by_hand.returncode == 1 and "another command uses this version; wait until it ends" in by_hand.stderr
    assert service.property_of(server, "InvocationID", UNIT) == run and server.state_of(UNIT) == "activating"
    server.run("systemctl", "stop", UNIT)
    assert status_of(server)[:2] == ("inactive", "success"), server.journal(UNIT)
    assert "odradek: stopped" in server.journal(UNIT)
    assert server.run("pgrep", "--uid", "odradek", "java", check=False).stdout == ""
    loaded = summary(server)["records"]
    assert 150 < loaded < 550
    configure(server, OPTIONS)
    assert start(server) == 0, server.journal(UNIT)
    assert summary(server)["records"] == 550
    command = (
        "/opt/odradek/venv/bin/odradek",
        "load",
        "verify",
        "--out",
        OUT,
        "-b",
        service.ADDRESS,
        "--reader",
        "python",
    )
    verified = server.run(*command, timeout_s=PATIENCE_S)
    assert "550 records of 1 partition agree with its commits and the broker" in verified.stdout
