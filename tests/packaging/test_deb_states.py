"""Upgrades of the Debian package of a broker that does not simply run: stopped, disabled, masked, or unable to start."""

from pathlib import Path

import pytest

from tests.deploy.machines import Machine
from tests.packaging.debian import KEEP, PACKAGES_AT, apt, change, install, process_of, version_of
from tests.waiting import until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(2000)]


def test_an_upgrade_leaves_a_broker_as_it_was(debian: Machine, first: Path, second: Path) -> None:
    """Stopped, running although it is disabled, kept by policy-rc.d, or masked."""
    install(debian, first)
    debian.run("systemctl", "stop", "odradek")
    install(debian, second)
    assert debian.state_of("odradek") == "inactive"
    assert debian.output("systemctl", "is-enabled", "odradek") == "enabled"

    # One that has not served yet, as in a recovery, is started again.
    debian.run("mkdir", "-p", "/run/systemd/system/odradek.service.d")
    debian.run(
        "sh", "-c",
        "printf '[Service]\\nExecStartPre=sleep infinity\\n' >/run/systemd/system/odradek.service.d/slow.conf",
    )  # fmt: skip
    debian.run("systemctl", "daemon-reload")
    debian.run("systemctl", "start", "--no-block", "odradek")
    until(lambda: debian.state_of("odradek") == "activating", "the broker starts")
    debian.run("rm", "-r", "/run/systemd/system/odradek.service.d")
    debian.run("systemctl", "daemon-reload")
    apt(debian, "install", "--reinstall", f"{PACKAGES_AT}/{second.name}")
    assert debian.state_of("odradek") == "active"

    debian.put("#!/bin/sh\nexit 101\n", "/usr/sbin/policy-rc.d")
    debian.run("chmod", "755", "/usr/sbin/policy-rc.d")
    before = process_of(debian, "odradek")
    done = apt(debian, "install", "--reinstall", f"{PACKAGES_AT}/{second.name}")
    assert "the broker runs the old version until 'systemctl restart odradek'" in done.stderr
    assert process_of(debian, "odradek") == before
    debian.run("rm", "/usr/sbin/policy-rc.d")

    debian.run("systemctl", "disable", "odradek")
    debian.run("systemctl", "start", "odradek")
    apt(debian, "install", "--reinstall", f"{PACKAGES_AT}/{second.name}")
    assert debian.state_of("odradek") == "active"
    assert debian.run("systemctl", "is-enabled", "odradek", check=False).stdout == "disabled\n"

    debian.run("systemctl", "mask", "--now", "odradek", "odradek-report.timer")
    apt(debian, "install", "--reinstall", f"{PACKAGES_AT}/{second.name}")
    assert debian.state_of("odradek") == "inactive"
    assert debian.run("systemctl", "is-enabled", "odradek", check=False).stdout == "masked\n"
    assert version_of(debian) == f"installed {second.name.split('_')[1]}"


def test_an_upgrade_whose_broker_does_not_start_says_so_and_can_be_finished(
    debian: Machine, first: Path, second: Path
) -> None:
    install(debian, first)
    change(debian, "node.id=1", "node.id=many")  # the running broker does not read it
    failed = install(debian, second, *KEEP, check=False)
    assert failed.returncode != 0
    assert "the broker does not start" in failed.stderr
    assert "node.id" in failed.stderr  # the broker's own message
    assert "dpkg --configure odradek" in failed.stderr
    assert version_of(debian).startswith("half-configured ")
    assert debian.state_of("odradek") in ("failed", "activating")

    change(debian, "node.id=many", "node.id=1")
    debian.run("systemctl", "reset-failed", "odradek")
    debian.run("dpkg", "--configure", "odradek")
    assert version_of(debian).startswith("installed ")
    assert debian.state_of("odradek") == "active"
