"""Finds the interpreter for the packages, and interpreters whose headers no archive has."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from deploy.release.failure import ReleaseFailed


def find_interpreters(versions: Sequence[str], environment: Mapping[str, str]) -> dict[str, Path]:
    """The interpreter for each of `versions`, for example ``{"3.11": Path("/usr/bin/python3.11")}``.

    Each is named by a variable (ODRADEK_PYTHON_3_11), or found on PATH, or below ``~/.pyenv/versions``. One that does not run,
    is another version or has no headers does not count: a shim of pyenv runs only the versions that are chosen there.

    :raises ReleaseFailed: names all versions that are missing, and why the candidates were refused.
    """
    found: dict[str, Path] = {}
    missing: list[str] = []
    for version in versions:
        refused: list[str] = []
        for candidate in candidates(version, environment):
            reason = why_unusable(candidate, version)
            if reason is None:
                found[version] = candidate
                break
            refused.append(f"{candidate} {reason}")
        else:
            missing.append(f"Python {version}" + (f" ({'; '.join(refused)})" if refused else ""))
    if missing:
        names = " and ".join(variable(version) for version in versions if version not in found)
        raise ReleaseFailed(f"not found: {', '.join(missing)}; install it, or name it with {names}")
    return found


def variable(version: str) -> str:
    """The name of the environment variable that names the interpreter."""
    return f"ODRADEK_PYTHON_{version.replace('.', '_')}"


def candidates(version: str, environment: Mapping[str, str]) -> Iterator[Path]:
    named = environment.get(variable(version))
    if named:
        yield Path(named)
        return
    for directory in environment.get("PATH", "").split(os.pathsep):
        on_path = shutil.which(f"python{version}", path=directory or os.curdir)
        if on_path:
            yield Path(on_path)
    home = environment.get("HOME")
    if home:
        installed = (Path(home) / ".pyenv/versions").glob(f"{version}.*/bin/python{version}")
        yield from sorted(
            installed, key=lambda path: [int(part) for part in path.parts[-3].split(".") if part.isdigit()]
        )


def why_unusable(interpreter: Path, version: str) -> str | None:
    """Why an interpreter cannot build a wheel, or None if it can."""
    script = (
        "import os, platform, sys, sysconfig; print('{}.{}'.format(*sys.version_info), platform.python_implementation(), "
        "os.path.exists(sysconfig.get_path('include') + '/Python.h'))"
    )
    try:
        done = subprocess.run(
            [interpreter, "-I", "-c", script], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError as error:
        return f"does not run: {error.strerror}"
    if done.returncode:
        return f"does not run: {(done.stderr.strip().splitlines() or ['no message'])[0]}"
    is_version, implementation, has_headers = done.stdout.split()
    if (is_version, implementation) != (version, "CPython"):
        return f"is {implementation} {is_version}"
    return None if has_headers == "True" else "has no headers (Python.h)"
