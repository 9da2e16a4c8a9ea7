"""A topic and a partition have one type, `TopicPartition`, and no second name."""

from __future__ import annotations

import ast
import gc
from pathlib import Path

import odradek
from odradek.topic_partition import TopicIdPartition, TopicPartition

PACKAGE = Path(odradek.__file__).parent
OTHERS = {
    "TopicKey",  # of the ledger of usage: a topic and an API
    "Address",  # a host and a port
}


def definitions(tree: ast.Module) -> set[str]:
    """Names of aliases of the types, and of NamedTuples with exactly these two fields."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.value) in (
            "tuple[str, int]",
            "tuple[bytes, int]",
            "tuple[UUID, int]",
        ):
            found |= {ast.unparse(target) for target in node.targets}
        elif isinstance(node, ast.ClassDef) and "NamedTuple" in map(ast.unparse, node.bases):
            fields = [ast.unparse(field) for field in node.body if isinstance(field, ast.AnnAssign)]
            if fields in (["topic: str", "partition: int"], ["topic: str", "number: int"]):
                found.add(node.name)
    return found


def test_no_other_file_defines_it() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in definitions(ast.parse(path.read_text()))
        if name not in OTHERS
    }
    assert found == {
        ("topic_partition.py", "TopicPartition"),
        ("topic_partition.py", "TopicIdPartition"),
        ("jobs/load/offsets.py", "NamedPartition"),  # a TopicPartition that prints itself, for texts of the load
    }


def test_nothing_else_is_named_place() -> None:
    """It meant ten things; variables may have the name. It means where a request is executed (`odradek.api.api.Place`)."""
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.ClassDef) and node.name == "Place")
        or (isinstance(node, ast.Name) and node.id == "Place" and isinstance(node.ctx, ast.Store))
    ]
    assert [path.partition(":")[0] for path in found] == ["api/api.py"]


def test_they_are_plain_tuples_which_the_garbage_collector_does_not_examine() -> None:
    assert TopicPartition.__origin__ is tuple and TopicIdPartition.__origin__ is tuple  # type: ignore[attr-defined]
    places: list[TopicPartition] = [("orders", number) for number in range(10)]
    gc.collect()
    assert not any(map(gc.is_tracked, places))
