"""What tests of the Debian package do on a machine that has it."""

import subprocess
from pathlib import Path

from tests.deploy.machines import Machine

SETTINGS = "/etc/odradek/server.properties"
PACKAGES_AT = "/mnt/packages"
KEEP = ("-o", "Dpkg::Options::=--force-confold")
"""What keeps changed settings without a question, as unattended upgrades do."""
QUICK = ("-o", "Dpkg::Options::=--force-unsafe-io")
"""Without it dpkg syncs each of its files."""


def install(debian: Machine, package: Path, *options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return apt(debian, "install", *options, f"{PACKAGES_AT}/{package.name}", check=check)


def apt(debian: Machine, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = ("apt-get", "-y", "-q", "-o", "Dpkg::Use-Pty=0", *QUICK, *words)
    return debian.run(*command, environment={"DEBIAN_FRONTEND": "noninteractive"}, timeout_s=600, check=check)


def version_of(debian: Machine) -> str:
    """The state of the package and its version, as ``installed 0.1.0-1``."""
    return debian.output("dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", "odradek")


def process_of(debian: Machine, unit: str) -> str:
    return debian.output("systemctl", "show", "--property=MainPID", "--value", unit)


def change(debian: Machine, old: str, new: str) -> None:
    debian.run("sed", "-i", f"s/^{old}$/{new}/", SETTINGS)
    assert new in debian.read(SETTINGS)


def produced(debian: Machine, text: str) -> None:
    debian.run("odradek", "produce", "orders", "--create", text=text)


def consumed(debian: Machine) -> str:
    return debian.output("odradek", "consume", "orders", "--from", "beginning", "--exit")
