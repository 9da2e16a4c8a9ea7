"""The nodes of ACLs in the metadata tree, as Kafka 3.9 in ZooKeeper mode has them: paths, data, notifications of changes.

`/kafka-acl/<Type>/<name>` has the ACLs of the literal name of a resource, `/kafka-acl-extended/prefixed/<Type>/<name>` those
of a prefix. A name that cannot be the name of a node (it contains a slash or a control character) has its ACLs, with the name
encoded, below `/odradek/acls`, where brokers of Kafka do not see them. Pure functions and values.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from odradek.metadata.znodes import UNDECODABLE, CorruptNode
from odradek.security.acl import Acl, Operation, PatternType, Permission, ResourceType, problem_of
from odradek.security.resource_types import RESOURCE_TYPES

log = logging.getLogger("odradek.metadata")

LITERAL = "/kafka-acl"
EXTENDED = "/kafka-acl-extended"
PREFIXED = f"{EXTENDED}/prefixed"
OTHER_NAMES = "/odradek/acls"
LITERAL_CHANGES = "/kafka-acl-changes"
EXTENDED_CHANGES = "/kafka-acl-extended-changes"
CHANGE = "acl_changes_"
ROOTS = (LITERAL, PREFIXED, LITERAL_CHANGES, EXTENDED_CHANGES)
"""Nodes that a broker with an authorizer creates, if they are missing, when it starts."""

_UNUSABLE = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_TYPES = {row.type: row.node for row in RESOURCE_TYPES.values()}
_TYPE_OF = {name: kind for kind, name in _TYPES.items()}
_PATTERNS = {PatternType.LITERAL: "literal", PatternType.PREFIXED: "prefixed"}


def _word(operation: Operation) -> str:
    """The name of an operation in a node: DESCRIBE_CONFIGS is DescribeConfigs."""
    return "".join(part.capitalize() for part in operation.name.split("_"))


_OPERATIONS = {operation: _word(operation) for operation in Operation}
_OPERATION_OF = {word.lower(): operation for operation, word in _OPERATIONS.items()}
_PERMISSIONS = {Permission.ALLOW: "Allow", Permission.DENY: "Deny"}
_PERMISSION_OF = {word.lower(): permission for permission, word in _PERMISSIONS.items()}


class Pattern(NamedTuple):
    """What the ACLs in a node are about."""

    resource_type: int
    pattern_type: int
    name: str


EVERYTHING = Pattern(ResourceType.ANY, PatternType.ANY, "")
"""Any ACL may have changed."""


class Entry(NamedTuple):
    """An ACL in the node of its pattern."""

    principal: str
    host: str
    operation: int
    permission: int


def split(acl: Acl) -> tuple[Pattern, Entry]:
    """The pattern and the entry of an ACL."""
    return Pattern(acl.resource_type, acl.pattern_type, acl.name), Entry(
        acl.principal, acl.host, acl.operation, acl.permission
    )


def joined(pattern: Pattern, entry: Entry) -> Acl:
    """The ACL with this pattern and entry."""
    kind, pattern_type, name = pattern
    return Acl(kind, pattern_type, name, entry.principal, entry.host, entry.operation, entry.permission)


class ParentNode(NamedTuple):
    """A node whose children are named after resources. ``encoded``: whether their names are encoded."""

    path: str
    resource_type: int
    pattern_type: int
    encoded: bool

    def pattern(self, node: str) -> Pattern:
        """The pattern of a child."""
        return Pattern(self.resource_type, self.pattern_type, unquote(node) if self.encoded else node)


PARENT_NODES = tuple(
    ParentNode(f"{root}/{name}", kind, pattern, encoded)
    for kind, name in _TYPES.items()
    for pattern in (PatternType.LITERAL, PatternType.PREFIXED)
    for root, encoded in (
        (LITERAL if pattern == PatternType.LITERAL else PREFIXED, False),
        (f"{OTHER_NAMES}/{_PATTERNS[pattern]}", True),
    )
)
"""Where ACLs are."""


def path_of(pattern: Pattern) -> str:
    """The path of the node with the ACLs of a pattern."""
    kind, pattern_type = ResourceType(pattern.resource_type), PatternType(pattern.pattern_type)
    if pattern.name in (".", "..") or _UNUSABLE.search(pattern.name):
        name = pattern.name.replace(".", "%2E") if pattern.name in (".", "..") else quote(pattern.name, safe="")
        return f"{OTHER_NAMES}/{_PATTERNS[pattern_type]}/{_TYPES[kind]}/{name}"
    root = LITERAL if pattern_type == PatternType.LITERAL else PREFIXED
    return f"{root}/{_TYPES[kind]}/{pattern.name}"


def encode_entries(entries: Iterable[Entry]) -> bytes:
    """The data of a node, in version 1."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": _PERMISSIONS[Permission(entry.permission)],
            "operation": _OPERATIONS[Operation(entry.operation)],
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return json.dumps({"version": 1, "acls": acls}, separators=(",", ":"), ensure_ascii=False).encode()


def decode_entries(path: str, data: bytes, pattern: Pattern) -> frozenset[Entry]:
    """The entries in a node. Raises CorruptNode, also for an entry that this broker does not understand: if it denied
    something, to ignore it would allow that."""
    try:
        value: Any = json.loads(data) if data else {"version": 1, "acls": []}
        if value["version"] != 1:
            raise ValueError(f"version {value['version']}, expected 1")
        entries = frozenset(
            Entry(
                str(acl["principal"]),
                str(acl["host"]),
                _OPERATION_OF[str(acl["operation"]).replace("_", "").lower()],
                _PERMISSION_OF[str(acl["permissionType"]).lower()],
            )
            for acl in value["acls"]
        )
        for entry in entries:
            if (problem := problem_of(joined(pattern, entry))) is not None:
                raise ValueError(problem)
    except UNDECODABLE as error:
        raise CorruptNode(
            f"cannot decode the ACLs in the metadata node {path} ({type(error).__name__}: {error}): {data[:200]!r}"
        ) from error
    return entries


def change_of(pattern: Pattern) -> tuple[str, bytes]:
    """The path (of a sequential node) and the data of the notification that the ACLs of a pattern changed."""
    kind = ResourceType(pattern.resource_type)
    if pattern.pattern_type == PatternType.LITERAL:
        return f"{LITERAL_CHANGES}/{CHANGE}", f"{kind.name}:{pattern.name}".encode()
    event = {"version": 1, "resourceType": kind.name, "name": pattern.name, "patternType": "PREFIXED"}
    return f"{EXTENDED_CHANGES}/{CHANGE}", json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


def decode_change(path: str, data: bytes) -> Pattern:
    """The pattern that a notification names. Raises CorruptNode."""
    try:
        if path.startswith(EXTENDED_CHANGES):
            event = json.loads(data)
            return Pattern(_type_of(event["resourceType"]), PatternType[event["patternType"]], event["name"])
        kind, separator, name = data.decode().partition(":")
        if not separator:
            raise ValueError("must be a resource type, a colon and a name")
        return Pattern(_type_of(kind), PatternType.LITERAL, name)
    except UNDECODABLE as error:
        raise CorruptNode(f"cannot decode {path} ({type(error).__name__}: {error}): {data[:200]!r}") from error


def changed(path: str, data: bytes) -> Pattern:
    """The pattern that a notification names; EVERYTHING if it is not understood, because the change must not be missed."""
    try:
        return decode_change(path, data)
    except CorruptNode as error:
        log.error("%s; reading all ACLs", error)
        return EVERYTHING


def _type_of(text: str) -> ResourceType:
    """The type that Kafka writes as TOPIC or as Topic."""
    known = _TYPE_OF.get(text)
    return ResourceType[text] if known is None else known


def all_acls(nodes: Mapping[Pattern, frozenset[Entry]]) -> list[Acl]:
    """The ACLs of many nodes, sorted."""
    return sorted(joined(pattern, entry) for pattern, entries in nodes.items() for entry in entries)
