"""Compares every schema with Kafka's message definitions: 3.9.1 for removed versions, 4.3.0 for the newest."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol import registry
from odradek.protocol.schema import is_error_text
from odradek.protocol.schemas import consumer_protocol, header
from odradek.protocol.structure import Structure
from tests.protocol import kafka_definitions as kafka

pytestmark = pytest.mark.timeout(900)  # Maven may have to fetch

OUTSIDE_APIS = {
    "RequestHeader": header.RequestHeader,
    "ResponseHeader": header.ResponseHeader,
    "ConsumerProtocolSubscription": consumer_protocol.Subscription,
    "ConsumerProtocolAssignment": consumer_protocol.Assignment,
}

#: Names that Kafka changed after 3.9 without changing the format: older name to newer name.
RENAMED_MESSAGES = {
    "ListClientMetricsResourcesRequest": "ListConfigResourcesRequest",
    "ListClientMetricsResourcesResponse": "ListConfigResourcesResponse",
}
RENAMED = {
    "ListConfigResourcesResponse": {
        "ClientMetricsResources": "ConfigResources",
        "Name": "ResourceName",
        "[]ClientMetricsResource": "[]ConfigResource",
    },
}
#: Versions that were unreleased in 3.9 and that 4.x released with another layout: the released layout is correct.
RELEASED_OTHERWISE = {("3.9.1", "ReadShareGroupStateSummaryResponse", 0)}
#: Kafka 4.3 has no header version 0, so it does not need to drop the client id.
IGNORABLE_FOR_OLD_VERSIONS = {("RequestHeader", "ClientId")}


def structure_of(message: str) -> Structure:
    if message in OUTSIDE_APIS:
        return OUTSIDE_APIS[message]._structure
    for key in registry.ALL_KEYS:
        schema = registry.by_key(key)
        for cls in (schema.request, schema.response):
            if cls.__name__ == message:
                return cls._structure
    raise LookupError(message)


def our_layout(structure: Structure, version: int, flexible_since: int) -> list[tuple]:
    rows = []
    for field in structure.fields:
        if version not in field.versions:
            continue
        initial = "" if is_error_text(field) else getattr(structure.cls(), field.attribute)
        rows.append(
            (
                field.name,
                field.type,
                version in field.nullable,
                "defaults" if field.structure is not None and initial is not None and not field.is_array else initial,
                field.tag if version >= flexible_since else -1,
                field.flexible,
                our_layout(field.structure, version, flexible_since) if field.structure is not None else [],
            )
        )
    return rows


def renamed(rows: list[tuple], names: dict[str, str]) -> list[tuple]:
    return [(names.get(row[0], row[0]), names.get(row[1], row[1]), *row[2:-1], renamed(row[-1], names)) for row in rows]


def messages(release: str) -> list[str]:
    return [*kafka.api_messages(release), *OUTSIDE_APIS]


def released_versions(definition: dict[str, Any]) -> range:
    first, last = kafka.versions(definition["validVersions"])
    return range(first, last + 1)


@pytest.mark.parametrize("release", kafka.RELEASES)
def test_layouts_are_those_of_kafka_in_every_version(release: str) -> None:
    compared = 0
    for name in messages(release):
        definition = kafka.definitions(release)[name]
        ours = RENAMED_MESSAGES.get(name, name)
        structure = structure_of(ours)
        flexible_since = (
            kafka.versions(definition["flexibleVersions"]).first if definition["flexibleVersions"] != "none" else 999
        )
        for version in released_versions(definition):
            if (release, name, version) in RELEASED_OTHERWISE:
                continue
            theirs = renamed(kafka.layout(definition, version), RENAMED.get(ours, {}))
            assert our_layout(structure, version, flexible_since) == theirs, f"{name} v{version}"
            compared += 1
    assert compared > 500


@pytest.mark.parametrize("release", kafka.RELEASES)
def test_keys_names_and_flexible_versions_are_those_of_kafka(release: str) -> None:
    for name, definition in kafka.api_messages(release).items():
        schema = registry.by_key(definition["apiKey"])
        kind = "Request" if definition["type"] == "request" else "Response"
        assert f"{schema.name}{kind}" == RENAMED_MESSAGES.get(name, name)
        flexible = kafka.versions(definition["flexibleVersions"])
        assert schema.flexible_since == (flexible.first if flexible.last >= 0 else schema.max_version + 1), name


def test_every_api_is_known_from_its_first_version_to_its_newest() -> None:
    ranges: dict[int, list[int]] = {}
    for release in kafka.RELEASES:
        for definition in kafka.api_messages(release).values():
            ranges.setdefault(definition["apiKey"], []).extend(released_versions(definition))
    assert set(ranges) == set(registry.ALL_KEYS)
    assert not set(registry.ALL_KEYS) & set(registry.KRAFT)
    for key, known in ranges.items():
        schema = registry.by_key(key)
        assert (schema.min_version, schema.max_version) == (0, max(known)), schema.name


def test_ignorable_fields_are_those_of_kafka() -> None:
    compared = 0
    for release in reversed(kafka.RELEASES):
        for name in messages(release):
            if release != kafka.RELEASES[-1] and name in [*messages(kafka.RELEASES[-1]), *RENAMED_MESSAGES]:
                continue
            structure = structure_of(name)
            ours = ignorable(structure)
            for path, theirs in kafka.ignorable(kafka.definitions(release)[name]).items():
                if (name, path) not in IGNORABLE_FOR_OLD_VERSIONS:
                    assert ours[path] == theirs, f"{name}.{path}"
                    compared += 1
    assert compared > 1000


def ignorable(message: Structure) -> dict[str, bool]:
    by_path = {}

    def walk(structure: Structure, path: str) -> None:
        for field in structure.fields:
            by_path[path + field.name] = field.ignorable
            if field.structure is not None:
                by_path.update(
                    {f"{field.structure.name}.{inner.name}": inner.ignorable for inner in field.structure.fields}
                )
                walk(field.structure, f"{path}{field.name}.")

    walk(message, "")
    return by_path


def test_the_apis_that_are_never_served_are_those_of_kafkas_controllers() -> None:
    """Each is received by controllers only, or (DescribeQuorum, UnregisterBroker, the voters') makes sense only with them."""
    kraft = {
        definition["apiKey"]: (name.removesuffix("Request"), set(definition["listeners"]))
        for release in kafka.RELEASES
        for name, definition in kafka.definitions(release).items()
        if definition["type"] == "request" and definition["apiKey"] in registry.KRAFT
    }
    assert {key: name for key, (name, _) in kraft.items()} == registry.KRAFT
    assert all("controller" in listeners for _, listeners in kraft.values())
