"""The largest requests that an API admits: made from its schema, with as many elements as its limit allows.

The arrays of a request form a tree. For each of its leaves there are several requests: `deep` has one element in each array
above the leaf, and all others in the leaf; `wide` has as many elements in the outermost array as possible, each with one
element in each array below it. `flat` has only the outermost array. Each array is as long as it can be in one of them.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from odradek.api.row import ApiRow
from odradek.api.table import limits_of
from odradek.config.broker_config import resolve
from odradek.protocol.registry import by_key
from odradek.protocol.structure import Field, Structure

LIMITS = limits_of(resolve([]))
"""The limits of elements with the default of odradek.max.partitions, by API key."""
ACL = {"resource_type": 2, "pattern_type": 3, "resource_pattern_type": 3, "operation": 3, "permission_type": 3}
VALID: dict[int, dict[str, Any]] = {
    9: {"require_stable": False},
    13: {"group_id": "g"},
    14: {"group_id": "g", "generation_id": 1},
    19: {"timeout_ms": 1, "validate_only": True, "topics.num_partitions": 1, "topics.replication_factor": 1},
    20: {"timeout_ms": 1, "topics.topic_id": bytes(16)},
    21: {"timeout_ms": 1},
    29: {
        f"{name}_filter" if "type" in name and name != "permission_type" else name: code for name, code in ACL.items()
    },
    30: {f"creations.{name}": code for name, code in ACL.items()} | {"creations.principal": "User:a"},
    31: {f"filters.{name}": code for name, code in ACL.items()}
    | {"filters.resource_type_filter": 2, "filters.pattern_type_filter": 3},
    32: {"resources.resource_type": 2},
    33: {"resources.resource_type": 2, "validate_only": True},
    37: {"timeout_ms": 1, "validate_only": True, "topics.count": 2},
    43: {"election_type": 0, "timeout_ms": 1},
    44: {"resources.resource_type": 2, "validate_only": True, "resources.configs.config_operation": 0},
    48: {"components.match_type": 0, "components.entity_type": "user"},
    49: {"validate_only": True, "entries.entity.entity_type": "client-id", "entries.ops.key": "producer_byte_rate"},
    66: {"transactional_id_pattern": None},
    68: {
        "member_epoch": 0,
        "member_id": "m",
        "rebalance_timeout_ms": 1000,
        "topic_partitions": [],
        **dict.fromkeys(("instance_id", "rack_id", "subscribed_topic_regex", "server_assignor")),
    },
}
"""By API key and by the path of a field: values without which a request would be refused before its arrays are read."""


class Largest(NamedTuple):
    """A request. :param label: which of its arrays is long."""

    label: str
    request: Any


def largest_requests(row: ApiRow, most: int = 1 << 62, version: int | None = None) -> Iterator[Largest]:
    """The largest requests of an API; none if it has no arrays.

    :param most: a number of elements that is not exceeded either. :param version: the newest one that is served if None.
    """
    version = row.max_version if version is None else version
    limit = min(LIMITS[row.key], most)
    structure = by_key(row.key).request._structure
    make = _Maker(version, VALID.get(row.key, {}))
    paths = _leaves(structure, version)
    for field in dict.fromkeys(path[0] for path in paths if len(path) > 1):
        yield Largest(f"flat {field.name}", make.message(structure, [field], [limit]))
    for path in paths:
        name = ".".join(field.name for field in path)
        yield Largest(f"deep {name}", make.message(structure, path, [*[1] * (len(path) - 1), limit - len(path) + 1]))
        if len(path) > 1:
            counts = [limit // len(path), *[1] * (len(path) - 1)]
            yield Largest(f"wide {name}", make.message(structure, path, counts))


def _leaves(structure: Structure, version: int) -> list[list[Field]]:
    """The paths to all arrays whose elements have no arrays."""
    paths: list[list[Field]] = []
    for field in structure.fields:
        if version in field.versions and field.is_array:
            below = _leaves(field.structure, version) if field.structure is not None else []
            paths += [[field, *path] for path in below] or [[field]]
    return paths


class _Maker:
    """Makes messages of a version. :param valid: see `VALID`."""

    def __init__(self, version: int, valid: dict[str, Any]) -> None:
        self._version = version
        self._valid = valid

    def message(
        self, structure: Structure, path: list[Field], counts: list[int], above: str = "", number: int = 0
    ) -> Any:
        """A message with arrays of `counts` elements along `path`; other arrays have their default.

        :param number: the place of the message in its array, which its texts and numbers contain.
        """
        message = structure.cls()
        for field in structure.fields:
            name = above + field.attribute
            if self._version not in field.versions:
                continue
            if path and field is path[0]:
                value = [self._element(field, path[1:], counts[1:], name, place) for place in range(counts[0])]
                setattr(message, field.attribute, value)
            elif name in self._valid:
                setattr(message, field.attribute, self._valid[name])
            elif not field.is_array and (field.type == "string" or (above and field.type in ("int32", "uuid"))):
                setattr(message, field.attribute, _plain(field, number))
        return message

    def _element(self, field: Field, path: list[Field], counts: list[int], name: str, number: int) -> Any:
        if field.structure is None:
            return _plain(field, number)
        return self.message(field.structure, path, counts, f"{name}.", number)


def _plain(field: Field, number: int) -> Any:
    """A value that differs from those of other elements."""
    if field.element == "string":
        return f"n{number}"
    if field.element == "uuid":
        return UUID(int=number + 1).bytes
    return number if field.element in ("int32", "int64") else number % 100
