"""Makes the Python environment that the .deb and the image contain: a wheel of Odradek and its pinned dependencies.

Uses only the standard library, because the Containerfile runs it in a fresh Debian::

    python3 environment.py --wheel odradek-0.1.0-cp311-....whl --requirements requirements.txt \
        --build-requirements requirements-build.txt --into /rootfs/opt/odradek/venv

The environment is a virtual environment at `PLACE`, without pip, setuptools and activation scripts. It runs on the Python of
Debian 12 (`--interpreter`), which need not exist where the environment is made. The same inputs and SOURCE_DATE_EPOCH (seconds)
give the same bytes. Everything that is downloaded has a version and a hash that one of the two requirements files names: the
dependencies, and what makes wheels of those that exist only as source.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import os
import platform
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

PLACE = "/opt/odradek/venv"
COMMAND = "odradek"
ONLY_AS_SOURCE = "pure-sasl,pyspark"
"""Dependencies without a wheel on PyPI: Python modules (and Java archives), which pip packs with the pinned setuptools."""
GLIBCS = ("manylinux_2_28", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
"""The tags of wheels that run on Debian 12. pip needs them for another processor: it knows only this machine's."""
PT_LOAD = 1
PAGE = 4096
UNNEEDED = (
    "confluent_kafka/schema_registry",
    "kazoo/tests",
    "**/*.c",
    "**/*.h",
    "**/*.pxd",
    "**/*.pyx",
)
"""Parts of dependencies that Odradek never imports: clients of a schema registry; tests; native sources."""
SCRIPT = f"""#!{PLACE}/bin/python
import sys

from odradek.cli.main import main

sys.exit(main())
"""


class EnvironmentFailed(Exception):
    """The environment cannot be made; the text says why."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the Python environment of a package of Odradek.")
    parser.add_argument(
        "--wheel",
        type=Path,
        required=True,
        nargs="+",
        metavar="WHEEL",
        help="a wheel of Odradek for the Python that runs this script; of several the one for glibc and this machine",
    )
    parser.add_argument("--requirements", type=Path, required=True, help="dependencies with versions and hashes")
    parser.add_argument(
        "--build-requirements", type=Path, required=True, help="what makes wheels, with versions and hashes"
    )
    parser.add_argument(
        "--into", type=Path, required=True, help="directory that becomes the environment; it must not exist"
    )
    parser.add_argument(
        "--interpreter", help="Python that the environment uses at run time (default: /usr/bin/pythonX.Y)"
    )
    options = parser.parse_args()
    try:
        make_environment(
            one_of(options.wheel), options.requirements, options.build_requirements, options.into, options.interpreter
        )
    except EnvironmentFailed as error:
        sys.exit(f"environment: {error}")


def make_environment(
    wheel: Path, requirements: Path, build_requirements: Path, into: Path, interpreter: str | None = None
) -> None:
    """Make the environment in the directory `into` with the Python that runs this function.

    The environment is for the processor of the wheel, which need not be that of this machine.

    :param interpreter: the absolute path of the Python that uses the environment; its minor version must be this one's.
    :raises EnvironmentFailed: the wheel is for another Python, a dependency cannot be installed or is missing in
        `requirements`, or `into` exists.
    """
    version = "{}.{}".format(*sys.version_info[:2])
    check_wheel(wheel, version)
    if into.exists():
        raise EnvironmentFailed(f"{into} exists: remove it, or choose another directory")
    into.parent.mkdir(parents=True, exist_ok=True)
    try:
        fill(wheel, requirements, build_requirements, into, interpreter or f"/usr/bin/python{version}", version)
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        raise


def fill(wheel: Path, requirements: Path, build_requirements: Path, into: Path, interpreter: str, version: str) -> None:
    machine = machine_of(wheel)
    with tempfile.TemporaryDirectory(prefix="odradek-environment-") as temporary:
        tools, wheels = Path(temporary) / "tools", Path(temporary) / "wheels"
        run(sys.executable, "-m", "venv", tools)
        run(sys.executable, "-m", "venv", "--without-pip", "--symlinks", into)
        pip = [tools / "bin/python", "-m", "pip", "--disable-pip-version-check"]
        run(*pip, "install", "--quiet", "--require-hashes", "--only-binary=:all:", "-r", build_requirements)
        # With build isolation, pip would get the newest setuptools for the dependencies that exist only as source.
        make = [*pip, "wheel", "--quiet", "--require-hashes", "--no-build-isolation", "--use-pep517", "--no-deps"]
        binary = ["--only-binary=:all:", f"--no-binary={ONLY_AS_SOURCE}"]
        packages = into / f"lib/python{version}/site-packages"
        offline = ["--quiet", "--no-compile", "--no-deps", "--no-warn-script-location"]
        if machine == platform.machine():
            run(*make, *binary, "-r", requirements, "--wheel-dir", wheels)
            pip += ["--python", into / "bin/python"]
            run(*pip, "install", "--no-index", *offline, *sorted(wheels.iterdir()), wheel)
            run(*pip, "check")
        else:
            foreign = foreign_options(version, machine)
            sources, others = split_requirements(requirements, Path(temporary))
            run(*make, *binary, "-r", sources, "--wheel-dir", wheels)
            get = [*pip, "download", "--quiet", "--require-hashes", "--only-binary=:all:", "--no-deps"]
            run(*get, *foreign, "-r", others, "--dest", wheels)
            target = Path(temporary) / "target"
            put = [*pip, "install", "--no-index", *offline, *foreign, "--target", target]
            run(*put, *sorted(wheels.iterdir()), wheel)
            adopt(target, packages, into)
    remove_unneeded(into)
    strip_debug_information(packages, machine)
    place(into, interpreter, version)
    for distribution in packages.glob("*.dist-info"):
        write_record(distribution, into)
    finish_tree(into, epoch())
    compile_modules(into, packages)


def foreign_options(version: str, machine: str) -> list[str]:
    """The options with which pip takes wheels for another processor."""
    platforms = [f"--platform={name}_{machine}" for name in GLIBCS]
    return [*platforms, "--only-binary=:all:", f"--python-version={version}", "--implementation=cp"]


def split_requirements(requirements: Path, directory: Path) -> tuple[Path, Path]:
    """Write two files in `directory`: the requirements without a wheel on PyPI, and the others."""
    parts: dict[bool, list[str]] = {True: [], False: []}
    names = tuple(f"{name}==" for name in ONLY_AS_SOURCE.split(","))
    of_source = False
    for line in requirements.read_text().splitlines(keepends=True):
        if not line.startswith((" ", "#")):
            of_source = line.startswith(names)
        parts[of_source].append(line)
    sources, others = directory / "only-as-source.txt", directory / "wheels.txt"
    sources.write_text("".join(parts[True]))
    others.write_text("".join(parts[False]))
    return sources, others


def adopt(target: Path, packages: Path, into: Path) -> None:
    """Move the files that pip has installed into the directory `target` to their places in an environment."""
    shutil.rmtree(target / "bin", ignore_errors=True)
    (target / "share").rename(into / "share")
    for path in target.iterdir():
        path.rename(packages / path.name)
    for record in packages.glob("*.dist-info/RECORD"):
        record.write_text(re.sub(r"(?m)^\.\./\.\./(?=share/)", "../../../", record.read_text()))


def one_of(wheels: Sequence[Path]) -> Path:
    """The wheel to install: the only one, or of those of a release the one for glibc and the processor of this machine.

    :raises EnvironmentFailed: there is none, or there are several of them.
    """
    fitting = [
        wheel for wheel in wheels if "-manylinux" in wheel.name and wheel.name.endswith(f"_{platform.machine()}.whl")
    ]
    chosen = wheels if len(wheels) == 1 else fitting
    if len(chosen) != 1:
        names = ", ".join(wheel.name for wheel in wheels)
        raise EnvironmentFailed(f"{len(chosen)} of these wheels are for glibc and {platform.machine()}: {names}")
    return chosen[0]


def machine_of(wheel: Path) -> str:
    """The processor of a wheel, from its name.

    :raises EnvironmentFailed: the name has none.
    """
    found = re.search(r"_(x86_64|aarch64)\.whl$", wheel.name)
    if found is None:
        raise EnvironmentFailed(f"{wheel.name} is not a wheel for x86_64 or aarch64")
    return found[1]


def check_wheel(wheel: Path, version: str) -> None:
    found = re.fullmatch(r"odradek-[^-]+-cp3(\d+)-cp3\d+-[^-]+\.whl", wheel.name)
    if found is None or not wheel.is_file():
        raise EnvironmentFailed(f"{wheel} is not a wheel of Odradek; `make wheel` makes one in dist/")
    if f"3.{found[1]}" != version:
        raise EnvironmentFailed(f"{wheel.name} is for CPython 3.{found[1]}, but {sys.executable} is Python {version}")


def run(*command: str | Path) -> None:
    """Run a command. Its output is shown only if it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise EnvironmentFailed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-4000:]}")


def epoch() -> int:
    """The time of all files, in seconds: SOURCE_DATE_EPOCH, or 1980-01-02."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or 315619200)


def remove_unneeded(environment: Path) -> None:
    """Remove what only development in the environment uses: native sources, activation scripts, commands of dependencies."""
    for path in (environment / "bin").iterdir():
        path.unlink()
    shutil.rmtree(environment / "include", ignore_errors=True)
    (environment / "lib64").unlink(missing_ok=True)
    for path in environment.rglob("__pycache__"):
        shutil.rmtree(path)
    for packages in environment.glob("lib/python3.*/site-packages"):
        for pattern in UNNEEDED:
            for path in list(packages.glob(pattern)):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()


def strip_debug_information(packages: Path, machine: str) -> None:
    """Remove debug information from the modules of dependencies: half of the environment. Names of functions remain.

    A library that strip would damage stays as it is: of some that patchelf has changed, strip moves segments to places that
    the loader refuses (libgfortran of numpy, in Debian 12).
    """
    strip = "strip" if machine == platform.machine() else f"{machine}-linux-gnu-strip"
    if shutil.which(strip) is None:
        package = "binutils" if strip == "strip" else f"binutils-{machine}-linux-gnu"
        raise EnvironmentFailed(f"the command {strip} is missing: install {package}")
    for library in sorted(packages.rglob("*.so*")):
        if library.is_file() and not library.is_symlink() and b".debug_info" in library.read_bytes():
            stripped = library.with_name(f"{library.name}.stripped")
            run(strip, "--strip-debug", "--enable-deterministic-archives", "-o", stripped, library)
            if is_loadable(stripped.read_bytes()):
                stripped.chmod(stat.S_IMODE(library.stat().st_mode))
                stripped.replace(library)
            else:
                stripped.unlink()


def is_loadable(library: bytes) -> bool:
    """Whether each segment of a 64-bit ELF file is at a place where the loader can map it: at the same offset within a page in
    the file and in memory."""
    (headers,) = struct.unpack_from("<Q", library, 0x20)
    size, count = struct.unpack_from("<HH", library, 0x36)
    for at in range(headers, headers + count * size, size):
        kind, _, offset, address = struct.unpack_from("<IIQQ", library, at)
        (alignment,) = struct.unpack_from("<Q", library, at + 0x30)
        if kind == PT_LOAD and (alignment % PAGE or (offset - address) % max(alignment, 1)):
            return False
    return True


def place(environment: Path, interpreter: str, version: str) -> None:
    """Make the environment one of `interpreter` at `PLACE`."""
    executables = environment / "bin"
    (executables / "python").symlink_to(interpreter)
    for name in ("python3", f"python{version}"):
        (executables / name).symlink_to("python")
    (executables / COMMAND).write_text(SCRIPT)
    (executables / COMMAND).chmod(0o755)
    home = Path(interpreter).parent
    (environment / "pyvenv.cfg").write_text(
        f"home = {home}\ninclude-system-site-packages = false\nversion = {version}\n"
    )


def write_record(distribution: Path, environment: Path) -> None:
    """Write the list of a distribution's files again: those that exist, with their present hashes and sizes."""
    record = distribution / "RECORD"
    packages = distribution.parent
    with open(record, newline="") as file:
        names = sorted(row[0] for row in csv.reader(file) if row)
    (distribution / "direct_url.json").unlink(missing_ok=True)  # it has the path of the wheel on this machine
    with open(record, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for name in names:
            path = packages / name
            if path == record:
                writer.writerow([name, "", ""])
            elif path.is_file() and environment in path.resolve().parents:
                content = path.read_bytes()
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                writer.writerow([name, f"sha256={digest}", len(content)])


def finish_tree(root: Path, time_s: int) -> None:
    """Give all files below `root` the same time, and modes that do not depend on the umask."""
    for path in [*everything(root), root]:
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode):
            path.chmod(0o755 if stat.S_ISDIR(mode) or (mode & stat.S_IXUSR and not is_library(path)) else 0o644)
        os.utime(path, (time_s, time_s), follow_symlinks=False)


def is_library(path: Path) -> bool:
    return ".so" in path.suffixes


def everything(root: Path) -> Iterable[Path]:
    return sorted(root.rglob("*"), reverse=True)


def compile_modules(environment: Path, packages: Path) -> None:
    """Compile every module with the path that it has at `PLACE`, because the broker cannot write there at run time.

    Pygments' lexers, 5 MB when compiled, are left out: rich imports one of them at most, to show source code.
    """
    command = [sys.executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "timestamp"]
    run(*command, "-x", "/pygments/lexers/", "-s", environment, "-p", PLACE, packages)
    for path in environment.rglob("__pycache__"):
        for compiled in path.iterdir():
            compiled.chmod(0o644)
    finish_tree(environment, epoch())


if __name__ == "__main__":
    main()
