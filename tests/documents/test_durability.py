"""docs/operate/durability.md names for each promise a test with one broker and one with a cluster, in the tier that it says."""

import re
from pathlib import Path

import pytest

from tests.tiers import NIGHTLY

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/operate/durability.md").read_text()
TABLE = TEXT[TEXT.index("| promise | one broker | a cluster |") :].partition("\n\n")[0]
ROWS = [line.strip("| ").split(" | ") for line in TABLE.splitlines()[2:] if line.startswith("| ")]
PLACES = [place for _, *columns in ROWS for place in columns if place != "no other replica"]


def test_each_promise_has_a_test_of_each_kind() -> None:
    assert len(ROWS) >= 15
    assert all(len(row) == 3 for row in ROWS)


@pytest.mark.parametrize("place", sorted(set(PLACES)))
def test_the_test_of_a_promise_exists(place: str) -> None:
    found = re.fullmatch(r"`(tests/[^`]+\.py)::(\w+)`( \(n\))?", place)
    assert found, place
    path, name, nightly = found.groups()
    assert f"\ndef {name}(" in (ROOT / path).read_text(), place
    assert bool(nightly) == (path in NIGHTLY or f"{path}::{name}" in NIGHTLY), place
