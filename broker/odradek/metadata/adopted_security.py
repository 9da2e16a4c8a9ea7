"""Quotas, ACLs, SCRAM credentials and delegation tokens of a KRaft cluster, as nodes of Kafka 3.9's tree. Pure functions.

`odradek adopt` uses it. KRaft keeps them as records of the metadata log; the nodes are those that Kafka keeps in ZooKeeper
mode, and that the broker reads.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from odradek.config.key import show
from odradek.metadata import acl_nodes, token_nodes, znodes
from odradek.metadata.kraft_log import Entity, KraftCluster
from odradek.security.acl import Acl, problem_of
from odradek.security.delegation_token import Token
from odradek.security.sasl.scram_credential import BY_NUMBER, ScramCredential, encode_credential

Node = tuple[str, bytes]
"""The path and the data of a node."""

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_ENTITY_TYPES = frozenset({(USER,), (CLIENT_ID,), (CLIENT_ID, USER), (IP,)})
_FRACTIONAL = frozenset({"request_percentage", "controller_mutation_rate"})
_WHOLE = frozenset({"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"})
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
        mechanism = BY_NUMBER.get(number)
        if mechanism is None:
            adopted.left.append(f"a SCRAM credential of {user} for mechanism {number}, which this broker does not know")
            continue
        credential = ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )
        settings[znodes.quota_path(znodes.encode_name(user), None, None)][mechanism.name] = encode_credential(
            credential
        )
        count += 1
    return count


def _acls(cluster: KraftCluster, adopted: AdoptedSecurity) -> int:
    """Add the nodes of the ACLs, one for each resource pattern. Returns the number of ACLs."""
    patterns: dict[acl_nodes.Pattern, set[acl_nodes.Entry]] = defaultdict(set)
    for record in cluster.acls.values():
        acl = Acl(
            record.resource_type,
            record.pattern_type,
            record.resource_name,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        problem = problem_of(acl)
        if problem is not None:
            adopted.left.append(
                f"an ACL of {acl.principal} on {acl.name} (resource type {acl.resource_type}): {problem}"
            )
            continue
        pattern, entry = acl_nodes.split(acl)
        patterns[pattern].add(entry)
    adopted.nodes += [
        (acl_nodes.path_of(pattern), acl_nodes.encode_entries(entries)) for pattern, entries in patterns.items()
    ]
    return sum(map(len, patterns.values()))


def _token(record: Any) -> Node:
    """The node of a delegation token."""
    token = Token(
        record.token_id,
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )
    return token_nodes.path_of(token.token_id), token_nodes.encode_token(token)
