"""The workflow that publishes a version, .github/workflows/release.yml."""

import re
import subprocess

import yaml

from tests.deploy.helm.tools import go_command
from tests.toolchains import REPOSITORY

ACTIONLINT = ("github.com/rhysd/actionlint/cmd/actionlint", "v1.7.12")
WORKFLOW = REPOSITORY / ".github/workflows/release.yml"


def test_actionlint_accepts_the_workflow() -> None:
    done = subprocess.run(
        [go_command(*ACTIONLINT), "-no-color", WORKFLOW],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_it_calls_targets_of_the_makefile_and_publishes_only_when_a_person_asks() -> None:
    workflow = yaml.load(WORKFLOW.read_text(), yaml.BaseLoader)
    assert list(workflow["on"]) == ["workflow_dispatch"]
    jobs = workflow["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    called = {name for command in commands for name in re.findall(r"\bmake ([a-z-]+)", command)}
    assert called == {"release", "test-wheel"}
    makefile = (REPOSITORY / "Makefile").read_text()
    assert [name for name in called if not re.search(rf"(?m)^{name}:.*## ", makefile)] == []
    assert (jobs["publish"]["if"], jobs["publish"]["environment"]["name"]) == ("inputs.publish", "pypi")
    order = {name: job.get("needs") for name, job in jobs.items()}
    assert order == {"build": None, "test": "build", "attest": "test", "publish": "attest"}
    writing = {name for name, job in jobs.items() if "write" in job.get("permissions", {}).values()}
    assert writing == {"attest", "publish"}
