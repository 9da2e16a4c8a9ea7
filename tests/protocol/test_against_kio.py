"""Compares encoder and decoder with kio (PyPI) for all messages and versions that kio supports."""

from __future__ import annotations

import dataclasses
import importlib
import io
import pkgutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import kio.schema
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field

from odradek.protocol import decode, encode, registry
from odradek.protocol.schemas import consumer_protocol, header
from odradek.protocol.structure import Field, Structure
from tests.protocol.messages import of_field

FEW = settings(max_examples=8, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZERO = bytes(16)

#: The types that kio converts to Python objects, and the integers that these objects can represent.
SCALARS = {
    "error_code": st.sampled_from([int(code) for code in ErrorCode]),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1),
    "timedelta_i64": st.integers(-(2**40), 2**40),
    "datetime_i64": st.integers(0, 253402300799).map(lambda second: second * 1000),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
}


OUTSIDE_APIS = (
    header.RequestHeader,
    header.ResponseHeader,
    consumer_protocol.Subscription,
    consumer_protocol.Assignment,
)


class Pair(NamedTuple):
    """Our class of a message and kio's class of the same message in one version."""

    ours: Any
    theirs: Any
    version: int


def pairs() -> dict[str, list[Pair]]:
    """All requests, responses and headers that kio supports, by message name."""
    ours = {cls.__name__: cls for key in registry.ALL_KEYS for cls in registry.by_key(key)[5:]}
    ours |= {cls.__name__: cls for cls in OUTSIDE_APIS}
    by_name: dict[str, list[Pair]] = {}
    for info in pkgutil.walk_packages(kio.schema.__path__, "kio.schema."):
        kind = info.name.rpartition(".")[2]
        if kind not in ("request", "response", "header", "data") or info.ispkg:
            continue
        module = importlib.import_module(info.name)
        version = int(info.name.split(".")[-2].removeprefix("v"))
        for name, cls in vars(module).items():
            if name in ours and cls.__module__ == info.name:
                by_name.setdefault(name, []).append(Pair(ours[name], cls, version))
    return by_name


PAIRS = pairs()


def fields_of(structure: Structure, theirs: Any, version: int) -> Iterator[tuple[Field, dataclasses.Field]]:
    """The fields of both classes in this version. Their names may differ in underscores and in the suffix for the unit."""
    present = {plain(field.attribute): field for field in structure.fields if version in field.versions}
    known = {plain(field.name): field for field in dataclasses.fields(theirs)}
    assert present.keys() == known.keys(), structure.name
    for name, field in present.items():
        yield field, known[name]


def plain(name: str) -> str:
    return name.removesuffix("_ms").replace("_", "")


def values(structure: Structure, theirs: Any, version: int) -> st.SearchStrategy[Any]:
    """A strategy for our objects with values that kio's types can represent."""
    chosen = {}
    for field, other in fields_of(structure, theirs, version):
        kind = classify_field(other)
        if isinstance(kind, EntityField | EntityTupleField):
            assert field.structure is not None
            inner = values(field.structure, kind.type_, version)
            strategy = st.lists(inner, max_size=2) if field.is_array else inner
            chosen[field.attribute] = st.none() | strategy if version in field.nullable else strategy
        else:
            scalars = SCALARS.get(other.metadata["kafka_type"])
            chosen[field.attribute] = of_field(field, version, scalars)
    return st.builds(structure.cls, **chosen)


def as_kio(message: Any, theirs: Any, version: int) -> Any:
    """Convert our object to kio's."""
    arguments = {}
    for field, other in fields_of(message._structure, theirs, version):
        value = getattr(message, field.attribute)
        kind = classify_field(other)

        def convert(item: Any, other: Any = other, kind: Any = kind) -> Any:
            if item is None:
                return None
            if isinstance(kind, EntityField | EntityTupleField):
                return as_kio(item, kind.type_, version)
            match other.metadata["kafka_type"]:
                case "error_code":
                    return ErrorCode(item)
                case "timedelta_i32" | "timedelta_i64":
                    return item * MILLISECOND
                case "datetime_i64":
                    return EPOCH + item * MILLISECOND if item >= 0 else None
                case "uuid":
                    return None if item == ZERO and "None" in str(other.type) else UUID(bytes=item)
            return item

        if field.is_array and value is not None:
            arguments[other.name] = tuple(convert(item) for item in value)
        else:
            arguments[other.name] = convert(value)
    return theirs(**arguments)


def test_kio_knows_almost_all_messages() -> None:
    assert sum(len(versions) for versions in PAIRS.values()) > 400
    ours = {registry.by_key(key).request.__name__ for key in registry.ALL_KEYS}
    missing = ours.difference(PAIRS)
    assert missing <= {
        "LeaderAndIsrRequest",
        "StopReplicaRequest",
        "UpdateMetadataRequest",
        "ControlledShutdownRequest",
    }


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_bytes_and_values_are_those_of_kio(name: str) -> None:
    for pair in PAIRS[name]:
        write, read = entity_writer(pair.theirs), entity_reader(pair.theirs)

        @FEW
        @given(values(pair.ours._structure, pair.theirs, pair.version), st.just((pair, write, read)))
        def agree(message: Any, how: Any) -> None:
            pair, write, read = how
            theirs = as_kio(message, pair.theirs, pair.version)
            buffer = io.BytesIO()
            write(buffer, theirs)
            data = encode(message, pair.version)
            assert data == buffer.getvalue()
            assert decode(pair.ours, pair.version, buffer.getvalue()) == (message, len(data))
            assert read(data, 0) == (theirs, len(data))

        agree()
