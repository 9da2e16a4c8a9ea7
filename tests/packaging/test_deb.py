"""The Debian package on fresh machines with systemd: it installs, upgrades, is removed and is purged.

The machines have no network, so everything that the package depends on is part of Debian's minimal system or of the package.
"""

import re
from pathlib import Path

import pytest

from tests.deploy.machines import Machine
from tests.packaging.debian import (
    KEEP,
    PACKAGES_AT,
    SETTINGS,
    apt,
    change,
    consumed,
    install,
    process_of,
    produced,
    version_of,
)

RUNNING = {"odradek.service": "active", "odradek-mirror@a.service": "active", "odradek-load@a.service": "activating",
           "odradek-report.service": "activating"}  # fmt: skip
TIMERS = {"odradek-report.timer": "active", "odradek-load@a.timer": "active"}

pytestmark = [pytest.mark.package, pytest.mark.timeout(2000)]


def test_a_package_lives_from_its_installation_to_its_purge(debian: Machine, first: Path, second: Path) -> None:
    done = install(debian, first)
    assert "odradek:" not in done.stdout + done.stderr  # its scripts only speak of trouble
    assert debian.state_of("odradek") == "active"
    assert debian.output("systemctl", "is-enabled", "odradek") == "enabled"
    owners = debian.output("stat", "--format=%a %U:%G %n", "/etc/odradek", SETTINGS, "/var/lib/odradek")
    assert owners.splitlines() == [
        "750 root:odradek /etc/odradek",
        f"640 root:odradek {SETTINGS}",
        "750 odradek:odradek /var/lib/odradek",
    ]
    assert debian.output("find", "/opt/odradek", "/usr/bin/odradek", "!", "-user", "root") == ""
    assert debian.output("dpkg", "--verify", "odradek") == ""
    assert debian.output("man", "--where", "odradek-topic") == "/usr/share/man/man1/odradek-topic.1.gz"
    shell = ". /usr/share/bash-completion/bash_completion; _completion_loader odradek; complete -p odradek"
    assert debian.output("bash", "-c", shell).endswith(" odradek")
    assert debian.exists("/usr/share/zsh/vendor-completions/_odradek")
    assert debian.exists("/usr/share/fish/vendor_completions.d/odradek.fish")
    assert debian.run("odradek", "config", "check", SETTINGS).returncode == 0
    check_the_report(debian)
    debian.run("odradek", "topic", "create", "orders", "-p", "1")
    produced(debian, "one\ntwo\n")
    assert consumed(debian) == "one\ntwo"

    change(debian, "metrics.listener=127.0.0.1:9404", "metrics.listener=127.0.0.1:9505")
    debian.run("chmod", "600", "/etc/odradek/report.env")
    start_others(debian)
    before = {unit: process_of(debian, unit) for unit in RUNNING}
    install(debian, second, *KEEP)
    assert version_of(debian).endswith("-2")
    for unit, state in {**RUNNING, **TIMERS}.items():
        debian.wait_for_state(unit, state)
    assert {unit for unit in RUNNING if process_of(debian, unit) in ("0", before[unit])} == set()
    stopped = debian.journal("odradek", 200)
    assert "Deactivated successfully" in stopped  # an ordered stop, no kill
    assert debian.exists("/opt/odradek/share/LATER")
    assert "127.0.0.1:9505" in debian.read(SETTINGS)
    assert "a comment of the later version" in debian.read(f"{SETTINGS}.dpkg-dist")
    assert debian.output("stat", "--format=%a %U:%G", SETTINGS, "/etc/odradek/report.env").split("\n") == [
        "640 root:odradek",
        "600 root:odradek",
    ]
    assert consumed(debian) == "one\ntwo"
    produced(debian, "three\n")

    apt(debian, "remove", "odradek")
    assert not debian.exists("/opt/odradek")
    assert not debian.exists("/usr/bin/odradek")
    assert debian.output("find", "/etc/systemd/system", "-name", "odradek*", "-type", "l").split() == [
        "/etc/systemd/system/multi-user.target.wants/odradek.service"
    ]
    assert {debian.state_of(unit) for unit in (*RUNNING, *TIMERS)} == {"inactive"}
    debian.run(
        "rm", "-r", *(f"/etc/systemd/system/odradek-{unit}.service.d" for unit in ("mirror@", "load@", "report"))
    )
    assert debian.exists("/opt")
    assert debian.exists("/var/lib/odradek/data/orders-0")
    assert "127.0.0.1:9505" in debian.read(SETTINGS)
    assert debian.run("pgrep", "--full", "odradek", check=False).stdout == ""

    install(debian, second, *KEEP)
    assert debian.state_of("odradek") == "active"
    assert consumed(debian) == "one\ntwo\nthree"

    apt(debian, "purge", "odradek")
    named = [
        "find",
        "/",
        "-xdev",
        "-name",
        "*odradek*",
        "-not",
        "-path",
        f"{PACKAGES_AT}/*",
        "-not",
        "-path",
        "/proc/*",
    ]
    assert debian.output(*named, "-not", "-path", "/var/log/*") == "/var/lib/odradek-load"
    assert debian.output("getent", "passwd", "odradek").startswith("odradek:")  # files elsewhere may belong to it
    assert debian.run("systemctl", "is-system-running", check=False).stdout == "running\n"


def start_others(debian: Machine) -> None:
    """A mirror, a load and a report, with a program that does not end: a mirror needs two clusters, the others PySpark."""
    debian.put("", "/etc/odradek/mirror-a.properties")
    debian.put("", "/etc/odradek/load-a.env")
    for unit, kind in (("mirror@", "exec"), ("load@", "oneshot"), ("report", "oneshot")):
        instead = f"[Service]\nType={kind}\nExecStart=\nExecStart=sleep infinity\n"
        debian.put(instead, f"/etc/systemd/system/odradek-{unit}.service.d/test.conf")
    debian.run("systemctl", "daemon-reload")
    debian.run("systemctl", "enable", "--now", "odradek-mirror@a.service", "odradek-load@a.timer")
    debian.run("systemctl", "start", "--no-block", "odradek-load@a.service", "odradek-report.service")
    for unit, state in {**RUNNING, **TIMERS}.items():
        debian.wait_for_state(unit, state)


def check_the_report(debian: Machine) -> None:
    """One command starts the timer. Without PySpark the report fails, and says what installs it from the pinned versions."""
    timer, service = "odradek-report.timer", "odradek-report.service"
    assert debian.run("systemctl", "is-enabled", timer, check=False).stdout == "disabled\n"
    debian.run("systemctl", "enable", "--now", timer)
    assert debian.state_of(timer) == "active"
    assert debian.run("systemctl", "start", service, check=False).returncode == 1
    (script,) = set(re.findall(r"/opt/\S+/install-report-packages", debian.journal(service, 20)))
    assert script in debian.read("/usr/share/doc/odradek/README.Debian")
    assert debian.output("stat", "--format=%a", script) == "755"
    for name in re.findall(r"requirements-\w+\.txt", debian.read(script)):
        assert "--hash=sha256:" in debian.read(f"/opt/odradek/{name}")
    debian.run("systemctl", "reset-failed", service)


def test_an_installation_without_a_package_is_not_overwritten(debian: Machine, first: Path) -> None:
    debian.put("of the installer\n", "/opt/odradek/venv/bin/python")
    debian.put("log.dirs=/mine\n", SETTINGS)
    refused = install(debian, first, check=False)
    assert refused.returncode != 0
    assert "deploy/systemd/install has installed Odradek here" in refused.stderr
    assert debian.read("/opt/odradek/venv/bin/python") == "of the installer\n"
    assert debian.read(SETTINGS) == "log.dirs=/mine\n"
