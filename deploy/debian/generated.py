"""Man pages and completion scripts, which the packaged program itself writes.

The modules are `odradek.cli.packaging.man` and `odradek.cli.packaging.completion_files`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.release.environment import EnvironmentFailed, epoch


def man_pages(packages: Path) -> dict[str, str]:
    """The text of each man page by the name of its file, for example ``odradek.1``.

    :param packages: the site-packages of the environment in the package; this Python must be able to import them.
    """
    return written_by("odradek.cli.packaging.man", packages)


def completion_files(packages: Path) -> dict[str, str]:
    """The completion script of each shell by its path below the root, for example ``usr/share/fish/...``."""
    return {
        f"usr/share/{name}": text
        for name, text in written_by("odradek.cli.packaging.completion_files", packages).items()
    }


def written_by(module: str, packages: Path) -> dict[str, str]:
    """What ``python -m MODULE DIR`` writes, by its path below DIR."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryDirectory(prefix="odradek-generated-") as directory:
        command = [sys.executable, "-m", module, directory]
        done = subprocess.run(
            command,
            env=environment | {"SOURCE_DATE_EPOCH": str(epoch()), "LC_ALL": "C.UTF-8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise EnvironmentFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}")
        root = Path(directory)
        return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}
