"""The types of resources have one table; everything that needs a fact about a type takes it from there."""

from __future__ import annotations

import ast
from pathlib import Path

import click
import pytest

import odradek
from odradek.api.permits import ALL_OPERATIONS
from odradek.api.refusing import MESSAGES
from odradek.metadata.acl_nodes import Pattern, path_of
from odradek.security.acl import Operation, PatternType, ResourceType
from odradek.security.resource_types import RESOURCE_TYPES, ResourceTypeRow

PACKAGE = Path(odradek.__file__).parent
ROWS = pytest.mark.parametrize("row", RESOURCE_TYPES.values(), ids=str)


def test_every_type_has_a_row_and_every_operation_a_type() -> None:
    assert set(RESOURCE_TYPES) == set(ResourceType) - {ResourceType.UNKNOWN, ResourceType.ANY}
    known = {operation for row in RESOURCE_TYPES.values() for operation in row.operations}
    assert known == set(Operation) - {Operation.UNKNOWN, Operation.ANY, Operation.ALL}
    for fact in ("node", "option", "words"):
        assert len({getattr(row, fact) for row in RESOURCE_TYPES.values()}) == len(RESOURCE_TYPES)


@ROWS
def test_the_nodes_have_the_name_of_the_type(row: ResourceTypeRow) -> None:
    assert path_of(Pattern(row.type, PatternType.LITERAL, "name")) == f"/kafka-acl/{row.node}/name"
    assert row.node.lower() == row.words.replace(" ", "")


@ROWS
def test_the_bits_are_those_of_the_operations(row: ResourceTypeRow) -> None:
    bits = ALL_OPERATIONS[row.type]
    assert [Operation(bit) for bit in range(bits.bit_length()) if bits >> bit & 1] == sorted(row.operations)


@ROWS
def test_an_error_for_a_denied_request_has_the_name_of_the_type(row: ResourceTypeRow) -> None:
    if row.denied_as is None:
        assert row.type == ResourceType.USER
    else:
        assert row.denied_as.name == f"{row.type.name}_AUTHORIZATION_FAILED"
        assert MESSAGES[row.denied_as].lower() == f"{row.words} authorization failed."


@ROWS
@pytest.mark.parametrize("command", ["list", "add", "remove", "explain"])
def test_the_command_has_an_option_for_the_type(row: ResourceTypeRow, command: str) -> None:
    from odradek.cli.security.acl import acl, named_by

    found = acl.get_command(click.Context(acl), command)
    assert found is not None
    option = next(parameter for parameter in found.params if row.option in parameter.opts)
    assert option.name == named_by(row.option)


def test_no_other_file_has_a_table_by_type() -> None:
    """A dict with facts about three or more types, or a list of as many of their names, is a second table."""
    names = {name for row in RESOURCE_TYPES.values() for name in (row.node, row.words)} - {"user", "User"}
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                keys = [key.value for key in node.keys if isinstance(key, ast.Attribute)]
                types = [key for key in keys if isinstance(key, ast.Name) and key.id == "ResourceType"]
                texts = {value.value for value in node.values if isinstance(value, ast.Constant)}
                if len(types) > 2 or len(names & {text for text in texts if isinstance(text, str)}) > 2:
                    found.add(path.relative_to(PACKAGE).as_posix())
    assert not found
