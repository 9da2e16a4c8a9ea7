"""What messages and documents say of how to install the packages of an extra."""

import re
import tomllib
from pathlib import Path

import pytest

from odradek.cli.machine import demo
from odradek.clients.errors import INSTALL_LIBRARY
from odradek.jobs.usage_report.errors import INSTALL

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize(("extra", "hint"), [("clients", INSTALL_LIBRARY), ("demo", demo.INSTALL), ("jobs", INSTALL)])
def test_a_hint_names_the_packages_of_its_extra(extra, hint):
    assert re.findall(r"'([^']+)'", hint) == EXTRAS[extra]
    assert f"extra `{extra}`" in hint


def test_nothing_says_that_odradek_comes_from_an_index():
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "broker").rglob("*.py")]
    assert [str(path) for path in texts if re.search(r"pip install '?odradek\b", path.read_text())] == []
