"""The collection odradek.broker where Ansible finds it, and runs of its playbooks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests import toolchains
from tests.deploy.machines import JAVA_PACKAGES
from tests.toolchains import REPOSITORY

COLLECTION = REPOSITORY / "deploy" / "ansible" / "odradek" / "broker"
PLUGINS = Path(__file__).parent / "plugins"
BIN = Path(sys.executable).parent
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
"""Variables of hosts that are this computer."""
MACHINE_PACKAGES = (*JAVA_PACKAGES, "zookeeper", "python3-apt")
"""What machines have besides what all machines of tests have: they cannot fetch packages."""
TIMEOUT_S = 1800.0


class Host(NamedTuple):
    """What a play did on a host: numbers of tasks."""

    ok: int
    changed: int
    unreachable: int
    failed: int


class Run(NamedTuple):
    """A run of ansible-playbook."""

    code: int
    output: str

    @property
    def hosts(self) -> dict[str, Host]:
        """The recap, by host."""
        pattern = r"(?m)^(\S+) +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+)"
        return {name: Host(*map(int, numbers)) for name, *numbers in re.findall(pattern, self.output)}

    @property
    def changed(self) -> int:
        """The number of changes on all hosts."""
        return sum(host.changed for host in self.hosts.values())

    @property
    def end(self) -> str:
        """The last lines, for messages of failed tests."""
        return self.output[-6000:]

    def __repr__(self) -> str:
        return f"Run({self.code})"

    @property
    def text(self) -> str:
        """The output with all white space as single blanks, to look for sentences."""
        return " ".join(self.output.split())


class Ansible:
    """Runs Ansible with the collection of this checkout.

    :param directory: an empty directory for its configuration and inventory.
    """

    def __init__(self, directory: Path) -> None:
        if not (BIN / "ansible-playbook").exists():
            toolchains.unavailable("ansible-core is not installed (pip install '.[dev]')")
        self.directory = directory
        self._runs = 0
        collections = directory / "collections" / "ansible_collections" / "odradek"
        collections.mkdir(parents=True)
        (collections / "broker").symlink_to(COLLECTION)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "ANSIBLE_COLLECTIONS_PATH": str(directory / "collections"),
            "ANSIBLE_CONNECTION_PLUGINS": str(PLUGINS / "connection"),
            "ANSIBLE_LOCAL_TEMP": str(directory / "local"),
            "ANSIBLE_HOME": str(directory / "home"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_RETRY_FILES_ENABLED": "0",
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
            "LC_ALL": "C.UTF-8",
        }

    def inventory(self, groups: Mapping[str, Mapping[str, Mapping[str, Any]]], **variables: Any) -> Path:
        """Write an inventory: for each group the variables of each host; `variables` belong to all hosts."""
        path = self.directory / "inventory.json"
        content = {"all": {"vars": variables, "children": {name: {"hosts": hosts} for name, hosts in groups.items()}}}
        path.write_text(json.dumps(content))
        return path

    def playbook(self, name: str, inventory: Path, *options: str, **extra: Any) -> Run:
        """Run a playbook of the collection, by its name, or a file. `extra` are extra variables."""
        playbook = name if "." in name else f"odradek.broker.{name}"
        command = [BIN / "ansible-playbook", "-i", inventory, *options]
        if extra:
            command += ["-e", json.dumps(extra)]
        log = self.directory / f"{self._runs}-{Path(name).stem}.log"
        self._runs += 1
        with log.open("wb") as output:
            done = subprocess.run(
                [*map(str, command), playbook], cwd=self.directory, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
        return Run(done.returncode, log.read_text())
