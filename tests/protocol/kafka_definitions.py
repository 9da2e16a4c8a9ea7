"""Reads Kafka's message definitions from the JSON files (with comments) in its client library."""

from __future__ import annotations

import json
import re
import zipfile
from functools import cache
from typing import Any

from odradek.protocol.registry import KRAFT
from odradek.protocol.structure import NO_VERSIONS, Versions
from tests.oracles import kafka_clients_jar

RELEASES = ("3.9.1", "4.3.0")
STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*')


@cache
def definitions(release: str) -> dict[str, dict[str, Any]]:
    """All message definitions of a release by name."""
    by_name = {}
    with zipfile.ZipFile(kafka_clients_jar(release)) as jar:
        for name in jar.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = jar.read(name).decode()
                plain = STRING_OR_COMMENT.sub(lambda match: match[0] if match[0][0] == '"' else "", text)
                definition = json.loads(plain)
                by_name[definition["name"]] = definition
    return by_name


def api_messages(release: str) -> dict[str, dict[str, Any]]:
    """The requests and responses of a release that have any version, without those of a KRaft cluster's controllers."""
    return {
        name: definition
        for name, definition in definitions(release).items()
        if definition["type"] in ("request", "response")
        and definition["validVersions"] != "none"
        and definition["apiKey"] not in KRAFT
    }


def versions(text: str | None) -> Versions:
    return NO_VERSIONS if text is None else Versions.parse(text)


def default(field: dict[str, Any]) -> Any:
    """The default of a field by the rules of Kafka's generator."""
    kind, text = field["type"], field.get("default")
    if text == "null" or (kind == "records" and text is None):
        return None
    if kind.startswith("[]"):
        return []
    if kind == "bool":
        return str(text).lower() == "true"
    if kind.startswith(("int", "uint")):
        return int(str(text or 0), 0)
    if kind == "float64":
        return float(text or 0)
    if kind == "uuid":
        return bytes(16)
    if kind == "bytes":
        return b""
    if kind == "string":
        return text or ""
    return "defaults"


def layout(definition: dict[str, Any], version: int) -> list[tuple]:
    """The fields of a message in one version, in order: name, type, nullable, default, tag, compact, inner fields."""
    shared = {structure["name"]: structure["fields"] for structure in definition.get("commonStructs", [])}

    def of(fields: list[dict[str, Any]]) -> list[tuple]:
        rows = []
        for field in fields:
            if version not in versions(field["versions"]):
                continue
            inner = field.get("fields") or shared.get(field["type"].removeprefix("[]"), [])
            tagged = version in versions(field.get("taggedVersions"))
            rows.append(
                (
                    field["name"],
                    field["type"],
                    version in versions(field.get("nullableVersions")),
                    default(field),
                    int(field["tag"]) if tagged else -1,
                    field.get("flexibleVersions") != "none",
                    of(inner),
                )
            )
        return rows

    return of(definition["fields"])


def ignorable(definition: dict[str, Any]) -> dict[str, bool]:
    """Whether each field, by its path ("Topics.Name"), can be dropped in versions without it."""
    by_path = {}

    def walk(fields: list[dict[str, Any]], path: str) -> None:
        for field in fields:
            if field["versions"] != "none":
                by_path[path + field["name"]] = field.get("ignorable", False)
                walk(field.get("fields", []), f"{path}{field['name']}.")

    walk(definition["fields"], "")
    for structure in definition.get("commonStructs", []):
        walk(structure["fields"], f"{structure['name']}.")
    return by_path
