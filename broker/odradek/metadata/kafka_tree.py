"""Reads what a Kafka cluster in ZooKeeper mode keeps in ZooKeeper and not in its log directories. Writes nothing.

`odradek adopt --zookeeper` uses it. The nodes for users, client ids, addresses, ACLs and delegation tokens are copied as they
are, because the broker reads the same formats.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from odradek.metadata import acl_nodes, token_nodes, znodes
from odradek.metadata.adopted_security import AdoptedSecurity
from odradek.metadata.store import NoNode, Store

COPIED = (
    znodes.USER_CONFIGS,
    znodes.CLIENT_CONFIGS,
    znodes.IP_CONFIGS,
    acl_nodes.LITERAL,
    acl_nodes.EXTENDED,
    acl_nodes.OTHER_NAMES,
    token_nodes.TOKENS,
)
"""The nodes whose descendants are copied."""


@dataclass
class KafkaTree:
    """The part of the tree that an adoption uses. `broker_settings`: names of the dynamic settings of brokers, by node name."""

    cluster_id: str
    topic_configs: dict[str, dict[str, str]]
    broker_settings: dict[str, list[str]]
    security: AdoptedSecurity


class NoKafkaTree(Exception):
    """There is no Kafka cluster below this root of ZooKeeper; one line."""


def read_kafka_tree(store: Store, root: str = "") -> KafkaTree:
    """Read the tree below `root`, a chroot. Raises NoKafkaTree, StoreError (CorruptNode if a node is not in Kafka's format)."""
    try:
        cluster_id = znodes.decode_cluster_id(store.get(root + znodes.CLUSTER_ID)[0])
    except NoNode:
        raise NoKafkaTree(f"there is no node {root}{znodes.CLUSTER_ID}: is the chroot in the address right?") from None
    topics = {
        name: znodes.decode_config(path, data) for name, path, data in _children(store, root + znodes.TOPIC_CONFIGS)
    }
    brokers = {
        name: sorted(znodes.decode_config(path, data))
        for name, path, data in _children(store, root + znodes.BROKER_CONFIGS)
    }
    security = AdoptedSecurity()
    for parent in COPIED:
        security.nodes += [(path[len(root) :], data) for path, data in _descendants(store, root + parent) if data]
    _count(security)
    return KafkaTree(cluster_id, topics, {name: keys for name, keys in brokers.items() if keys}, security)


def _children(store: Store, parent: str) -> Iterator[tuple[str, str, bytes]]:
    """The name, path and data of each child."""
    try:
        names = store.children(parent)
    except NoNode:
        return
    paths = [f"{parent}/{name}" for name in names]
    for name, path, node in zip(names, paths, store.get_many(paths), strict=True):
        if node is not None:
            yield name, path, node[0]


def _descendants(store: Store, root: str) -> Iterator[tuple[str, bytes]]:
    """The path and data of all nodes below `root`, parents first."""
    for _, path, data in _children(store, root):
        yield path, data
        yield from _descendants(store, path)


def _count(security: AdoptedSecurity) -> None:
    """Describe the copied nodes in `security.taken`. Raises CorruptNode."""
    quotas = credentials = acls = tokens = 0
    for path, data in security.nodes:
        if path.startswith("/config/"):
            settings = znodes.decode_config(path, data)
            credentials += sum(key.startswith("SCRAM-") for key in settings)
            quotas += sum(not key.startswith("SCRAM-") for key in settings)
        elif path.startswith((acl_nodes.LITERAL, acl_nodes.OTHER_NAMES)):
            acls += len(_acls_in(path, data))
        else:
            tokens += 1
    security.count(quotas, credentials, acls, tokens)


def _acls_in(path: str, data: bytes) -> list[object]:
    try:
        return list(json.loads(data)["acls"])
    except znodes.UNDECODABLE as error:
        raise znodes.CorruptNode(f"cannot decode the ACLs in the node {path}: {error}") from error
