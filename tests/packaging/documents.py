"""The relative links of Markdown documents."""

import re
from pathlib import Path


def dangling_links(root: Path) -> list[str]:
    """The links from documents below a directory to files that do not exist, or that are outside of it."""
    documents = list(root.rglob("*.md"))
    assert documents, f"no document below {root}"
    return [
        f"{document.relative_to(root)}: {link}"
        for document in documents
        for link in re.findall(r"\]\(([^)#:]+)[^):]*\)", document.read_text())
        if not is_below(document.parent / link, root)
    ]


def is_below(path: Path, root: Path) -> bool:
    return path.exists() and path.resolve().is_relative_to(root.resolve())
