"""The table of the words in the README of the shared state has every word that has an order, and no other."""

import re

from tests.shm.ordering.sources import NATIVE

README = NATIVE.parent / "broker/odradek/shm/README.md"
FIELD = re.compile(r"^    shared_[ui]\d+(?:\[[\w *]+\])?\*? (\w+)", re.M)


def words_of_the_layouts() -> set[str]:
    """The names of all fields with the type of a shared word, in the declarations of structs."""
    found = set()
    for path in NATIVE.glob("*/*.p[yx][xd]"):
        for struct in re.finditer(r"^cdef struct \w+:.*\n((?:    .*\n|\n(?=    ))*)", path.read_text(), re.M):
            found |= set(FIELD.findall(struct[1]))
    return found


def test_the_table_has_every_word() -> None:
    table = README.read_text().partition("## R 15.")[2].partition("Outside of the mapping")[0]
    rows = [line.split("|")[1] for line in table.split("\n") if line.startswith("| `")]
    listed = {name.split(".")[-1] for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    layouts = words_of_the_layouts()
    assert layouts - listed == set(), "words without a row"
    assert listed - layouts == set(), "rows without a word"
