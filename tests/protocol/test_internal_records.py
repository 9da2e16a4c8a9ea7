"""Compares the schemas of records in internal topics with Kafka's definitions: fields, order, types, versions."""

from __future__ import annotations

import json
import re
import zipfile

import pytest

from odradek.protocol.schemas import cluster_metadata, group_records, transaction_records
from odradek.protocol.structure import NEWEST, NO_VERSIONS, Versions
from tests.oracles import jar

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]  # Maven may have to fetch

VERSION = "4.3.0"


def definitions(artifact: str) -> dict[str, dict]:
    """Kafka's message definitions by name."""
    by_name = {}
    with zipfile.ZipFile(jar("org.apache.kafka", artifact, VERSION)) as archive:
        for name in archive.namelist():
            if name.startswith("common/") and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                definition = json.loads(text)
                by_name[definition["name"]] = definition
    return by_name


def theirs(fields, newest, common=()):
    """[(name, type, versions, nullable, tag, inner fields)], in order, with versions up to the newest."""
    shared = {structure["name"]: structure["fields"] for structure in common}
    rows = []
    for field in fields:
        element = field["type"].removeprefix("[]")
        inner = field.get("fields") or shared.get(element)
        rows.append(
            (
                field["name"],
                "structure" if inner else element,
                cut(field.get("versions") or field["taggedVersions"], newest),
                cut(field.get("nullableVersions", "none"), newest),
                field.get("tag", -1),
                theirs(inner, newest, common) if inner else None,
            )
        )
    return rows


def ours(structure, newest):
    return [
        (
            field.name,
            field.element if field.structure is None else "structure",
            cut(field.versions, newest),
            cut(field.nullable, newest),
            field.tag,
            None if field.structure is None else ours(field.structure, newest),
        )
        for field in structure.fields
    ]


def cut(versions, newest):
    parsed = Versions.parse(versions) if isinstance(versions, str) else versions
    if parsed == NO_VERSIONS or parsed.first > newest:
        return None
    return parsed.first, min(parsed.last, newest if parsed.last == NEWEST else parsed.last)


def lower_case(fields):
    """The fields with lower-case names, because Kafka's definitions of these records are not consistent."""
    return fields and [(name.lower(), *rest, lower_case(inner)) for name, *rest, inner in fields]


def newest_of(definition):
    return int(definition["validVersions"].rpartition("-")[2])


def test_records_of_the_cluster_metadata():
    known = definitions("kafka-metadata")
    assert {definition["apiKey"]: name for name, definition in known.items() if definition["type"] == "metadata"} == {
        kind.number: kind.name for kind in cluster_metadata.KINDS.values()
    }
    described = [kind for kind in cluster_metadata.KINDS.values() if kind.schema is not None]
    assert len(described) >= 9
    for kind in described:
        definition = known[kind.name]
        assert kind.newest == newest_of(definition), kind.name
        assert ours(kind.schema._structure, kind.newest) == theirs(definition["fields"], kind.newest), kind.name


def test_records_of_the_transaction_log():
    known = definitions("kafka-transaction-coordinator")
    for name, schema in (
        ("TransactionLogKey", transaction_records.Key),
        ("TransactionLogValue", transaction_records.Value),
    ):
        newest = newest_of(known[name])
        assert ours(schema._structure, newest) == theirs(known[name]["fields"], newest), name
    assert newest_of(known["TransactionLogValue"]) == transaction_records.NEWEST


def test_keys_and_values_of_committed_offsets_and_groups():
    known = definitions("kafka-group-coordinator")
    for kind, name in ((group_records.OFFSET_COMMIT, "OffsetCommit"), (group_records.GROUP_METADATA, "GroupMetadata")):
        assert kind.newest == newest_of(known[f"{name}Value"])
        for schema, part in ((kind.key, f"{name}Key"), (kind.value, f"{name}Value")):
            newest = newest_of(known[part])
            actual, expected = (
                ours(schema._structure, newest),
                theirs(known[part]["fields"], newest, known[part].get("commonStructs", ())),
            )
            assert lower_case(actual) == lower_case(expected), part
