"""Every document that a file of the tree names exists, and so does the heading, if one is named.

In documents these are the relative links; everywhere else all texts such as `docs/operate/tls.md#clients`.
"""

import re
import subprocess
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
DECISION = re.compile(r"docs/decisions/(\d{4})(?!-)")


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


def test_the_index_has_every_page():
    index = ROOT / "docs/README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    pages = {path for path in DOCUMENTS if ROOT / "docs" in path.parents and path.parent.name != "decisions"}
    assert pages - linked == {index}


def named_in(text):
    """The documents that a text names: path below the root of the tree, and anchor or an empty string."""
    pages = re.findall(r"(?<![\w-])(docs/[\w./-]+\.md)(?:#([\w-]+))?", re.sub(r"https?://\S+", "", text))
    decisions = [
        next(iter(ROOT.glob(f"docs/decisions/{number}-*.md")), ROOT / number) for number in DECISION.findall(text)
    ]
    return [*pages, *((str(path.relative_to(ROOT)), "") for path in decisions)]


def test_a_name_without_a_document_is_found():
    assert named_in("see docs/decisions/0009, and /share/docs/no/page.md#part.") == [
        ("docs/no/page.md", "part"),
        ("docs/decisions/0009-compaction.md", ""),
    ]
    assert named_in("docs/decisions/0007: no such decision") == [("0007", "")]


def test_every_document_that_the_tree_names_exists():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    missing = []
    for path in files:
        if path == Path(__file__) or not path.is_file() or path.is_symlink():
            continue
        for page, anchor in named_in(path.read_bytes().decode(errors="replace")):
            target = ROOT / page
            if not target.is_file() or (anchor and anchor not in anchors(target)):
                missing.append(f"{path.relative_to(ROOT)}: {page}{anchor and '#'}{anchor}")
    assert len(files) > 1000
    assert missing == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    for link in links(path):
        place, _, anchor = link.partition("#")
        target = (path.parent / place).resolve() if place else path
        assert target.exists(), f"{link}: there is no such file"
        assert target == ROOT or ROOT in target.parents, f"{link}: it leads out of the project"
        if anchor:
            assert anchor in anchors(target), f"{link}: there is no such heading; there are {sorted(anchors(target))}"
