"""Joins a cluster: creates the persistent nodes and the cluster id, and registers the broker.

Runs in the coordinator's store thread; `ensure_cluster_id` also in the first loader. The transactions of the store
protect it.
"""

import uuid
from functools import partial
from pathlib import Path

from odradek.metadata import znodes
from odradek.metadata.corrupt_nodes import usable
from odradek.metadata.store import NodeExists, NoNode, Store, StoreUnavailable, WrongTree, ensure_path
from odradek.storage.log_directory import encode_uuid

ADOPTED_PRODUCER_IDS_FROM = 1 << 40
"""The first producer id after an adoption of Kafka's directories. Other clusters never reach it."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class WrongCluster(Exception):
    """The log directories and the metadata store belong to different clusters."""


class BrokerIdTaken(Exception):
    """Another live broker is registered with this id."""


class EndpointTaken(BrokerIdTaken):
    """Another live broker is registered with one of the addresses of this broker."""


def new_uuid() -> uuid.UUID:
    """A random uuid for topics and clusters, like Kafka's.

    It is not one of the two reserved ids, and its text does not begin with a dash, because command lines take that for an
    option.
    """
    while True:
        value = uuid.uuid4()
        if value.int > 1 and not encode_uuid(value).startswith("-"):
            return value


def join_cluster(store: Store, expected: str | None) -> str:
    """The id of the cluster whose metadata store other brokers use, too. It is created if the log directories are new.

    Raises WrongCluster if the store belongs to another cluster than the log directories, or is empty although they were used:
    nothing is written to it then.

    :param expected: the cluster id in meta.properties; None for new log directories.
    """
    try:
        stored = znodes.decode_cluster_id(store.get(znodes.CLUSTER_ID)[0])
    except NoNode:
        if expected is not None:
            raise WrongCluster(
                f"the log directories belong to cluster {expected} (meta.properties), but zookeeper.connect leads to an empty"
                " tree: set zookeeper.connect, with its chroot, to the ZooKeeper of that cluster"
            ) from None
    else:
        if expected not in (None, stored):
            raise WrongCluster(
                f"the log directories belong to cluster {expected} (meta.properties), but zookeeper.connect leads to cluster"
                f" {stored}: set zookeeper.connect or log.dirs to those of one cluster"
            )
    return ensure_cluster_id(store, None)


def check_tree(expected: str, servers: str, data: bytes | None) -> None:
    """Raise WrongTree unless a tree is that of a cluster.

    :param expected: the id of the cluster. :param servers: zookeeper.connect.
    :param data: of the node of the cluster id; None if it does not exist.
    """
    node = f"{servers}: {znodes.CLUSTER_ID}"
    if data is None:
        raise WrongTree(
            f"the tree in ZooKeeper has no cluster id ({node}), but this broker belongs to cluster {expected}: the tree was"
            " deleted, or ZooKeeper was replaced; restore ZooKeeper from a backup"
        )
    try:
        stored = znodes.decode_cluster_id(data)
    except znodes.CorruptNode as error:
        raise WrongTree(f"the tree in ZooKeeper at {servers} cannot be used: {error}") from error
    if stored != expected:
        raise WrongTree(
            f"the tree in ZooKeeper ({node}) is that of cluster {stored}, but this broker belongs to cluster {expected}:"
            " restore the ZooKeeper of this cluster"
        )


def ensure_cluster_id(store: Store, expected: str | None) -> str:
    """The cluster id in the store. If it does not exist, it is created as `expected` (from meta.properties), or as a new id.

    Raises WrongCluster if the id in the store differs from `expected`.
    """
    for path in znodes.PERSISTENT:
        ensure_path(store, path)
    try:
        cluster_id = expected or encode_uuid(new_uuid())
        store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id), make_parents=True)
        return cluster_id
    except NodeExists:
        stored = znodes.decode_cluster_id(store.get(znodes.CLUSTER_ID)[0])
    if expected not in (None, stored):
        raise WrongCluster(
            f"the log directories belong to cluster {expected} (meta.properties), the metadata store to cluster {stored}:"
            " set log.dirs to the directories of one cluster"
        )
    return stored


def register_broker(store: Store, broker_id: int, registration: znodes.BrokerRegistration) -> int:
    """Register the broker under ``/brokers/ids`` in the session of the store; return the broker epoch.

    A registration of the same session, made by a predecessor of this process, is replaced. Raises BrokerIdTaken.
    """
    path = znodes.broker_path(broker_id)
    data = znodes.encode_broker(registration)
    try:
        store.create(path, data, ephemeral=True)
    except NodeExists:
        stat = store.exists(path)
        if stat is not None and stat.owner != (store.session.id if store.session else 0):
            raise BrokerIdTaken(
                f"another broker is registered with broker.id={broker_id}: set a different broker.id for this one"
            ) from None
        if stat is None:
            store.create(path, data, ephemeral=True)
        else:
            store.set(path, data)
    return _registered_epoch(store, broker_id)


def register_again(store: Store, broker_id: int, registration: znodes.BrokerRegistration) -> int:
    """Replace the registration of the broker in the session of the store by a new one; return its broker epoch. The controller
    takes the broker for one that was restarted, and sends everything again."""
    path = znodes.broker_path(broker_id)
    data = znodes.encode_broker(registration)
    store.transaction().delete(path).create(path, data, ephemeral=True).commit()
    return _registered_epoch(store, broker_id)


def _registered_epoch(store: Store, broker_id: int) -> int:
    stat = store.exists(znodes.broker_path(broker_id))
    if stat is None:
        raise StoreUnavailable(f"the session ended while broker {broker_id} was registered")
    return stat.created


def usable_registration(broker_id: int, data: bytes) -> znodes.BrokerRegistration | None:
    """The registration of a broker; None, with an ERROR once, if it cannot be decoded."""
    consequence = f"broker {broker_id} counts as one that is not registered"
    return usable(znodes.broker_path(broker_id), lambda: znodes.decode_broker(broker_id, data), None, consequence)


def check_endpoints(store: Store, broker_id: int, registration: znodes.BrokerRegistration) -> None:
    """Raise EndpointTaken if another broker has registered an address of this one: clients would reach the wrong broker."""
    own = {(endpoint.host, endpoint.port) for endpoint in registration.endpoints}
    others = [other for other in znodes.broker_ids(store.children(znodes.BROKER_IDS)) if other != broker_id]
    for other, node in zip(others, store.get_many([znodes.broker_path(other) for other in others]), strict=True):
        found = None if node is None else usable_registration(other, node[0])
        for endpoint in () if found is None else found.endpoints:
            if (endpoint.host, endpoint.port) in own:
                raise EndpointTaken(
                    f"broker {other} is registered with the address {endpoint.host}:{endpoint.port}: set a different address in"
                    " advertised.listeners or listeners of this broker"
                )


# -- the machine --------------------------------------------------------------------------------------------------


def was_adopted(store: Store) -> bool:
    """Whether the cluster was adopted from Kafka, and may be returned to Kafka."""
    (node,) = store.get_many([znodes.PRODUCER_ID_BLOCK])
    decode = partial(znodes.decode_producer_id_block, b"" if node is None else node[0])
    block = usable(znodes.PRODUCER_ID_BLOCK, decode, None, "no producer ids are allocated")
    return block is not None and block.last + 1 >= ADOPTED_PRODUCER_IDS_FROM


def may_have_lost_cache(store: Store) -> bool:
    """Whether logs that were not closed in order may lack records that clients have read, without a sign in their files.

    In an adopted cluster, only if the machine was booted since: Kafka does not know leader epochs that begin here, so none
    begins without need. In other clusters, always: the logs may have been changed manually, or their device may have been
    detached.
    """
    (node,) = store.get_many([znodes.MACHINE_BOOT])
    return not was_adopted(store) or node is None or node[0] != machine_boot()


def machine_boot() -> bytes:
    """The boot id of the machine, different for every boot; empty if it cannot be read."""
    try:
        return BOOT_ID.read_bytes().strip()
    except OSError:
        return b""


def note_boot(store: Store) -> None:
    """Store the boot id for the next start, in an adopted cluster.

    Called only after the leader epochs of this start are stored.
    """
    boot = machine_boot()
    (node,) = store.get_many([znodes.MACHINE_BOOT])
    if not boot or not was_adopted(store) or (node is not None and node[0] == boot):
        return
    ensure_path(store, znodes.MACHINE_BOOT)
    store.set(znodes.MACHINE_BOOT, boot)
