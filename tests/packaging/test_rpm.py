"""The RPM package on a machine with systemd: it installs, serves, upgrades and is removed.

No distribution with RPM can be had for the tests: the machine is one of Debian, whose Python has the same place, with the rpm
of the machine that runs the tests.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import toolchains
from tests.deploy.machines import Machine, machine, require_machines
from tests.packaging.conftest import run
from tests.packaging.debian import PACKAGES_AT, SETTINGS, consumed, produced

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(2000)]

LIBRARIES = "/opt/libraries-of-rpm"
RPM = ["env", f"LD_LIBRARY_PATH={LIBRARIES}", "/opt/programs-of-rpm/rpm", "--nodeps"]
"""The dependencies have the names of other distributions."""


OWNERS = [
    "750 root:odradek /etc/odradek",
    f"640 root:odradek {SETTINGS}",
    "750 odradek:odradek /var/lib/odradek",
]


def owners(computer: Machine) -> list[str]:
    """Mode, user and group of what the service reads and writes."""
    return computer.output("stat", "--format=%a %U:%G %n", "/etc/odradek", SETTINGS, "/var/lib/odradek").splitlines()


def rpm_of(package: Path) -> Path:
    """The RPM package of a Debian package, beside it."""
    command = [toolchains.REPOSITORY / "deploy/rpm/build", package, "--output", package.parent]
    return Path(run(*command, cwd=package.parent, environment={"PYTHON": sys.executable}).splitlines()[-1])


@pytest.fixture
def rpms(first: Path, second: Path) -> tuple[Path, Path]:
    toolchains.require_command("rpmbuild", "rpm")
    return rpm_of(first), rpm_of(second)


@pytest.fixture
def computer(rpms: tuple[Path, Path], tmp_path: Path) -> Iterator[Machine]:
    require_machines()
    program = Path(shutil.which("rpm") or "/usr/bin/rpm").resolve()
    binds = {
        PACKAGES_AT: rpms[0].parent,
        LIBRARIES: Path("/usr/lib") / f"{'x86_64' if 'x86_64' in rpms[0].name else 'aarch64'}-linux-gnu",
        "/opt/programs-of-rpm": program.parent,
        "/usr/lib/rpm": Path("/usr/lib/rpm"),
    }
    with machine("debian", tmp_path / "machine", read_only_binds=binds) as booted:
        booted.put(f"127.0.0.1 localhost {booted.output('hostname')}\n", "/etc/hosts")
        yield booted


def test_a_package_lives_from_its_installation_to_its_removal(computer: Machine, rpms: tuple[Path, Path]) -> None:
    before, after = (f"{PACKAGES_AT}/{path.name}" for path in rpms)
    done = computer.run(*RPM, "--install", before)
    assert "odradek:" not in done.stdout + done.stderr  # its scripts only speak of trouble
    assert owners(computer) == OWNERS
    computer.run("systemctl", "enable", "--now", "odradek")
    assert computer.state_of("odradek") == "active"
    computer.run("odradek", "topic", "create", "orders", "-p", "1")
    produced(computer, "one\ntwo\n")
    assert consumed(computer) == "one\ntwo"
    process = computer.output("systemctl", "show", "--property=MainPID", "odradek")

    computer.run(*RPM, "--upgrade", after)
    assert computer.exists("/opt/odradek/share/LATER")
    assert owners(computer) == OWNERS
    computer.wait_for_state("odradek")
    assert computer.output("systemctl", "show", "--property=MainPID", "odradek") != process
    assert consumed(computer) == "one\ntwo"
    assert not computer.exists("/run/odradek-units.before-upgrade")

    computer.run(*RPM, "--erase", "odradek")
    assert computer.state_of("odradek") == "inactive"
    assert not computer.exists("/opt/odradek/venv")
    assert computer.exists("/var/lib/odradek/data")


def test_it_has_the_files_of_the_debian_package_but_those_of_debian(first: Path, rpms: tuple[Path, Path]) -> None:
    of_debian = {
        path.removeprefix(".").rstrip("/")
        for line in run("dpkg-deb", "--contents", first, cwd=first.parent).splitlines()
        if not line.startswith("d")
        for path in [re.split(r"\s+", line, maxsplit=5)[5].partition(" -> ")[0]]
    }
    listed = run("rpm", "-qlp", rpms[0], cwd=first.parent).splitlines()
    names = {"/usr/share/zsh/vendor-completions": "/usr/share/zsh/site-functions"}
    expected = {
        re.sub("|".join(names), lambda found: names[found[0]], path)
        for path in of_debian
        if not path.endswith(("/README.Debian", "/changelog.Debian.gz")) and "/lintian/" not in path
    }
    assert expected - set(listed) == set()
    assert [path for path in set(listed) - expected if not expected & {path} and path.endswith(".so")] == []
    assert "/usr/share/licenses/odradek/LICENSE" in listed
