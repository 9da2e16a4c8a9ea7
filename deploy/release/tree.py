"""The source tree of a release: what must be true of it, and a copy that holds what Git knows and nothing else."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

from deploy.release.failure import ReleaseFailed

MOST_NAMED = 5


def version_of(project: Path) -> str:
    """The version in ``broker/odradek/__init__.py``."""
    source = (project / "broker/odradek/__init__.py").read_text()
    found = re.search(r'(?m)^__version__ = "([^"]+)"$', source)
    if found is None:
        raise ReleaseFailed('broker/odradek/__init__.py has no line __version__ = "..."')
    return found[1]


def faults(project: Path) -> Iterator[str]:
    """What is wrong with the tree for a release, one text each."""
    changed = git(project, "status", "--porcelain").splitlines()
    if changed:
        names = ", ".join(line[3:] for line in changed[:MOST_NAMED])
        more = f" and {len(changed) - MOST_NAMED} more" if len(changed) > MOST_NAMED else ""
        yield f"the tree has changes that are not committed: {names}{more}"
    version = version_of(project)
    found = re.search(rf"(?m)^## {re.escape(version)}(?:, (.*))?$", (project / "CHANGELOG.md").read_text())
    if found is None:
        yield f"CHANGELOG.md has no section of this version: it needs a line '## {version}, DATE'"
    elif found[1] == "unreleased":
        yield f"CHANGELOG.md calls {version} unreleased: write the date of the release in '## {version}, DATE'"


def epoch_of(project: Path) -> int:
    """The time of the last commit, in seconds."""
    return int(git(project, "log", "-1", "--format=%ct"))


def copy_tree(project: Path, destination: Path) -> None:
    """Copy the files that Git tracks, with the changes that are not committed, to the new directory `destination`."""
    names = git(project, "ls-files", "-z").rstrip("\0").split("\0")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in names:
            path = project / name
            if path.is_symlink() or path.exists():  # else it is deleted, and that is not committed
                archive.add(path, name, recursive=False)
    packed.seek(0)
    destination.mkdir(parents=True)
    with tarfile.open(fileobj=packed) as archive:
        archive.extractall(destination, filter="fully_trusted")


def git(project: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", project, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseFailed(f"git {words[0]} fails: {done.stderr.strip()}")
    return done.stdout
