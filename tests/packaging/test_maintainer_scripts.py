"""Maintainer scripts of the Debian package and the installer of the report's packages, below another root."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests import toolchains

DEPLOY = toolchains.REPOSITORY / "deploy"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("opt/odradek", "var/lib", "etc/odradek", "run/systemd/system", "bin"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def run(root: Path, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script in which the directories of the system are those below `root`."""
    text = re.sub(r"(?<![\w/}])/(opt|var/lib|etc|run)\b", rf"{root}/\1", script.read_text())
    paths = {path for path in re.findall(r"(?<![\w./*])/[\w./-]+", text) if not path.startswith(str(root))}
    assert paths <= {"/bin/sh", "/dev/null"}, "these would be changed on this machine"
    environment = {"PATH": f"{root}/bin:{os.environ['PATH']}"}
    command = ["sh", "-s", "--", *arguments]
    return subprocess.run(command, input=text, env=environment, capture_output=True, text=True, check=False)


def fake_systemd(root: Path, state: str) -> None:
    program(root / "bin/systemctl", f'echo "systemctl $*" >>{root}/calls\ncase "$1" in show) echo {state} ;; esac')
    program(root / "bin/deb-systemd-invoke", f'echo "invoke $*" >>{root}/calls')


@pytest.mark.parametrize(
    ("action", "state"), [("upgrade", "activating"), ("remove", "activating"), ("upgrade", "inactive")]
)
def test_a_report_is_stopped_before_its_program_is_replaced(root: Path, action: str, state: str) -> None:
    fake_systemd(root, state)
    done = run(root, DEPLOY / "debian/maintainer/prerm", action)
    assert (done.returncode, done.stderr) == (0, "")
    calls = (root / "calls").read_text().splitlines()
    assert ("systemctl --quiet stop odradek-report.service" in calls) == (state == "activating")
    # it is made after the upgrade
    assert (root / "run/odradek-report.before-upgrade").exists() == ((action, state) == ("upgrade", "activating"))


def test_a_purge_deletes_reports_but_not_what_links_point_to(root: Path) -> None:
    fake_systemd(root, "inactive")
    (root / "elsewhere/tables").mkdir(parents=True)
    (root / "elsewhere/tables/file").write_text("kept")
    for name in ("var/lib/odradek/data", "opt/odradek-report/lib"):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_text("gone")
    (root / "opt/odradek-report/link").symlink_to(root / "elsewhere")
    (root / "var/lib/odradek-report").symlink_to(root / "elsewhere")
    done = run(root, DEPLOY / "debian/maintainer/postrm", "purge")
    assert (done.returncode, done.stderr) == (0, "")
    assert (root / "elsewhere/tables/file").read_text() == "kept"
    left = [path.name for at in ("var/lib", "opt", "etc") for path in (root / at).iterdir() if path.name != "systemd"]
    assert left == ["odradek"]  # the program, which dpkg removes


def test_packages_of_the_report_are_for_the_python_of_the_program(root: Path) -> None:
    script = DEPLOY / "systemd/install-report-packages"
    done = run(root, script)
    assert done.returncode == 1 and f"there is no {root}/opt/odradek/venv/bin/python; set PYTHON" in done.stderr
    installed = f'echo "$0 $*" >>{root}/calls; case "$1" in -c) echo {root} ;; esac'
    program(root / "opt/odradek-report/bin/python", installed)
    program(root / "opt/odradek/venv/bin/python", installed)
    program(root / "bin/python3", "exit 9")
    done = run(root, script)
    assert done.returncode == 0, done.stderr
    venv = f"{root}/opt/odradek/venv/bin/python -m venv --clear {root}/opt/odradek-report"
    assert (root / "calls").read_text().splitlines()[0] == venv
