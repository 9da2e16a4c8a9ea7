"""Each decision is in the index, in the order of the numbers, and says what was not chosen."""

import re
from pathlib import Path

import pytest

DECISIONS = Path(__file__).resolve().parents[2] / "docs/decisions"
PAGES = sorted(DECISIONS.glob("0*.md"))


def test_the_index_has_each_decision_in_order():
    rows = re.findall(
        r"^\| (?:\*\*)?\[(\d{4})\]\(([^)]+)\)(?:\*\*)? \| .+\. \|$", (DECISIONS / "README.md").read_text(), re.M
    )
    assert rows == [(page.name[:4], page.name) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_says_what_was_not_chosen(page):
    text = page.read_text()
    assert re.match(rf"# {page.name[:4]}\. \S", text)
    chapter = text.partition("\n## Not chosen\n")[2].partition("\n## ")[0]
    assert re.findall(r"^- .{20}", chapter, re.M), "the chapter 'Not chosen' has no list of alternatives"
