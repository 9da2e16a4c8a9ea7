"""What documents name of the code exists: every `Class` and every `Class.member` in backquotes."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from odradek.api.table import BY_KEY
from tests.documents.test_links import DOCUMENTS, prose

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"`(?:[\w/]+\.p(?:y|yx|xd):)?([A-Z][a-z]\w*)(?:\.(\w+))?(?:\([^`]*\))?`")
DEFINITION = re.compile(
    r"^(?:(?:cdef |cpdef |ctypedef )?(?:packed )?(?:class|struct|enum) (\w+)|([A-Z]\w*)(?:: [^=\n]+)? = )", re.MULTILINE
)

FOREIGN = {
    "Kafka": {
        "CreateTime", "DefaultReplicationPolicy", "DirectoryConfigProvider", "EnvVarConfigProvider",
        "IdentityReplicationPolicy", "KafkaServer", "LogAppendTime", "MirrorClient", "NoTimestampType", "RemoteClusterUtils",
    },
    "Kubernetes": {"LoadBalancer", "NodePort", "Parallel"},
    "systemd": {"TimeoutStopSec"},
    "files": {"Containerfile"},
}  # fmt: skip
"""Names of other programs that documents may have in backquotes."""


@cache
def places() -> dict[str, list[Path]]:
    """The classes, structures, enumerations and type aliases of the code, each with the files that define it."""
    found: dict[str, list[Path]] = {}
    sources = (
        path for place in ("broker", "tests", "bench", "grafana", "tools") for path in (ROOT / place).rglob("*.py")
    )
    for path in [*sources, *(ROOT / "_ext").rglob("*.pyx"), *(ROOT / "_ext").rglob("*.pxd")]:
        for name, alias in DEFINITION.findall(path.read_text()):
            found.setdefault(name or alias, []).append(path)
    return found


@cache
def members(name: str) -> set[str]:
    """The names that a class defines or sets; of a native class, all names in it."""
    found: set[str] = set()
    for path in places()[name]:
        if path.suffix == ".py":
            classes = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))
            found.update(*(_members(node) for node in classes if node.name == name))
        else:
            body = re.search(
                rf"^[^\n]*(?:class|struct|enum) {name}\b[^\n]*\n((?:[ #][^\n]*\n|\n)*)", path.read_text(), re.MULTILINE
            )
            found.update(re.findall(r"[A-Za-z_]\w*", body[1]) if body else ())
    return found


def _members(node: ast.ClassDef) -> set[str]:
    names: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(inner.name)
        elif isinstance(inner, ast.Name | ast.Attribute) and isinstance(inner.ctx, ast.Store):
            names.add(inner.id if isinstance(inner, ast.Name) else inner.attr)
    return names


def unknown(text: str) -> list[str]:
    """The names of classes in backquotes that are neither in the code, nor APIs, nor `FOREIGN`."""
    known = {row.name for row in BY_KEY.values()}.union(*FOREIGN.values())
    return [
        f"{name}.{member}" if member else name
        for name, member in NAME.findall(text)
        if name not in known and (name not in places() or (member and member not in members(name)))
    ]


def test_a_missing_class_and_a_missing_member_are_found():
    text = "`NoSuchClass`, `BrokerSettings.no_such_member`, `BrokerSettings`, `Region.base`, `PREFIX`, `x.py:NoSuchFunction()`"
    assert unknown(text) == ["NoSuchClass", "BrokerSettings.no_such_member", "NoSuchFunction"]


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path.name != "commands.md"], ids=lambda path: path.stem)
def test_the_classes_that_a_document_names_exist(path):
    assert unknown(prose(path)) == []


def test_no_name_of_other_programs_is_superfluous():
    texts = "".join(map(prose, DOCUMENTS))
    assert {name for names in FOREIGN.values() for name in names if f"`{name}" not in texts} == set()
