"""Maintainer scripts of the Debian package and the installer of the report's packages, below another root."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.debian.package import PACKAGED_UNITS, maintainer_script
from tests import toolchains

DEPLOY = toolchains.REPOSITORY / "deploy"
MAINTAINER = DEPLOY / "debian/maintainer"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("opt/odradek", "var/lib/odradek", "etc/odradek", "run/systemd/system", "bin"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def run(root: Path, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script in which the directories of the system are those below `root`."""
    text = maintainer_script(script.name) if script.parent == MAINTAINER else script.read_text()
    text = re.sub(r"(?<![\w/}])/(opt|var/lib|etc|run)\b", rf"{root}/\1", text)
    paths = {path for path in re.findall(r"(?<![\w./*^])/[\w./-]+", text) if not path.startswith(str(root))}
    assert paths <= {"/bin/sh", "/dev/null"}, "these would be changed on this machine"
    environment = {"PATH": f"{root}/bin:{os.environ['PATH']}"}
    command = ["sh", "-s", "--", *arguments]
    return subprocess.run(command, input=text, env=environment, capture_output=True, text=True, check=False)


def fake_systemd(root: Path, running: Sequence[str]) -> None:
    """A systemctl that writes its calls to a file, and lists the units of `running` that match."""
    program(
        root / "bin/systemctl",
        f"""echo "systemctl $*" >>{root}/calls
case "$*" in *is-active*) exit 1 ;; list-units*) ;; *) exit 0 ;; esac
for unit in {" ".join(running)}; do case "$unit" in $5) echo "$unit loaded active" ;; esac; done""",
    )
    program(root / "bin/deb-systemd-invoke", f'echo "$*" >>{root}/calls')
    for name in ("systemd-sysusers", "deb-systemd-helper"):
        program(root / f"bin/{name}", "exit 0")


def instances() -> list[str]:
    """The units of the package, in the order in which they stop; of a template two instances."""
    return [unit.replace("@", at) for unit in PACKAGED_UNITS for at in (["@a", "@b"] if "@" in unit else ["@"])]


def test_the_package_has_all_units_of_the_installer() -> None:
    assert {*PACKAGED_UNITS} == {
        path.name for end in ("service", "timer") for path in (DEPLOY / "systemd").glob(f"*.{end}")
    }
    assert PACKAGED_UNITS[-1] == "odradek.service"


@pytest.mark.parametrize("running", [[], ["odradek.service"], ["odradek-mirror@a.service"], instances()])
def test_what_runs_is_stopped_before_its_program_is_replaced_and_started_afterwards(
    root: Path, running: list[str]
) -> None:
    fake_systemd(root, running)
    assert run(root, MAINTAINER / "prerm", "upgrade").stderr == ""
    calls = (root / "calls").read_text().splitlines()
    assert [call for call in calls if not call.startswith("systemctl list-units")] == [
        f"stop {unit}" for unit in running
    ]
    assert (root / "run/odradek-units.before-upgrade").read_text().splitlines() == running
    # an upgrade that is tried again finds nothing that runs, and leaves what the first attempt has found
    fake_systemd(root, [])
    assert run(root, MAINTAINER / "prerm", "upgrade").stderr == ""
    (root / "calls").unlink()
    done = run(root, MAINTAINER / "postinst", "configure", "0.1.0-1")
    assert done.returncode == 0
    started = {call.rpartition(" ")[2] for call in (root / "calls").read_text().splitlines() if " start " in call}
    assert started == {*running}
    assert not (root / "run/odradek-units.before-upgrade").exists()


def test_a_removal_stops_all_and_disables_all_but_the_broker(root: Path) -> None:
    fake_systemd(root, instances())
    assert run(root, MAINTAINER / "prerm", "remove").stderr == ""
    *calls, disable = (root / "calls").read_text().splitlines()
    assert [call for call in calls if call.startswith("stop ")] == [f"stop {unit}" for unit in instances()]
    assert disable.split() == ["systemctl", "--quiet", "disable", *PACKAGED_UNITS[:-1]]
    assert not (root / "run/odradek-units.before-upgrade").exists()


def test_a_purge_deletes_reports_but_not_what_links_point_to(root: Path) -> None:
    fake_systemd(root, [])
    (root / "elsewhere/tables").mkdir(parents=True)
    (root / "elsewhere/tables/file").write_text("kept")
    for name in ("var/lib/odradek/data", "opt/odradek-report/lib"):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_text("gone")
    (root / "opt/odradek-report/link").symlink_to(root / "elsewhere")
    (root / "var/lib/odradek-report").symlink_to(root / "elsewhere")
    done = run(root, MAINTAINER / "postrm", "purge")
    assert (done.returncode, done.stderr) == (0, "")
    assert (root / "elsewhere/tables/file").read_text() == "kept"
    left = [path.name for at in ("var/lib", "opt", "etc") for path in (root / at).iterdir() if path.name != "systemd"]
    assert left == ["odradek"]  # the program, which dpkg removes


def test_packages_of_the_report_are_for_the_python_of_the_program(root: Path) -> None:
    fake_systemd(root, [])
    script = DEPLOY / "systemd/install-report-packages"
    done = run(root, script)
    assert done.returncode == 1 and f"there is no {root}/opt/odradek/venv/bin/python; set PYTHON" in done.stderr
    installed = f'echo "$0 $*" >>{root}/calls; case "$1" in -c) echo {root} ;; esac'
    program(root / "opt/odradek-report/bin/python", installed)
    program(root / "opt/odradek/venv/bin/python", installed)
    program(root / "bin/python3", "exit 9")
    (root / "opt/odradek/requirements-report.txt").write_text("pyspark==1\n")
    done = run(root, script)
    assert done.returncode == 0, done.stderr
    venv = f"{root}/opt/odradek/venv/bin/python -m venv --clear {root}/opt/odradek-report"
    assert (root / "calls").read_text().splitlines()[0] == venv
    # an upgrade says whether the packages must be installed again
    for name, asked in (("pyspark==1", False), ("pyspark==2", True)):
        (root / "opt/odradek/requirements-report.txt").write_text(f"{name}\n")
        done = run(root, MAINTAINER / "postinst", "configure", "0.1.0-1")
        assert done.returncode == 0 and ("share/deploy/systemd/install-report-packages" in done.stderr) == asked
