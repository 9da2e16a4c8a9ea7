"""The Debian package, installed and upgraded by the playbooks on one machine: a single broker with a login.

Measured on two CPUs with a load of 20 by other work: 8 minutes, and 2 for the two packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.ansible import wheels
from tests.deploy.ansible.collection import MACHINE_PACKAGES, Ansible, Run
from tests.deploy.machines import Machine, debian_root, remove_files
from tests.toolchains import REPOSITORY

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(3600)]

USERS = [{"name": "admin", "password": "admin secret"}]


class Single:
    """A machine, its inventory, and two revisions of the package."""

    def __init__(self, directory: Path) -> None:
        self.ansible = Ansible(directory / "ansible")
        wheel = wheels.build(directory)
        self.packages = [self._package(wheel, directory / f"packages{revision}", revision) for revision in (1, 2)]
        self.machine = Machine("single", directory / "single", debian_root(*MACHINE_PACKAGES))
        self.machine.start()

    @staticmethod
    def _package(wheel: Path, directory: Path, revision: int) -> Path:
        command = [
            REPOSITORY / "deploy/debian/build",
            wheel,
            "--revision",
            revision,
            "--compression",
            "gzip",
            "--output",
            directory,
        ]
        done = subprocess.run(
            [*map(str, command)], env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, timeout=900,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        (package,) = directory.glob("*.deb")
        return package

    def play(self, playbook: str, *options: str, **variables: Any) -> Run:
        """Run a playbook. `variables` are those of the host."""
        host = {
            "machine_leader": self.machine.leader, "broker_node_id": 7, "broker_package": str(self.packages[0]),
            "broker_scram_users": USERS, **variables,
        }  # fmt: skip
        inventory = self.ansible.inventory(
            {"brokers": {"single": host}},
            ansible_connection="machine", ansible_become=False, ansible_python_interpreter="/usr/bin/python3",
            broker_listeners=[{"name": "CLIENTS", "protocol": "SASL_PLAINTEXT", "port": 9092}],
            broker_advertised_host="127.0.0.1", broker_admin_user="admin", broker_start_timeout=300,
        )  # fmt: skip
        return self.ansible.playbook(playbook, inventory, *options)

    def users(self) -> set[str]:
        """The names of the SCRAM users."""
        listed = self.machine.output(
            "odradek",
            "-b",
            "127.0.0.1:9092",
            "user",
            "list",
            "--json",
            "--command-config",
            "/etc/odradek/admin.properties",
        )
        return {user["user"] for user in json.loads(listed)}

    def version(self) -> str:
        """The version of the installed package."""
        return self.machine.output("dpkg-query", "--show", "--showformat=${Version}", "odradek")


@pytest.fixture
def single(tmp_path: Path) -> Iterator[Single]:
    made = Single(tmp_path)
    try:
        yield made
    finally:
        made.machine.kill()
        remove_files(made.machine)


def test_a_single_broker_is_installed_changed_and_upgraded(single: Single) -> None:
    machine = single.machine
    checked = single.play("site", "--check", "--diff")
    assert checked.code == 0, checked.end
    assert not machine.exists("/opt/odradek")
    installed = single.play("site")
    assert installed.code == 0, installed.end
    assert machine.state_of("odradek.service") == "active"
    assert "broker.id=7" in machine.read("/var/lib/odradek/data/meta.properties").replace("node.id", "broker.id")
    assert single.users() == {"admin"}

    again = single.play("site")
    assert (again.code, again.changed) == (0, 0), again.end

    two = [*USERS, {"name": "alice", "password": "alice secret"}]
    added = single.play("site", broker_scram_users=two)
    assert (added.code, added.changed) == (0, 1), added.end
    assert single.users() == {"admin", "alice"}

    settings = {"log.retention.hours": 24}
    started = machine.output("systemctl", "show", "--property=MainPID", "odradek.service")
    upgraded = single.play("upgrade", broker_package=str(single.packages[1]), broker_settings=settings)
    assert upgraded.code == 0, upgraded.end
    assert single.version().endswith("-2")
    assert machine.output("systemctl", "show", "--property=MainPID", "odradek.service") != started
    assert "log.retention.hours=24" in machine.read("/etc/odradek/server.properties")
    assert single.users() == {"admin", "alice"}

    refused = single.play("site", broker_node_id=8, broker_package=str(single.packages[1]), broker_settings=settings)
    assert refused.code != 0
    assert "belongs to broker 7" in refused.text

    current = {"broker_package": str(single.packages[1]), "broker_settings": settings}
    machine.output("systemctl", "mask", "--now", "odradek.service")
    kept = single.play("site", **current)
    assert kept.code != 0
    assert "masked" in kept.text
    assert machine.output("readlink", "/etc/systemd/system/odradek.service").strip() == "/dev/null"
    machine.output("systemctl", "unmask", "odradek.service")

    machine.output("apt-get", "remove", "--yes", "odradek")
    back = single.play("site", **current)
    assert back.code == 0, back.end
    assert machine.state_of("odradek.service") == "active"
    assert single.users() == {"admin", "alice"}
