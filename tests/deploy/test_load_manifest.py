"""The CronJob of deploy/kubernetes: Kubernetes accepts it, and `odradek load run` accepts its command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from odradek.cli.jobs.load import load, run_load
from odradek.cli.main import main
from tests import toolchains

MANIFEST = toolchains.REPOSITORY / "deploy/kubernetes/load.yaml"
OLDEST = "1.31"
"""The oldest Kubernetes whose schema has everything: podFailurePolicy of jobs."""


def container() -> dict[str, Any]:
    (job,) = (part for part in yaml.safe_load_all(MANIFEST.read_text()) if part["kind"] == "CronJob")
    (found,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_kubernetes_accepts_the_manifest() -> None:
    tool = Path(sys.executable).with_name("kubernetes-validate")
    if not tool.exists():
        toolchains.unavailable("kubernetes-validate is not installed (pip install 'odradek[dev]')")
    command = [tool, "--strict", "--kubernetes-version", OLDEST, MANIFEST]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_command_of_the_manifest_is_one_of_odradek() -> None:
    program, group, name, *arguments = container()["command"]
    assert program == "odradek" and main.get_command(main.make_context("odradek", ["load"]), group) is load
    assert load.commands[name] is run_load
    values = run_load.make_context(name, arguments).params
    assert values["topics"] == ("orders", "payments") and values["reader"] == "python"
    mounted = {mount["mountPath"] for mount in container()["volumeMounts"]}
    assert {values["out"], "/tmp"} <= mounted
