"""Copies the nodes of a cluster in ZooKeeper into a backup, and back into an empty tree.

Only persistent nodes are copied: brokers register again when they start. The children of the nodes that announce changes are
left out: a starting broker reads everything. SCRAM keys and ACLs of nodes are in the copy, so its file is for its owner alone.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any

from odradek.backup.errors import BackupError
from odradek.metadata import znodes
from odradek.metadata.store import NodeExists, NoNode
from odradek.metadata.zookeeper import ZookeeperStore

FORMAT = 1
ANNOUNCEMENTS = (
    znodes.CONFIG_CHANGES,
    "/isr_change_notification",
    "/log_dir_event_notification",
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
    "/delegation_token/token_changes",
)
"""The nodes whose children are left out: the numbers in their names begin again in a new ensemble."""
OF_ZOOKEEPER = "/zookeeper"
Node = tuple[str, bytes, list[tuple[str, str, int]]]


def dump_tree(store: ZookeeperStore, root: str) -> bytes:
    """The nodes below `root` (a chroot, or empty), as the content of a file. Raises BackupError, StoreError."""
    try:
        cluster_id = znodes.decode_cluster_id(store.get(root + znodes.CLUSTER_ID)[0])
    except NoNode:
        raise BackupError(
            f"there is no node {root}{znodes.CLUSTER_ID} in ZooKeeper at {store.options.hosts}: is the chroot right?"
        ) from None
    nodes = [
        {"path": path, "data": base64.b64encode(data).decode(), "acl": acl}
        for path, data, acl in _walk(store, root, "")
    ]
    return (json.dumps({"format": FORMAT, "cluster_id": cluster_id, "nodes": nodes}, indent=0) + "\n").encode()


def _walk(store: ZookeeperStore, root: str, path: str) -> Iterator[Node]:
    """The persistent nodes below `path`, parents first. Nodes that are deleted meanwhile are left out."""
    try:
        names = store.children(root + path or "/")
    except NoNode:
        return
    children = [f"{path}/{name}" for name in names]
    nodes = store.get_many([root + child for child in children])
    for child, node in zip(children, nodes, strict=True):
        if node is None or node[1].owner or (not root and child == OF_ZOOKEEPER):
            continue
        try:
            acl = store.acl_of(root + child)
        except NoNode:
            continue
        yield child, node[0], acl
        if node[1].children and child not in ANNOUNCEMENTS:
            yield from _walk(store, root, child)


def decode_tree(data: bytes, path: object) -> tuple[str, list[Node]]:
    """The cluster id and the nodes, parents first. Raises BackupError."""
    try:
        document: dict[str, Any] = json.loads(data)
        if document["format"] != FORMAT:
            raise BackupError(f"{path} has format {document['format']}, but this program reads only format {FORMAT}")
        nodes = [
            (str(node["path"]), base64.b64decode(node["data"]), [(str(a), str(b), int(c)) for a, b, c in node["acl"]])
            for node in document["nodes"]
        ]
        return str(document["cluster_id"]), nodes
    except (ValueError, KeyError, TypeError) as error:
        raise BackupError(f"{path} cannot be read: {error!r}") from error


def restore_tree(store: ZookeeperStore, data: bytes, path: object, new_cluster_id: str | None = None) -> int:
    """Create the nodes of a dump in the empty tree of `store`; return how many. The cluster id is created last, so that no
    broker joins an incomplete tree.

    :param path: of the dump, for messages. Raises BackupError, StoreError.
    """
    cluster_id, nodes = decode_tree(data, path)
    address = store.options.servers
    present = [name for name in store.children("/") if f"/{name}" != OF_ZOOKEEPER]
    if present:
        what = "an interrupted restore" if store.exists(znodes.CLUSTER_ID) is None else "a cluster"
        raise BackupError(
            f"ZooKeeper at {address} is not empty: it has the nodes of {what} (/{present[0]}): name another chroot, or delete"
            " them"
        )
    last = [node for node in nodes if node[0] == znodes.CLUSTER_ID]
    for node_path, content, acl in [node for node in nodes if node[0] != znodes.CLUSTER_ID] + last:
        if node_path == znodes.CLUSTER_ID:
            content = znodes.encode_cluster_id(new_cluster_id or cluster_id)
        try:
            store.create_with_acl(node_path, content, acl)
        except NodeExists:
            raise BackupError(
                f"{node_path} appeared in ZooKeeper at {address} during the restore: stop the brokers that use this address"
            ) from None
    return len(nodes)
