"""The accesses to shared words of a native function, as its source names them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

NATIVE = Path(__file__).resolve().parents[3] / "_ext"
_CALL = re.compile(
    r"""\b(?:
        (?P<access>load|store)_(?P<order>relaxed|acquire|release)_\w+\((?P<word>(?:[^,()]|\([^()]*\))*)
      | (?P<fence>fence)(?:_(?P<kind>\w+))?\(\)
      | (?P<update>exchange|fetch_or|fetch_and|fetch_add|compare_swap)_\w+\((?P<updated>(?:[^,()]|\([^()]*\))*)
      | (?P<count>count)_\w+\((?P<counted>(?:[^,()]|\([^()]*\))*)
      | (?P<fill>fill_words)\((?P<filled>(?:[^,()]|\([^()]*\))*)
      | (?P<copy>copy_words)\((?:[^,()]|\([^()]*\))*,\s*(?P<copied>(?:[^,()]|\([^()]*\))*)
    )""",
    re.X,
)


def body(file: str, function: str) -> str:
    """The source of a function or method of a file below `_ext`, without comments and docstring.

    :raises ValueError: the file has no such function, or several.
    """
    lines = (NATIVE / file).read_text().split("\n")
    heads = [
        number
        for number, line in enumerate(lines)
        if re.match(rf"\s*(?:cp?def|def)\b[^=#]*\b{function}\(", line) and not line.rstrip().endswith("nogil")
    ]
    if len(heads) != 1:
        raise ValueError(f"{file} has {len(heads)} functions {function}")
    start = heads[0]
    depth = len(lines[start]) - len(lines[start].lstrip())
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > depth):
        end += 1
    text = "\n".join(re.sub(r"#.*", "", line) for line in lines[start + 1 : end])
    return re.sub(r'""".*?"""', "", text, flags=re.S)


def last_name(expression: str) -> str:
    """The word that an argument names: "&slot.commits[(sequence + 1) & 1]" -> "commits", "ready_words(process) + index"
    -> "ready_words"."""
    name, shorter = expression, ""
    while shorter != name:  # without places and arguments
        name, shorter = re.sub(r"\[[^\[\]]*\]|\([^()]*\)", "", name), name
    return re.findall(r"\w+", name.split(" + ")[0])[-1]


class Function(NamedTuple):
    """A function below `_ext`, and which of its accesses count.

    ``plain``: plain reads, for example "slot.epoch_count", which is then "load seq_cst epoch_count". ``words``: only
    these words, and all fences; None: all. ``first``: only so many accesses; None: all.
    """

    file: str
    name: str
    plain: tuple[str, ...] = ()
    words: tuple[str, ...] | None = None
    first: int | None = None


def accesses(function: Function) -> list[str]:
    """The accesses in the order of the source, for example "store release sequence", "fence acquire", "update seq_cst
    waiters_flushed"."""
    found = []
    text = body(function.file, function.name)
    for match in _CALL.finditer(text):
        if match["access"]:
            found.append((match.start(), f"{match['access']} {match['order']} {last_name(match['word'])}"))
        elif match["fence"]:
            found.append((match.start(), f"fence {match['kind'] or 'seq_cst'}"))
        elif match["update"]:
            found.append((match.start(), f"update seq_cst {last_name(match['updated'])}"))
        elif match["count"]:
            found.append((match.start(), f"count relaxed {last_name(match['counted'])}"))
        else:
            word = last_name(match["filled"] if match["fill"] else match["copied"])
            found.append((match.start(), f"{'fill' if match['fill'] else 'copy'} relaxed {word}"))
    for name in function.plain:
        plain = re.finditer(rf"(?<![&\w.]){re.escape(name)}\b", text)
        found += [(match.start(), f"load seq_cst {last_name(name)}") for match in plain]
    calls = [call for _, call in sorted(found)]
    if function.words is not None:
        calls = [call for call in calls if call.startswith("fence") or call.split()[-1] in function.words]
    return calls[: function.first]
