"""The header files of the CPython versions for which wheels are built.

They come from archives of Maven Central that contain a whole CPython, the only registry found that keeps every version. The
archive of x86-64 serves all targets: the only header that depends on the system is ``pyconfig.h``, and the parts of it that the
C API uses are equal on every 64-bit Linux.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

from deploy.release.failure import ReleaseFailed
from deploy.release.interpreters import find_interpreters

ARCHIVES = {
    "3.11": ("3.11.3-1.5.9", "668b42f6a8b1a9789de7d3ca54a81fefb754cd8e885554b42858bbcbc0dd497c"),
    "3.12": ("3.12.1-1.5.10", "a135fcf4dc01adebf7ea439252276fc3196db80f7e0dd3da0b61f1ec489b68bd"),
    "3.13": ("3.13.5-1.5.12", "50ad91aa0baa57f0235bb666b87d8bf2a44e215d28c250de1030502906af143b"),
    "3.14": ("3.14.3-1.5.13", "eb5f1a6fe2dc498ac18927189a37f28a47b0ba06ae6bd85112eff023fe2eb46f"),
}
"""For each version of CPython the version of ``org.bytedeco:cpython``, and the SHA-256 of its archive for x86-64."""
ARTIFACT = "org.bytedeco:cpython:{}:jar:linux-x86_64"
INSIDE = "org/bytedeco/cpython/linux-x86_64/"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
TIMEOUT_S = 600


def find_headers(version: str, work: Path, environment: Mapping[str, str]) -> Path:
    """The directory that contains the ``Python.h`` of CPython `version`.

    It is named by a variable (ODRADEK_HEADERS_3_15), or comes from an archive, or for a version without one from an interpreter
    on this machine.

    :param work: where the files of archives are kept.
    :raises ReleaseFailed: there are none; the text says why.
    """
    named = environment.get(variable(version))
    if named:
        return complete(Path(named), version, work)
    if version in ARCHIVES:
        return complete(unpacked(version, work) / f"include/python{version}", version, work)
    try:
        python = find_interpreters((version,), environment)[version]
    except ReleaseFailed as error:
        raise ReleaseFailed(
            f"no archive has the headers of Python {version}, and {error}; or name their directory with {variable(version)}"
        ) from None
    script = "import sysconfig; print(sysconfig.get_path('include'))"
    found = subprocess.run([python, "-I", "-c", script], capture_output=True, text=True, check=True).stdout
    return complete(Path(found.strip()), version, work)


def variable(version: str) -> str:
    """The name of the environment variable that names the directory of the headers."""
    return f"ODRADEK_HEADERS_{version.replace('.', '_')}"


def unpacked(version: str, work: Path) -> Path:
    """The directory with a CPython of `version` for x86-64 and glibc, with its headers, fetched if it is not there yet."""
    release, expected = ARCHIVES[version]
    directory = work / f"cpython-{release}"
    if directory.exists():
        return directory
    fetched = work / f"fetched-{release}"
    fetch(ARTIFACT.format(release), fetched)
    (archive,) = fetched.glob("*.jar")
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected:
        raise ReleaseFailed(f"{archive} has the SHA-256 {digest}, and not {expected} of deploy/release/headers.py")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(fetched, [name for name in packed.namelist() if name.startswith(INSIDE)])
    for program in (fetched / INSIDE / "bin").iterdir():
        program.chmod(0o755)
    (fetched / INSIDE).rename(directory)
    shutil.rmtree(fetched)
    return directory


def fetch(artifact: str, directory: Path) -> None:
    """Copy an artifact of Maven Central into `directory`. The caller compares its hash."""
    if shutil.which("mvn") is None:
        raise ReleaseFailed("the headers come from Maven Central, and the command mvn is missing: install maven")
    shutil.rmtree(directory, ignore_errors=True)
    command = ["mvn", "-q", "-B", COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise ReleaseFailed(f"mvn cannot fetch {artifact}: {done.stdout.strip()[-1000:]}")


def complete(headers: Path, version: str, work: Path) -> Path:
    """The directory `headers`, or a copy of it that every target can use.

    Debian's ``pyconfig.h`` includes a file for the target's processor, and only the file for this machine is installed.

    :raises ReleaseFailed: the headers are not those of `version`.
    """
    try:
        found = re.search(r'(?m)^#define PY_VERSION\s+"(\d+\.\d+)', (headers / "patchlevel.h").read_text())
        config = (headers / "pyconfig.h").read_text()
    except OSError as error:
        raise ReleaseFailed(f"{headers} has no headers of Python: {error}") from None
    if found is None or found[1] != version:
        raise ReleaseFailed(f"{headers} has the headers of Python {found[1] if found else '?'}, and not of {version}")
    included = re.search(r"(?m)^\s*#\s*include <(x86_64-linux-gnu/python[\d.]+/pyconfig\.h)>", config)
    if included is None:
        return headers
    copy = work / f"headers-{version}"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(headers, copy)
    own = headers.parent / included[1]
    if not own.is_file():
        raise ReleaseFailed(f"{headers}/pyconfig.h includes {own}, which is missing")
    shutil.copyfile(own, copy / "pyconfig.h")
    return copy
