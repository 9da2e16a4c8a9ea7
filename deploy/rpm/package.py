"""Makes the RPM package from the tree of the Debian package, with rpmbuild. Uses only the standard library."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from deploy.debian.package import ARCHITECTURES, PACKAGED_UNITS, PROJECT, SETTINGS

HERE = Path(__file__).resolve().parent
OF_DEBIAN = ("usr/share/lintian", "usr/share/doc/odradek/README.Debian", "usr/share/doc/odradek/changelog.Debian.gz")
OWNED = ("opt/odradek", "etc/odradek", "usr/share/doc/odradek", "usr/share/licenses/odradek")
"""Directories that belong to the package. All others on the way to its files belong to the system."""


class PackageFailed(Exception):
    """The package cannot be made; the text says why."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="deploy/rpm/build", description="Make the RPM package of Odradek.")
    parser.add_argument("package", type=Path, help="the Debian package of the same version and processor")
    parser.add_argument(
        "--output", type=Path, default=PROJECT / "dist", help="directory of the package (default: dist)"
    )
    options = parser.parse_args()
    try:
        print(build(options.package, options.output))
    except PackageFailed as error:
        sys.exit(f"deploy/rpm/build: {error}")


def build(package: Path, output: Path) -> Path:
    """Return the path of the RPM package that was made in the directory `output`.

    :raises PackageFailed: a command is missing or fails.
    """
    for command, needed in (("dpkg-deb", "dpkg"), ("rpmbuild", "rpm")):
        if shutil.which(command) is None:
            raise PackageFailed(f"the command {command} is missing: install {needed}")
    fields = {
        name: run("dpkg-deb", "--field", package, name).strip() for name in ("Version", "Architecture", "Depends")
    }
    version, _, release = fields["Version"].rpartition("-")
    glibc = re.search(r"libc6 \(>= ([\d.]+)\)", fields["Depends"])
    if glibc is None:
        raise PackageFailed(f"{package} does not name the C library that it needs: {fields['Depends']}")
    machine = {debian: name for name, debian in ARCHITECTURES.items()}[fields["Architecture"]]
    values = {"VERSION": version, "RELEASE": release, "GLIBC": glibc[1], "UNITS": " ".join(PACKAGED_UNITS)}
    with tempfile.TemporaryDirectory(prefix="odradek-rpm-") as temporary:
        work = Path(temporary)
        tree = work / "tree"
        run("dpkg-deb", "--extract", package, tree)
        for name in OF_DEBIAN:
            path = tree / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        zsh = tree / "usr/share/zsh"
        (zsh / "vendor-completions").rename(zsh / "site-functions")  # where zsh of these distributions looks
        licence = tree / "usr/share/licenses/odradek/LICENSE"
        licence.parent.mkdir(parents=True)
        shutil.copyfile(PROJECT / "LICENSE", licence)
        (work / "listed").write_text("\n".join(listed(tree)) + "\n")
        spec = (HERE / "odradek.spec").read_text()
        (work / "odradek.spec").write_text(re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], spec))
        defined = {
            "_topdir": work / "top", "tree": tree, "listed": work / "listed", "_binary_payload": "w9.zstdio",
            "use_source_date_epoch_as_buildtime": 1, "clamp_mtime_to_source_date_epoch": 1, "_buildhost": "localhost",
        }  # fmt: skip
        definitions = [word for name, value in defined.items() for word in ("--define", f"{name} {value}")]
        run("rpmbuild", "-bb", "--quiet", "--target", f"{machine}-linux", *definitions, work / "odradek.spec")
        (made,) = (work / "top/RPMS").rglob("*.rpm")
        output.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy2(made, output))


def listed(tree: Path) -> Iterator[str]:
    """The lines of %files for everything in `tree`, with owner and mode."""
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        quoted = f'"/{name}"'
        mode = f"{path.lstat().st_mode & 0o7777:o}"
        if path.is_symlink():
            yield quoted
        elif path.is_dir():
            if name.startswith(OWNED):
                yield f"%dir %attr({mode}, root, root) {quoted}"
        elif name.removeprefix("etc/odradek/") in SETTINGS:
            yield f"%config(noreplace) %attr({mode}, root, root) {quoted}"
        else:
            yield f"%attr({mode}, root, root) {quoted}"


def run(*command: str | Path) -> str:
    """The output of a command. Raises PackageFailed with it if the command fails."""
    done = subprocess.run(
        command, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise PackageFailed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
