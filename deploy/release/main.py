"""Builds everything that is published of a version. ``deploy/release/build`` runs it; decision 38 has the reasons.

Works in ``.build/release``, and replaces the files of Odradek in ``dist/`` only when all of it has succeeded.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from deploy.release.checksums import write_checksums
from deploy.release.failure import ReleaseFailed
from deploy.release.headers import find_headers
from deploy.release.interpreters import find_interpreters
from deploy.release.sbom import write_sbom
from deploy.release.targets import OPTIONAL, TARGETS, VERSIONS
from deploy.release.tree import copy_tree, epoch_of, faults, version_of
from deploy.release.wheels import build_sdist, build_wheel, check_metadata, compiled_directory, make_tools, unpack

PROJECT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
WORK = PROJECT / ".build/release"
OF_PACKAGES = "3.11"
"""The Python of Debian 12, for which the Debian package and the image are made."""
OF_PACKAGES_TARGET = f"manylinux-{platform.machine()}"
"""The target of the wheel in the image. The program of this wheel also writes the man pages of all packages."""
PACKAGED_TARGETS = ("manylinux-x86_64", "manylinux-aarch64")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="deploy/release/build", description="Build wheels, sdist, packages, SBOM and SHA256SUMS into dist/."
    )
    parser.add_argument(
        "--python",
        action="append",
        choices=VERSIONS,
        metavar="X.Y",
        help=f"only wheels for this Python; repeatable ({', '.join(VERSIONS)})",
    )
    parser.add_argument(
        "--target",
        action="append",
        choices=TARGETS,
        metavar="NAME",
        help=f"only wheels for this system; repeatable ({', '.join(TARGETS)})",
    )
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="leave out wheels and packages for which headers or tools are missing",
    )
    parser.add_argument(
        "--image", action="store_true", help="also the root file system of the image, as a tar archive (root)"
    )
    parser.add_argument(
        "--allow-dirty", action="store_true", help="build although the tree or CHANGELOG.md is not ready"
    )
    parser.add_argument(
        "--output", type=Path, default=PROJECT / "dist", help="directory of the results (default: dist)"
    )
    options = parser.parse_args()
    os.umask(0o022)
    try:
        build(
            Selection(tuple(options.python or VERSIONS), tuple(options.target or TARGETS), options.allow_missing),
            options.image,
            options.allow_dirty,
            options.output,
        )
    except ReleaseFailed as error:
        sys.exit(f"release: {error}")


class Selection(NamedTuple):
    """The wheels that are wanted."""

    versions: tuple[str, ...]
    targets: tuple[str, ...]
    allow_missing: bool


def build(selection: Selection, image: bool, allow_dirty: bool, output: Path) -> None:
    """:raises ReleaseFailed: something is missing or fails; then `output` is as it was."""
    found = list(faults(PROJECT))
    for fault in found:
        print(f"release: {'warning: ' if allow_dirty else ''}{fault}", file=sys.stderr)
    if found and not allow_dirty:
        raise ReleaseFailed("the tree is not ready for a release; --allow-dirty builds it for a trial")
    shipped = OF_PACKAGES in selection.versions and OF_PACKAGES_TARGET in selection.targets
    if image and not shipped:
        raise ReleaseFailed(
            f"--image needs --python {OF_PACKAGES} and --target {OF_PACKAGES_TARGET}, for which the image is made"
        )
    if image and os.geteuid() != 0:
        raise ReleaseFailed("--image needs root: it makes a root file system")
    python = find_interpreters((OF_PACKAGES,), os.environ)[OF_PACKAGES] if shipped else None
    epoch = epoch_of(PROJECT)
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    WORK.mkdir(parents=True, exist_ok=True)
    headers, left_out = headers_of(selection)
    missing = package_tools(selection) if python is not None else {}
    left_out += missing.values()
    with tempfile.TemporaryDirectory(dir=WORK, prefix="run-") as temporary:
        results = Path(temporary) / "results"
        results.mkdir()
        wheels = python_packages(selection, headers, Path(temporary), results, epoch)
        if python is not None:
            shipped_packages(wheels[OF_PACKAGES, OF_PACKAGES_TARGET], python, Path(temporary), results, image, epoch)
            others = [wheels[OF_PACKAGES, name] for name in foreign_targets(selection) if name not in missing]
            more_packages(others, python, Path(temporary), results, with_rpm="rpmbuild" not in missing)
        write_checksums(results)
        replace(output, results)
    for path in sorted(output.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path}")
    for line in left_out:
        say(line)


def headers_of(selection: Selection) -> tuple[dict[str, Path], list[str]]:
    """The headers of each version, and for each version without headers a line that names the wheels that are left out. It is
    printed at once, too.

    :raises ReleaseFailed: a version that is not optional has no headers, and ``--allow-missing`` is not given.
    """
    headers: dict[str, Path] = {}
    left_out: list[str] = []
    for version in selection.versions:
        try:
            headers[version] = find_headers(version, WORK, os.environ)
        except ReleaseFailed as error:
            left_out.append(f"left out: the wheels for Python {version} ({', '.join(selection.targets)}): {error}")
            say(left_out[-1])
            if version not in OPTIONAL and not selection.allow_missing:
                raise ReleaseFailed(f"no headers of Python {version}; --allow-missing leaves its wheels out") from None
    if not headers:
        raise ReleaseFailed("there are no headers for any wheel")
    return headers, left_out


def foreign_targets(selection: Selection) -> list[str]:
    """The selected targets with packages whose programs do not run on this machine."""
    return [name for name in PACKAGED_TARGETS if name in selection.targets and name != OF_PACKAGES_TARGET]


def package_tools(selection: Selection) -> dict[str, str]:
    """For each target, or ``rpmbuild``, whose packages cannot be made here a line that says so. It is printed at once, too.

    :raises ReleaseFailed: a command is missing, and ``--allow-missing`` is not given.
    """
    lines: dict[str, str] = {}
    for name in foreign_targets(selection):
        command = f"{TARGETS[name].machine}-linux-gnu-strip"
        if shutil.which(command) is None:
            lines[name] = f"left out: the packages of {name}: the command {command} is missing (binutils-*-linux-gnu)"
    if shutil.which("rpmbuild") is None:
        lines["rpmbuild"] = "left out: the RPM packages: the command rpmbuild is missing (rpm)"
    for line in lines.values():
        say(line)
    if lines and not selection.allow_missing:
        raise ReleaseFailed("commands for packages are missing; --allow-missing leaves the packages out")
    return lines


def python_packages(
    selection: Selection, headers: dict[str, Path], temporary: Path, results: Path, epoch: int
) -> dict[tuple[str, str], Path]:
    """Build the sdist, and from it the wheels; returns these by version and target."""
    copy_tree(PROJECT, temporary / "tree")
    needed = HERE / "requirements-release.txt"
    tools = make_tools(Path(sys.executable), WORK / "tools", needed, WORK / "tools.log", epoch)
    sdist = build_sdist(tools, temporary / "tree", results, WORK / "sdist.log", epoch)
    root = unpack(sdist, temporary / "unpacked")
    compiled = compiled_directory(root, needed.read_text(), WORK)
    wheels: dict[tuple[str, str], Path] = {}
    for version, directory in headers.items():
        for name in selection.targets:
            say(f"the wheel for Python {version}, {name}")
            log = WORK / f"wheel-{version}-{name}.log"
            wheels[version, name] = build_wheel(
                tools, root, compiled, TARGETS[name], version, directory, results, log, epoch
            )
    check_metadata(tools, [sdist, *wheels.values()], WORK / "twine.log", epoch)
    return wheels


def shipped_packages(wheel: Path, python: Path, temporary: Path, results: Path, image: bool, epoch: int) -> None:
    """Make the Debian package and the SBOM of what it contains, and the image's root file system if `image`."""
    say("the Debian package")
    run(PROJECT / "deploy/debian/build", wheel, "--output", results, PYTHON=str(python))
    say("the SBOM")
    (package,) = results.glob("odradek_*.deb")
    run("dpkg-deb", "--extract", package, temporary / "shipped")
    bill = results / f"odradek-{version_of(PROJECT)}.cdx.json"
    tools = make_tools(python, WORK / "tools-sbom", HERE / "requirements-sbom.txt", WORK / "tools-sbom.log", epoch)
    write_sbom(temporary / "shipped/opt/odradek/venv", tools, PROJECT, bill, temporary / "sbom")
    if image:
        say("the root file system of the image")
        run(
            PROJECT / "deploy/image/build-rootfs",
            "--wheel",
            wheel,
            "--tar",
            results / f"odradek-{version_of(PROJECT)}-rootfs.tar.gz",
        )


def more_packages(wheels: list[Path], python: Path, temporary: Path, results: Path, with_rpm: bool) -> None:
    """Make the Debian packages for other processors from `wheels`, and an RPM package from each Debian package."""
    (program,) = (temporary / "shipped/opt/odradek/venv").glob("lib/python3.*/site-packages")
    for wheel in wheels:
        say(f"the Debian package of {wheel.name}")
        package = [PROJECT / "deploy/debian/build", wheel, "--output", results, "--program", program]
        run(*package, PYTHON=str(python))
    if with_rpm:
        for debian in sorted(results.glob("odradek_*.deb")):
            say(f"the RPM package of {debian.name}")
            run(PROJECT / "deploy/rpm/build", debian, "--output", results, PYTHON=str(python))


def run(*command: str | Path, **environment: str) -> None:
    done = subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise ReleaseFailed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-4000:]}")


def replace(output: Path, results: Path) -> None:
    """Put the results into `output` instead of the files of an earlier release, SHA256SUMS last."""
    output.mkdir(parents=True, exist_ok=True)
    for pattern in ("SHA256SUMS", "odradek-*", "odradek_*"):
        for old in output.glob(pattern):
            old.unlink()
    for path in sorted(results.iterdir(), key=lambda path: path.name == "SHA256SUMS"):
        shutil.move(path, output / path.name)


def say(what: str) -> None:
    print(f"release: {what}", file=sys.stderr)


if __name__ == "__main__":
    main()
