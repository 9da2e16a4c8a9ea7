"""The Python blocks of docs/develop/testing.md are complete test files, which pass. A failing test shows its brokers' logs."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.zookeeper import chroot

PAGE = Path(__file__).resolve().parents[2] / "docs/develop/testing.md"
RECIPES = {
    re.sub(r"\W", "_", title.lower()): code
    for title, code in re.findall(r"^## ([^\n]*)\n(?:(?!^## ).)*?^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
}
CLUSTER = "a_cluster"


def run(directory: Path, files: dict[str, str], **environment: str) -> str:
    """Run files of tests in a pytest of their own; return its output with the number of those that passed."""
    for name, code in files.items():
        (directory / f"test_{name}.py").write_text(code)
    plugin = (
        ()
        if any(entry.name == "odradek" for entry in entry_points(group="pytest11"))
        else ("-p", "odradek.testing.pytest_plugin")
    )
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", directory],
        cwd=directory, env=own | environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_the_page_has_a_recipe_for_each_subject() -> None:
    assert list(RECIPES) == [
        "fixtures", "settings_and_topics", "one_broker_for_all_tests", "tls", "failures", "without_pytest", CLUSTER,
    ]  # fmt: skip


def test_the_recipes_pass(tmp_path: Path) -> None:
    recipes = {name: code for name, code in RECIPES.items() if name != CLUSTER}
    output = run(tmp_path, recipes)
    assert f"{len(recipes)} passed" in output and "failed" not in output, output


@pytest.mark.java
def test_the_recipe_of_a_cluster_passes(tmp_path: Path) -> None:
    output = run(tmp_path, {CLUSTER: RECIPES[CLUSTER]}, TEST_ZOOKEEPER=chroot())
    assert "1 passed" in output, output


FAILING = """
import pytest


def test_shared_first(odradek_shared_broker):
    pass


def test_shared_fails(odradek_shared_broker):
    odradek_shared_broker.restart()
    pytest.fail("here")


def test_own_fails(odradek_broker_factory):
    for number in (11, 12):
        odradek_broker_factory({"node.id": number})
    pytest.fail("here")


def test_none_fails():
    pytest.fail("here")


def test_passes(odradek_broker):
    pass
"""


def test_the_report_of_a_failed_test_contains_the_logs_of_its_brokers(tmp_path: Path) -> None:
    output = run(tmp_path, {"failing": FAILING})
    assert "3 failed, 2 passed" in output, output
    parts = re.split(r"^_+ (test_\w+) _+$", output, flags=re.M)
    reports = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert reports["test_own_fails"].count("Log of the broker at 127.0.0.1:") == 2
    assert reports["test_own_fails"].count("ready after") == 2
    assert "Log of the broker" not in reports["test_none_fails"]
    shared = reports["test_shared_fails"]
    assert shared.count("ready after") == 1, "the first start is not of this test"
    assert shared.index("stopped") < shared.index("ready after")
