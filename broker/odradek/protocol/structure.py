"""What a parsed schema consists of: structures, their fields, and the versions that have them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

NEWEST = 0x7FFF
"""The last version of an open range such as `0+`."""


class Versions(NamedTuple):
    """A range of versions, both ends included; empty if `last < first`."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str) -> Versions:
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), NEWEST)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


NO_VERSIONS = Versions(0, -1)


@dataclass(slots=True, eq=False)
class Field:
    """One line of a schema. `structure` is set if the type, or the type of an array's elements, is a structure."""

    name: str
    type: str
    versions: Versions
    nullable: Versions = NO_VERSIONS
    default: str | None = None
    tag: int = -1
    ignorable: bool = False
    flexible: bool = True
    structure: Structure | None = None

    @property
    def attribute(self) -> str:
        return snake_case(self.name)

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        """The type of the elements of an array, else the type itself."""
        return self.type.removeprefix("[]")


@dataclass(slots=True, eq=False)
class Structure:
    """A message, or a structure in a message: its fields in wire order, and the class of its objects."""

    name: str
    versions: Versions
    fields: list[Field] = field(default_factory=list)
    cls: Any = None


def snake_case(name: str) -> str:
    """`NumPartitions` -> `num_partitions`; "KRaft" is one word."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.replace("KRaft", "Kraft")).lower()
