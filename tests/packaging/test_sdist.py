"""What an sdist holds, what a tree without native sources answers, and what the Makefile installs for which target."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from tests.packaging.conftest import copy_checkout, run
from tests.packaging.documents import dangling_links
from tests.toolchains import REPOSITORY


@pytest.fixture(scope="module")
def held(sdist: Path) -> set[str]:
    """The paths of the files in the sdist, below its one directory."""
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


def test_an_sdist_holds_every_native_source(held: set[str]) -> None:
    native = REPOSITORY / "_ext"
    sources = {
        f"broker/odradek/_ext/{path.parent.name}/{path.name}"
        for suffix in ("pyx", "pxd", "pyi", "h")
        for path in native.glob(f"*/*.{suffix}")
    }
    assert "broker/odradek/_ext/shm/process.pyx" in sources
    assert sources - held == set()


def test_an_sdist_holds_every_module_and_the_files_of_the_report(held: set[str]) -> None:
    modules = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "broker").rglob("*.py")}
    assert modules - held == set()
    page = "broker/odradek/jobs/usage_report/page"
    assert {"broker/odradek/py.typed", f"{page}/style.css", f"{page}/script.js"} - held == set()


def test_an_sdist_holds_what_the_installer_copies(sdist: Path, tmp_path: Path) -> None:
    run("tar", "-xf", sdist, cwd=tmp_path)
    (root,) = tmp_path.iterdir()
    installer = [root / "deploy/systemd/install", "--units-only", "--with-report"]
    run(*installer, cwd=tmp_path, environment={"DESTDIR": "installed"})
    assert dangling_links(tmp_path / "installed/opt/odradek/share") == []
    assert (tmp_path / "installed/opt/odradek/share/deploy/prometheus/rules/alerts.yml").is_file()


def test_an_sdist_holds_no_generated_file(held: set[str]) -> None:
    assert {path for path in held if path.endswith((".c", ".so", ".pyc"))} == set()


def test_setup_refuses_a_tree_without_native_sources(tmp_path: Path) -> None:
    root = copy_checkout(tmp_path / "incomplete", "_ext")
    done = subprocess.run(
        [sys.executable, "setup.py", "bdist_wheel"], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert (
        done.stderr
        == f"setup.py: no native source (broker/odradek/_ext/*/*.pyx) below {root}: this source tree is incomplete\n"
    )


def test_the_data_files_of_a_wheel_link_to_each_other_only(tmp_path: Path) -> None:
    table = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    for directory, patterns in table.items():
        (tmp_path / directory).mkdir(parents=True, exist_ok=True)
        for pattern in patterns:
            files = list(REPOSITORY.glob(pattern))
            assert files, pattern
            for path in files:
                shutil.copy(path, tmp_path / directory)
    assert dangling_links(tmp_path / "share/odradek") == []
    assert (tmp_path / "share/odradek/grafana/dashboards/odradek-overview.json").is_file()


@pytest.mark.parametrize(
    ("target", "extras"),
    [
        ("demo", {".[demo]"}),
        ("run", {".[demo]"}),
        ("cluster", {".[demo]"}),
        ("deb", {".[demo]", "odradek[wheel]"}),
        ("lint", {".[demo]", "odradek[test]"}),
        ("quick", {".[demo]", "odradek[test]"}),
        ("test-package", {".[demo]", "odradek[test]", "odradek[dev]"}),
    ],
)
def test_make_installs_only_what_a_target_needs(target: str, extras: set[str], tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "setup.py"):
        shutil.copy(REPOSITORY / name, tmp_path)
    command = ["make", "--dry-run", target]
    recipe = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True).stdout
    assert set(re.findall(r"pip install .*'(\S+\[\w+\])'", recipe)) == extras
