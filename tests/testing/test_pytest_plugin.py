"""The pytest plugin in the test run of a project that does not use it: it imports nothing but itself, and hides no module."""

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

PLUGIN = "odradek.testing.pytest_plugin"
BROKER = "NAME = 'the broker of the project'\n"
CONFTEST = """
import sys

import broker
import pytest


@pytest.fixture
def name():
    return broker.NAME


def pytest_unconfigure():
    names = sorted(module for module in sys.modules if module.partition(".")[0] == "odradek")
    print("modules of odradek:", *names)
"""
TEST = """
from pathlib import Path

import broker


def test_the_project(name):
    assert name == broker.NAME == "the broker of the project"
    assert Path(broker.__file__).parent == Path(__file__).parent
"""


def environment():
    """The environment without the variables of this test run."""
    return {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith(("PYTEST_", "COV_"))
    }


@pytest.mark.skipif(
    all(entry.value != PLUGIN for entry in entry_points(group="pytest11")), reason="the distribution is not installed"
)
@pytest.mark.parametrize(
    "start", [["-m", "pytest"], ["-c", "import pytest; pytest.console_main()"]], ids=["module", "command"]
)
def test_a_project_with_its_own_broker_module_does_not_notice_the_plugin(tmp_path, start):
    for file, text in (("broker.py", BROKER), ("conftest.py", CONFTEST), ("test_project.py", TEST)):
        (tmp_path / file).write_text(text)
    done = subprocess.run(
        [sys.executable, *start, "-q", "--strict-markers", "-W", "error", "--rootdir", tmp_path],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done
    assert "1 passed" in done.stdout and "warning" not in done.stdout, done.stdout
    (modules,) = [line for line in done.stdout.splitlines() if line.startswith("modules of odradek:")]
    assert modules == f"modules of odradek: odradek odradek.testing {PLUGIN}"
