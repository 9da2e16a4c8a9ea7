"""The text of an error is null where there is no error: some clients show any other text, also an empty one, as an error."""

import ast
from pathlib import Path

import pytest

import odradek
from odradek.protocol import registry
from odradek.protocol.schemas import delete_acls

BROKER = Path(odradek.__file__).parent
EMPTY_AS_KAFKA = {
    "api/security/describe_user_scram_credentials.py",
    "api/cluster/update_features.py",
    "security/sasl/exchange.py",
}
"""Kafka answers "" here, in all its versions."""


def error_texts(structure, seen):
    """The fields of a message, and of the structures in it, that are texts of errors."""
    if structure.name in seen:
        return
    seen.add(structure.name)
    for field in structure.fields:
        if field.name.endswith("ErrorMessage"):
            yield structure, field
        if field.structure is not None:
            yield from error_texts(field.structure, seen)


@pytest.mark.parametrize("key", registry.ALL_KEYS)
def test_a_response_has_no_error_text_unless_it_is_set(key):
    response = registry.by_key(key).response
    for structure, field in error_texts(response._structure, set()):
        nullable = all(version in field.nullable for version in range(field.versions.first, field.versions.last + 1))
        assert not nullable or getattr(structure.cls(), field.attribute) is None, (structure.name, field.name)


def test_deletions_of_acls_have_none():
    made = delete_acls.Response
    assert made.DeleteAclsFilterResult(matching_acls=[made.DeleteAclsMatchingAcl()]).error_message is None
    assert made.DeleteAclsMatchingAcl().error_message is None


def test_no_response_sets_an_empty_text_but_where_kafka_does():
    found = set()
    for path in BROKER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            given = [node.value] if isinstance(node, ast.keyword) and node.arg == "error_message" else []
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Attribute) and target.attr == "error_message" for target in node.targets
            ):
                given = [node.value]
            if any(isinstance(value, ast.Constant) and value.value == "" for value in given):
                found.add(path.relative_to(BROKER).as_posix())
    assert found == EMPTY_AS_KAFKA
