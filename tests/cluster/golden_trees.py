"""Dumps of the tree in ZooKeeper, in a form in which the trees of two clusters can be compared.

Left out is what differs between two runs of the same brokers: ids of topics and of the cluster, ports, times, the order of
in-sync replicas and of notifications, and the replicas of topics that are placed by chance.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from odradek.metadata import znodes

NOTIFICATION = re.compile(rf"{znodes.CONFIG_CHANGE}\d+")
ZOOKEEPERS_OWN = "/zookeeper"
STATE = re.compile(rf"{znodes.TOPICS}/([^/]+)/partitions/(\d+)/state")
TOPIC = re.compile(rf"{znodes.TOPICS}/([^/]+)")
VERSIONS_OF_BROKERS = re.compile(rf"{znodes.BROKER_IDS}/\d+")
"""Nodes whose version says only how often a broker wrote its registration."""


class Node(NamedTuple):
    """A node as it is stored. ``acl``: (scheme, id, permissions) of each entry."""

    data: bytes
    ephemeral: bool
    version: int
    acl: tuple[tuple[str, str, int], ...]


class Tree(dict[str, Node]):
    """The nodes by path."""

    def json(self, path: str) -> Any:
        """The data of a node."""
        return json.loads(self[path].data)

    def below(self, path: str) -> list[str]:
        """The names of the children of a node."""
        parent = path + "/"
        return [name[len(parent) :] for name in self if name.startswith(parent) and "/" not in name[len(parent) :]]


def read_tree(client: KazooClient) -> Tree:
    """All nodes below the root of a client; a tree that changes meanwhile may be read in parts of several states."""
    found = Tree()
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        try:
            data, stat = client.get(path)
            acl, _ = client.get_acls(path)
            names = client.get_children(path)
        except NoNodeError:
            continue
        found[path] = _node(data or b"", stat, acl)
        waiting += [f"{path.rstrip('/')}/{name}" for name in names if f"/{name}" != ZOOKEEPERS_OWN]
    return found


def _node(data: bytes, stat: ZnodeStat, acl: list[ACL]) -> Node:
    entries = tuple(sorted((entry.id.scheme, entry.id.id, entry.perms) for entry in acl))
    return Node(data, stat.ephemeralOwner != 0, stat.version, entries)


Fields = dict[str, Any]
Apply = Callable[[Fields, bool], Fields | None]
"""The form in which a node is compared, from its fields (data, owner, version, acl), and whether the tree is Kafka's; None to
leave it out."""


class Departure(NamedTuple):
    """A deliberate difference. ``path``: of the nodes, a regular expression."""

    path: str
    reason: str
    apply: Apply


class Comparison:
    """Compares trees.

    :param by_chance: topics whose replicas are placed by chance. :ivar used: the departures that made a difference.
    """

    def __init__(self, departures: Mapping[str, Departure], by_chance: frozenset[str]) -> None:
        self._departures = [
            (name, re.compile(departure.path), departure.apply) for name, departure in departures.items()
        ]
        self._by_chance = by_chance
        self.used: set[str] = set()

    def difference(self, kafka: Tree, ours: Tree) -> list[str]:
        """The lines in which two trees differ; empty if they are equal."""
        sides = [self._lines(tree, tree is kafka) for tree in (kafka, ours)]
        lines = difflib.unified_diff(*sides, "kafka", "odradek", lineterm="", n=0)
        return [line for line in lines if not line.startswith("@@")]

    def _lines(self, tree: Tree, of_kafka: bool) -> list[str]:
        ports = {
            str(endpoint.rpartition(":")[2]): f"port of {broker}"
            for broker in tree.below(znodes.BROKER_IDS)
            for endpoint in tree.json(f"{znodes.BROKER_IDS}/{broker}")["endpoints"]
        }
        lines = []
        for path, node in sorted(_with_sorted_notifications(tree).items()):
            fields: Fields | None = {
                "data": self._data(path, node.data, ports),
                "owner": "a session" if node.ephemeral else "none",
                "version": "*" if self._varies(path) else node.version,
                "acl": node.acl,
            }
            for name, pattern, apply in self._departures:
                if fields is not None and pattern.fullmatch(path):
                    changed = apply(dict(fields), of_kafka)
                    if changed != fields:
                        self.used.add(name)
                    fields = changed
            if fields is not None:
                texts = [f"{name} {json.dumps(value, sort_keys=True)}" for name, value in fields.items()]
                lines.append(f"{path} {', '.join(texts)}")
        return lines

    def _varies(self, path: str) -> bool:
        found = STATE.fullmatch(path)
        chance = found is not None and found[1] in self._by_chance
        return chance or VERSIONS_OF_BROKERS.fullmatch(path) is not None

    def _data(self, path: str, data: bytes, ports: Mapping[str, str]) -> Any:
        """The data of a node without what may differ."""
        try:
            value = json.loads(data)
        except ValueError:
            return data.decode()
        if not isinstance(value, dict):
            return value
        for field in ("timestamp", "topic_id", "id"):
            if field in value:
                assert isinstance(value[field], str), f"{path}: {value}"
                value[field] = "*"
        if path == znodes.PRODUCER_ID_BLOCK:
            value["broker"] = "*"  # the client chooses the broker
        if VERSIONS_OF_BROKERS.fullmatch(path):
            value["endpoints"] = [_with_names(endpoint, ports) for endpoint in value["endpoints"]]
            value["port"] = ports.get(str(value["port"]), value["port"])
        if found := STATE.fullmatch(path):
            self._state(value, found[1] in self._by_chance)
        if (found := TOPIC.fullmatch(path)) and found[1] in self._by_chance:
            value["partitions"] = {name: len(replicas) for name, replicas in value["partitions"].items()}
        return value

    @staticmethod
    def _state(value: dict[str, Any], by_chance: bool) -> None:
        value["isr"] = sorted(value["isr"])
        if by_chance:
            value |= {
                "isr": len(value["isr"]),
                "leader": value["leader"] >= 0,
                "leader_epoch": "*",
                "controller_epoch": "*",
            }


def _with_names(endpoint: str, ports: Mapping[str, str]) -> str:
    head, _, port = endpoint.rpartition(":")
    return f"{head}:{ports[port]}"


def _with_sorted_notifications(tree: Tree) -> Tree:
    """The tree with the notifications in the order of what changed: tools change several brokers at the same time."""
    paths = sorted(path for path in tree if NOTIFICATION.fullmatch(path))
    nodes = sorted((tree[path] for path in paths), key=lambda node: json.loads(node.data)["entity_path"])
    return Tree(tree | dict(zip(paths, nodes, strict=True)))
