"""The broker as a service on a machine of `tests.deploy.machines`, with the code of this checkout and without a network.

`deploy/systemd/install --units-only` installs units, user and configuration. The virtual environment is made on the machine;
its packages are those of the interpreter that runs the tests, which the machine has as read-only directories. The
interpreters must have the same minor version, because the native modules are compiled for one.
"""

from __future__ import annotations

import json
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

from tests import toolchains
from tests.deploy.machines import Machine

UNIT = "odradek.service"
ADDRESS = "127.0.0.1:9092"
CONFIGURATION = "/etc/odradek/server.properties"
CHECKOUT = "/opt/checkout"
PACKAGES = "/opt/python-packages"
CODE = f"{CHECKOUT}/broker"
COMMAND = """#!/opt/odradek/venv/bin/python
from odradek.cli.main import main
main(prog_name="odradek")
"""


def binds() -> dict[str, Path]:
    """The directories of this machine that a machine needs for `install`, by their place on it."""
    return {
        CHECKOUT: toolchains.REPOSITORY,
        PACKAGES: Path(sysconfig.get_paths()["purelib"]),
    }


def install(machine: Machine, *settings: str) -> None:
    """Install the service on a machine that was made with `binds()`. It is not started.

    :param settings: lines that are added to its configuration.
    """
    version = machine.output("python3", "-c", "import sys; print(*sys.version_info[:2])")
    if version != f"{sys.version_info[0]} {sys.version_info[1]}":
        toolchains.unavailable(f"the native modules are for Python {sys.version_info[:2]}, Debian 12 has {version}")
    machine.run(f"{CHECKOUT}/deploy/systemd/install", "--units-only")
    machine.run("python3", "-m", "venv", "--without-pip", "/opt/odradek/venv")
    place = f"/opt/odradek/venv/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    machine.put(f"{CODE}\n{PACKAGES}\n", f"{place}/checkout.pth")
    machine.put(COMMAND, "/opt/odradek/venv/bin/odradek", mode=0o755)
    configuration = machine.read(CONFIGURATION)
    lines = (configuration.rstrip("\n"), f"advertised.listeners=PLAINTEXT://{ADDRESS}", *settings)
    machine.put("\n".join(lines) + "\n", CONFIGURATION)


def property_of(machine: Machine, name: str, unit: str = UNIT) -> str:
    """A property of a unit, as `systemctl show` prints it."""
    return machine.output("systemctl", "show", unit, f"--property={name}", "--value")


def main_pid(machine: Machine) -> int:
    """The process id of the supervisor on the machine; 0 if it does not run."""
    return int(property_of(machine, "MainPID"))


def entries(machine: Machine, *matches: str) -> list[dict[str, Any]]:
    """Entries of the journal of the unit with all their fields, oldest first: everything that was sent until now.

    :param matches: such as ODRADEK_PROCESS=worker-0.
    """
    machine.run("journalctl", "--sync")  # a message is sent and not answered: journald may not have read it yet
    text = machine.output("journalctl", f"--unit={UNIT}", "--output=json", "--all", "--no-pager", *matches)
    return [json.loads(line) for line in text.splitlines()]


def messages(machine: Machine, pattern: str) -> list[str]:
    """The messages in the journal of the unit in which a pattern is found."""
    return [entry["MESSAGE"] for entry in entries(machine) if re.search(pattern, str(entry["MESSAGE"]))]
