"""Makes the Debian package from a wheel, without debhelper: a staged tree, and `dpkg-deb` (decision 38).

Uses only the standard library, and runs on the Python for which the package is made: 3.11, that of Debian 12.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from email.utils import formatdate
from pathlib import Path

from deploy.debian.copyright import copyright_text
from deploy.debian.generated import completion_files, man_pages
from deploy.release.environment import PLACE, EnvironmentFailed, epoch, finish_tree, machine_of, make_environment

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
UNITS = PROJECT / "deploy/systemd"
REQUIREMENTS = PROJECT / "deploy/release/requirements.txt"
REPORT_REQUIREMENTS = PROJECT / "deploy/release/requirements-report.txt"
BUILD_REQUIREMENTS = PROJECT / "deploy/release/requirements-build.txt"
PYTHON = "3.11"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MAINTAINER = "Odradek developers <developers@odradek.invalid>"
COMPRESSIONS = {"xz": ["-Zxz"], "zstd": ["-Zzstd"], "gzip": ["-Zgzip", "-z1"]}
"""Options of dpkg-deb: xz for releases, gzip for trials, because it is quick."""
SETTINGS = ("server.properties", "report.env")
PACKAGED_UNITS = (
    "odradek-report.timer", "odradek-load@.timer", "odradek-report.service", "odradek-load@.service", "odradek-mirror@.service",
    "odradek.service",
)  # fmt: skip
"""The units of the package, in the order in which it stops them: what starts others is first, and the broker is last."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="deploy/debian/build", description="Make the Debian package of Odradek.")
    parser.add_argument("wheel", type=Path, help="a wheel of Odradek for CPython 3.11")
    parser.add_argument("--revision", default="1", help="the part of the version after the hyphen (default: 1)")
    parser.add_argument(
        "--output", type=Path, default=PROJECT / "dist", help="directory of the package (default: dist)"
    )
    parser.add_argument(
        "--program",
        type=Path,
        help="site-packages of this version for this machine, which write the man pages of a package for another processor",
    )
    parser.add_argument("--compression", choices=COMPRESSIONS, default="xz", help="default: xz")
    options = parser.parse_args()
    if not re.fullmatch(r"[A-Za-z0-9+.~]+", options.revision):
        parser.error(f"--revision {options.revision}: a revision has letters, digits, and + . ~ only")
    if sys.version_info[:2] != (3, 11):
        sys.exit(
            f"deploy/debian/build: runs on Python {PYTHON} only, which is that of Debian 12; set PYTHON=/path/to/python3.11"
        )
    if shutil.which("dpkg-deb") is None:
        sys.exit("deploy/debian/build: the command dpkg-deb is missing: install dpkg")
    try:
        print(build(options.wheel, options.revision, options.output, options.compression, options.program))
    except EnvironmentFailed as error:
        sys.exit(f"deploy/debian/build: {error}")


def build(wheel: Path, revision: str, output: Path, compression: str, program: Path | None = None) -> Path:
    """Return the path of the package that was made in the directory `output`.

    :param program: the site-packages of an environment that runs on this machine, if that of the wheel does not.
    :raises EnvironmentFailed: the Python environment cannot be made.
    """
    os.umask(0o022)
    version = f"{debian_version(wheel.name.split('-')[1])}-{revision}"
    architecture = ARCHITECTURES[machine_of(wheel)]
    with tempfile.TemporaryDirectory(prefix="odradek-deb-") as temporary:
        root = Path(temporary) / "root"
        environment = root / PLACE.lstrip("/")
        make_environment(wheel, REQUIREMENTS, BUILD_REQUIREMENTS, environment, f"/usr/bin/python{PYTHON}")
        stage(root, environment, version, program)
        finish_tree(root, epoch())
        write_control(root, environment, version, architecture)
        for name in SETTINGS:
            (root / "etc/odradek" / name).chmod(0o640)
        (root / "etc/odradek").chmod(0o750)
        output.mkdir(parents=True, exist_ok=True)
        package = output / f"odradek_{version}_{architecture}.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", *COMPRESSIONS[compression], "--build", root, package],
            env=os.environ | {"SOURCE_DATE_EPOCH": str(epoch())},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    return package


def debian_version(version: str) -> str:
    """The version of a wheel (PEP 440) as a version of Debian, in the same order: 0.2.0.dev1, 0.2.0rc1, 0.2.0."""
    found = re.fullmatch(r"(\d+(?:\.\d+)*)((?:a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9.]+)?", version)
    if found is None:
        raise EnvironmentFailed(f"the version {version} of the wheel is not one of PEP 440")
    release, before, after, unfinished, local = (part or "" for part in found.groups())
    return release + (f"~{before}" if before else "") + after + unfinished.replace(".", "~~") + local


def stage(root: Path, environment: Path, version: str, program: Path | None) -> None:
    """Fill `root` with all files of the package but for the environment, which it has already."""
    (environment / "share/odradek").rename(root / "opt/odradek/share")
    shutil.rmtree(environment / "share")
    for requirements in (REQUIREMENTS, REPORT_REQUIREMENTS, BUILD_REQUIREMENTS):
        install(requirements, root / "opt/odradek" / requirements.name)
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/odradek").symlink_to(f"{PLACE}/bin/odradek")
    for unit in PACKAGED_UNITS:
        install(UNITS / unit, root / "usr/lib/systemd/system" / unit)
    install(UNITS / "odradek.sysusers", root / "usr/lib/sysusers.d/odradek.conf")
    for name in SETTINGS:
        install(UNITS / name, root / "etc/odradek" / name)
    documents = root / "usr/share/doc/odradek"
    compress((PROJECT / "CHANGELOG.md").read_text(), documents / "changelog.gz")
    compress(changelog(version), documents / "changelog.Debian.gz")
    (documents / "copyright").write_text(copyright_text(environment / f"lib/python{PYTHON}/site-packages"))
    install(HERE / "README.Debian", documents / "README.Debian")
    install(HERE / "lintian-overrides", root / "usr/share/lintian/overrides/odradek")
    packages = program or environment / f"lib/python{PYTHON}/site-packages"
    for name, text in man_pages(packages).items():
        compress(text, root / f"usr/share/man/man{name.rpartition('.')[2]}" / f"{name}.gz")
    for place, text in completion_files(packages).items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text)


def install(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def compress(text: str, target: Path) -> None:
    """Write `text` as policy wants documents: compressed as much as possible, without a time and a name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def maintainer() -> str:
    """Who made the package: DEBFULLNAME and DEBEMAIL, as for Debian's own tools; without both, an address that does not exist.

    :raises EnvironmentFailed: one of them is missing, or DEBEMAIL is no address.
    """
    name, address = os.environ.get("DEBFULLNAME", ""), os.environ.get("DEBEMAIL", "")
    if not name and not address:
        return MAINTAINER
    whole = address if "<" in address else f"{name} <{address}>"  # DEBEMAIL may contain the name, too
    if not re.fullmatch(r"[^<>\n]*[^<>\s] <[^<>@\s]+@[^<>@\s]+>", whole):
        raise EnvironmentFailed(
            f"DEBFULLNAME={name} and DEBEMAIL={address} must be the name and the address of the package's maintainer, such as "
            "DEBFULLNAME='Example platform team' DEBEMAIL=platform@example.net"
        )
    return whole


def changelog(version: str) -> str:
    text = "  * Built from the wheel of this version. changelog.gz lists the changes."
    return f"odradek ({version}) bookworm; urgency=medium\n\n{text}\n\n -- {maintainer()}  {formatdate(epoch())}\n"


def write_control(root: Path, environment: Path, version: str, architecture: str) -> None:
    """Write DEBIAN/: the fields, the list of settings files, the checksums, and the maintainer scripts."""
    control = root / "DEBIAN"
    control.mkdir()
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    fields = (HERE / "control").read_text()
    values = {
        "VERSION": version,
        "ARCHITECTURE": architecture,
        "MAINTAINER": maintainer(),
        "INSTALLED_KIB": str(sum(-(-path.stat().st_size // 1024) for path in files)),
        "GLIBC": f"2.{oldest_glibc(environment)}",
    }
    (control / "control").write_text(re.sub(r"@(\w+)@", lambda found: values[found[1]], fields))
    (control / "conffiles").write_text("".join(f"/etc/odradek/{name}\n" for name in SETTINGS))
    checksums = subprocess.run(
        ["md5sum", *(path.relative_to(root) for path in files if path.relative_to(root).parts[0] != "etc")],
        cwd=root,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    (control / "md5sums").write_bytes(checksums)
    finish_tree(control, epoch())
    for script in ("preinst", "postinst", "prerm", "postrm"):
        (control / script).write_text(maintainer_script(script))
        (control / script).chmod(0o755)


def maintainer_script(name: str) -> str:
    """The text of a script of dpkg, with the names of the units."""
    return (HERE / "maintainer" / name).read_text().replace("@UNITS@", " ".join(PACKAGED_UNITS))


def oldest_glibc(environment: Path) -> int:
    """The minor version of the oldest GNU C library on which all wheels of the environment run, from their tags."""
    newest = 17
    for wheel in environment.rglob("*.dist-info/WHEEL"):
        tags = re.findall(r"(?m)^Tag: \S*?manylinux_2_(\d+)_", wheel.read_text())
        newest = max(newest, min(map(int, tags), default=0))  # a wheel with several tags runs on the oldest of them
    return newest


if __name__ == "__main__":
    main()
