"""Wheels for tests of installations: that of this checkout, and copies with another version, or with a fault."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

from tests import toolchains
from tests.toolchains import REPOSITORY


def build(directory: Path) -> Path:
    """A wheel of this checkout in `directory`. Uses the modules that are compiled already."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--no-build-isolation", "--no-deps", f"--wheel-dir={directory}", str(REPOSITORY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = directory.glob("odradek-*.whl")
    return wheel


def wheelhouse() -> Path:
    """A tar file of the wheels that Odradek needs, from PyPI; kept in `.build/`."""
    project = REPOSITORY / "pyproject.toml"
    needed = tomllib.loads(project.read_text())["project"]["dependencies"]

    def download(directory: Path) -> None:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        toolchains.fetch([*pip, "--only-binary=:all:", f"--dest={directory}", *needed])
        with tarfile.open(directory / "wheels.tar", "w") as archive:
            for wheel in sorted(directory.glob("*.whl")):
                archive.add(wheel, wheel.name)

    return toolchains.make_product("wheelhouse-tar", [], download, texts=[sys.version, *needed]) / "wheels.tar"


def changed(wheel: Path, version: str, directory: Path, file: str = "", text: str = "") -> Path:
    """A copy of `wheel` with another version, and with `text` at the end of one `file`."""
    former = wheel.name.split("-")[1]
    copy = directory / wheel.name.replace(f"odradek-{former}-", f"odradek-{version}-")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        assert not file or file in old.namelist()
        for member in old.infolist():
            content = old.read(member)
            name = member.filename.replace(f"odradek-{former}.", f"odradek-{version}.")
            if name.endswith(("/METADATA", "/RECORD", "odradek/__init__.py")):
                content = content.replace(former.encode(), version.encode())
            if member.filename == file:
                content += text.encode()
            member.filename = name
            new.writestr(member, content)
    return copy
