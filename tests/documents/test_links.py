"""Every relative link in the documents leads to a file, and to a heading of it if it names one."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path
    for place in ("*.md", "docs/**/*.md", "bench/*.md", "grafana/*.md", "deploy/**/*.md")
    for path in ROOT.glob(place)
    if not {".venv", "build", "node_modules"} & set(path.relative_to(ROOT).parts)
)
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]\[]*\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")


def prose(path):
    return FENCE.sub("", path.read_text())


@cache
def anchors(path):
    """The anchors of the headings, as GitHub makes them."""
    found, seen = set(), {}
    for heading in HEADING.findall(prose(path)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = seen.get(anchor, 0)
        seen[anchor] = number + 1
        found.add(f"{anchor}-{number}" if number else anchor)
    return found


def links(path):
    text = CODE.sub("", prose(path))
    return [target for target in LINK.findall(text) if not re.match(r"[a-z]+:", target)]


def test_there_are_documents():
    assert len(DOCUMENTS) > 40


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    for link in links(path):
        place, _, anchor = link.partition("#")
        target = (path.parent / place).resolve() if place else path
        assert target.exists(), f"{link}: there is no such file"
        assert target == ROOT or ROOT in target.parents, f"{link}: it leads out of the project"
        if anchor:
            assert anchor in anchors(target), f"{link}: there is no such heading; there are {sorted(anchors(target))}"
