"""Quotas, ACLs, SCRAM credentials and delegation tokens of a KRaft cluster, as nodes of Kafka 3.9's tree. Pure functions.

`odradek adopt` uses it. KRaft keeps them as records of the metadata log; the nodes are those that Kafka keeps in ZooKeeper
mode, and that the broker reads.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from odradek.config.key import show
from odradek.metadata import znodes
from odradek.metadata.kraft_log import Entity, KraftCluster

Node = tuple[str, bytes]
"""The path and the data of a node."""

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_ENTITY_TYPES = frozenset({(USER,), (CLIENT_ID,), (CLIENT_ID, USER), (IP,)})
_FRACTIONAL = frozenset({"request_percentage", "controller_mutation_rate"})
_WHOLE = frozenset({"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"})
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_RESOURCES = {2: "Topic", 3: "Group", 4: "Cluster", 5: "TransactionalId", 6: "DelegationToken", 7: "User"}
_LITERAL, _PREFIXED = 3, 4
_OPERATIONS = {
    2: "All", 3: "Read", 4: "Write", 5: "Create", 6: "Delete", 7: "Alter", 8: "Describe", 9: "ClusterAction",
    10: "DescribeConfigs", 11: "AlterConfigs", 12: "IdempotentWrite", 13: "CreateTokens", 14: "DescribeTokens",
    15: "TwoPhaseCommit",
}  # fmt: skip
_PERMISSIONS = {2: "Deny", 3: "Allow"}


_Settings = defaultdict[str, dict[str, str]]  # by the path of their node


@dataclass
class AdoptedSecurity:
    """What the adoption writes, and what it leaves out.

    :param nodes: without their parents. :param taken: what they contain, in words, such as "3 ACLs".
    :param left: what has no node, one sentence each.
    """

    nodes: list[Node] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def count(self, quotas: int, credentials: int, acls: int, tokens: int) -> None:
        """Describe the numbers of adopted objects in `taken`."""
        self.taken += [
            f"{number} {noun}{'' if number == 1 else 's'}"
            for number, noun in (
                (quotas, "client quota"),
                (credentials, "SCRAM credential"),
                (acls, "ACL"),
                (tokens, "delegation token"),
            )
            if number
        ]


def security_of(cluster: KraftCluster) -> AdoptedSecurity:
    """The nodes for quotas, SCRAM credentials, ACLs and delegation tokens of a cluster."""
    adopted = AdoptedSecurity()
    settings: _Settings = defaultdict(dict)
    quotas = _quotas(cluster, settings, adopted)
    credentials = _credentials(cluster, settings, adopted)
    adopted.nodes += [(path, znodes.encode_config(values)) for path, values in settings.items()]
    acls = _acls(cluster, adopted)
    adopted.nodes += [_token(token) for token in cluster.delegation_tokens.values()]
    adopted.count(quotas, credentials, acls, len(cluster.delegation_tokens))
    return adopted


def _quotas(cluster: KraftCluster, settings: _Settings, adopted: AdoptedSecurity) -> int:
    """Add the quotas to the settings by path. Returns their number."""
    count = 0
    for entity, values in cluster.quotas.items():
        if tuple(kind for kind, _ in entity) not in _ENTITY_TYPES:
            adopted.left.append(
                f"quotas of the entity {_named(entity)}: this broker has quotas of users, client ids and addresses"
            )
            continue
        nodes = {kind: znodes.DEFAULT_ENTITY if name is None else znodes.encode_name(name) for kind, name in entity}
        path = znodes.quota_path(nodes.get(USER), nodes.get(CLIENT_ID), nodes.get(IP))
        for key, value in values.items():
            if key in _FRACTIONAL:
                settings[path][key] = str(show(float(value)))
            elif key in _WHOLE:
                settings[path][key] = str(int(value))
            else:
                adopted.left.append(f"quota {key} of {_named(entity)}: this broker does not know it")
                continue
            count += 1
    return count


def _named(entity: Entity) -> str:
    return ", ".join(f"{kind} {name if name is not None else '(default)'}" for kind, name in entity) or "(empty)"


def _credentials(cluster: KraftCluster, settings: _Settings, adopted: AdoptedSecurity) -> int:
    """Add the SCRAM credentials to the settings by path. Returns their number."""
    count = 0
    for (user, number), record in cluster.scram_credentials.items():
        mechanism = _MECHANISMS.get(number)
        if mechanism is None:
            adopted.left.append(f"a SCRAM credential of {user} for mechanism {number}, which this broker does not know")
            continue
        settings[znodes.quota_path(znodes.encode_name(user), None, None)][mechanism] = (
            f"salt={_base64(record.salt)},stored_key={_base64(record.stored_key)},"
            f"server_key={_base64(record.server_key)},iterations={record.iterations}"
        )
        count += 1
    return count


def _base64(value: Any) -> str:
    return b64encode(bytes(value)).decode()


def _acls(cluster: KraftCluster, adopted: AdoptedSecurity) -> int:
    """Add the nodes of the ACLs, one for each resource pattern. Returns the number of ACLs."""
    patterns: dict[str, list[dict[str, str]]] = defaultdict(list)
    count = 0
    for record in cluster.acls.values():
        resource, operation = _RESOURCES.get(record.resource_type), _OPERATIONS.get(record.operation)
        permission = _PERMISSIONS.get(record.permission_type)
        known = record.pattern_type in (_LITERAL, _PREFIXED)
        if resource is None or operation is None or permission is None or not known:
            adopted.left.append(
                f"an ACL of {record.principal} on {record.resource_name}: this broker does not know its resource type "
                f"{record.resource_type}, pattern type {record.pattern_type}, operation {record.operation} or permission "
                f"type {record.permission_type}"
            )
            continue
        root = "/kafka-acl" if record.pattern_type == _LITERAL else "/kafka-acl-extended/prefixed"
        patterns[f"{root}/{resource}/{record.resource_name}"].append(
            {"principal": record.principal, "permissionType": permission, "operation": operation, "host": record.host}
        )
        count += 1
    adopted.nodes += [(path, _json({"version": 1, "acls": entries})) for path, entries in patterns.items()]
    return count


def _token(record: Any) -> Node:
    """The node of a delegation token, in version 3. Kafka encodes the principals as it encodes the names of nodes."""
    token = {
        "version": 3,
        "owner": znodes.encode_name(record.owner),
        "tokenRequester": znodes.encode_name(record.requester),
        "renewers": [znodes.encode_name(renewer) for renewer in record.renewers],
        "issueTimestamp": record.issue_timestamp,
        "maxTimestamp": record.max_timestamp,
        "expiryTimestamp": record.expiration_timestamp,
        "tokenId": record.token_id,
    }
    return f"/delegation_token/tokens/{record.token_id}", _json(token)


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
