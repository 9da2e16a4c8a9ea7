"""A copy of what a checkout holds after a build, and the sdist that is made from it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.toolchains import REPOSITORY

SOURCES = ("README.md", "CHANGELOG.md", "LICENSE", "MANIFEST.in", "Makefile", "pyproject.toml", "setup.py")
DIRECTORIES = ("_ext", "bench", "broker", "deploy", "docs", "grafana")
GENERATED = (
    "broker/odradek/_ext/shm/removed.c",
    "broker/odradek/_ext/shm/removed.so",
    "broker/odradek/__pycache__/share.pyc",
)
"""What builds leave in a checkout; ``*.egg-info/SOURCES.txt`` of an earlier version can list it."""


def run(*command: str | Path, cwd: Path, environment: Mapping[str, str] | None = None) -> str:
    """The output of a command, in an environment without a trace of the checkout; fails the test with it if it fails."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ODRADEK", "VIRTUAL"))
    }
    done = subprocess.run(
        command,
        cwd=cwd,
        env=inherited | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1500,
        check=False,
    )
    if done.returncode:
        pytest.fail(
            f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-4000:]}", pytrace=False
        )
    return done.stdout


def copy_checkout(destination: Path, *left_out: str) -> Path:
    """The files that packages are made of, and `GENERATED` ones, but for the directories that are `left_out`."""
    destination.mkdir()
    for name in SOURCES:
        shutil.copy(REPOSITORY / name, destination)
    ignored = shutil.ignore_patterns("*.c", "*.so", "__pycache__")
    for name in DIRECTORIES:
        if name not in left_out:
            shutil.copytree(REPOSITORY / name, destination / name, symlinks=True, ignore=ignored)
    return destination


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_checkout(tmp_path_factory.mktemp("packaging") / "checkout")
    for name in GENERATED:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("generated")
    listed = root / "odradek.egg-info" / "SOURCES.txt"
    listed.parent.mkdir()
    listed.write_text("\n".join(GENERATED))
    return root


@pytest.fixture(scope="session")
def sdist(checkout: Path) -> Path:
    """The archive that `python -m build --sdist` makes."""
    backend = "import setuptools.build_meta as backend; backend.build_sdist('dist')"
    run(sys.executable, "-c", backend, cwd=checkout)
    (archive,) = (checkout / "dist").glob("odradek-*.tar.gz")
    return archive
