"""docs/operate/security.md names, for each limit, a test that exists."""

import re
from pathlib import Path

import pytest

from odradek.api.reference import with_table

ROOT = Path(__file__).resolve().parents[2]


def rows_of_limits():
    """The rows of the tables whose first column is "limit"."""
    rows, inside = [], False
    for line in (ROOT / "docs/operate/security.md").read_text().splitlines():
        inside = line.startswith("| limit |") or (inside and line.startswith("| "))
        if inside and not line.startswith(("| limit |", "| --- |")):
            rows.append(line)
    return rows


ROWS = rows_of_limits()


def test_there_are_limits():
    assert len(ROWS) > 60


@pytest.mark.parametrize("row", ROWS)
def test_the_test_of_a_limit_exists(row):
    (place,) = re.findall(r"`(tests/[^`]+)`", row)
    path, *classes, name = place.split("::")
    text = (ROOT / path).read_text()
    for class_name in classes:
        assert f"\nclass {class_name}:" in text, place
    assert re.search(rf"^{'    ' * len(classes)}def {name}\(", text, re.MULTILINE), place


@pytest.mark.parametrize("row", ROWS)
def test_the_keys_of_a_limit_are_documented(row):
    reference = (ROOT / "docs/reference/configuration.md").read_text()
    for key in re.findall(r"`((?:[a-z]+\.){2,}[a-z]+)`", row):
        assert f"| `{key}` |" in reference, key


def test_the_document_of_access_control_has_the_present_table():
    text = (ROOT / "docs/reference/acls.md").read_text()
    assert with_table(text) == text
