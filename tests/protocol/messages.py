"""All messages in all versions, and hypothesis strategies for their values, derived from the schemas."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from hypothesis import strategies as st

from odradek.protocol import registry
from odradek.protocol.schemas import consumer_protocol, header
from odradek.protocol.structure import Field, Structure

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
TEXT = st.text(max_size=6) | st.text(st.characters(codec="ascii"), min_size=120, max_size=140)
SMALL_BYTES = st.binary(max_size=6) | st.binary(min_size=120, max_size=140)


class Case(NamedTuple):
    """A message in one version."""

    cls: Any
    version: int

    def __str__(self) -> str:
        return f"{self.cls.__name__}-v{self.version}"


def message_classes() -> list[Any]:
    apis = [registry.by_key(key) for key in registry.ALL_KEYS]
    others = [header.RequestHeader, header.ResponseHeader, consumer_protocol.Subscription, consumer_protocol.Assignment]
    return [*others, *(cls for api in apis for cls in (api.request, api.response))]


def cases(cls: Any) -> list[Case]:
    return [Case(cls, version) for version in range(cls._layout.min_version, cls._layout.max_version + 1)]


def all_cases() -> list[Case]:
    return [case for cls in message_classes() for case in cases(cls)]


def values(case: Case) -> st.SearchStrategy[Any]:
    """A strategy for objects of the message that differ from the defaults only in fields of the version."""
    return objects(case.cls._structure, case.version)


@cache
def objects(structure: Structure, version: int) -> st.SearchStrategy[Any]:
    fields = {field.attribute: of_field(field, version) for field in structure.fields if version in field.versions}
    return st.builds(structure.cls, **fields)


def of_field(field: Field, version: int, scalars: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[Any]:
    """A strategy for values of a field. :param scalars: replaces the strategy of its type, or of its element type."""
    if field.structure is not None:
        strategy = objects(field.structure, version)
    else:
        strategy = scalars if scalars is not None else scalar(field.element)
    if field.is_array:
        strategy = st.lists(strategy, max_size=2)
    return st.none() | strategy if version in field.nullable else strategy


@cache
def scalar(kind: str) -> st.SearchStrategy[Any]:
    if kind in RANGES:
        return st.integers(*RANGES[kind])
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": TEXT,
        "bytes": SMALL_BYTES,
        "records": SMALL_BYTES,
    }[kind]
