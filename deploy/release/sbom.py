"""The software bill of materials: every Python package in an environment that is shipped, as CycloneDX JSON."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from deploy.release.failure import ReleaseFailed


def write_sbom(environment: Path, python: Path, project: Path, output: Path, scratch: Path) -> None:
    """Write the packages of `environment` (versions, licences, dependencies) to `output`. PyPI's cyclonedx-bom reads them.

    :param environment: as `deploy.release.environment` makes it.
    :param python: an interpreter of its version that has cyclonedx-bom.
    :param scratch: a directory that does not exist; it is used and left.
    :raises ReleaseFailed: the tool fails, or a package lacks a version or a licence.
    """
    # The interpreter of the environment is the one of Debian, which need not exist here.
    subprocess.run([python, "-m", "venv", "--without-pip", scratch], check=True)
    (packages,) = environment.glob("lib/python3.*/site-packages")
    (own,) = scratch.glob("lib/python3.*/site-packages")
    (own / "shipped.pth").write_text(f"{packages.resolve()}\n")
    command = [
        python, "-m", "cyclonedx_py", "environment", "--pyproject", project / "pyproject.toml", "--output-reproducible",
        "--spec-version", "1.6", "--output-format", "JSON", "--output-file", output, scratch / "bin/python",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseFailed(f"cyclonedx_py ended with {done.returncode}:\n{done.stderr[-4000:]}")
    bill = json.loads(output.read_text())
    for component in bill["components"]:
        if not component.get("version") or not component.get("licenses"):
            raise ReleaseFailed(f"{output.name}: {component['name']} has no version or no licence")
