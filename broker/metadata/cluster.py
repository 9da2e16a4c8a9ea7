"""Joining a cluster: the nodes every broker makes sure of, the cluster's id, the broker's registration, the controller.

Runs in the coordinator's controller thread (the id also in the first loader); the store is what protects it.
"""

import time
import uuid
from typing import NamedTuple

from broker.metadata import znodes
from broker.metadata.store import BadVersion, NodeExists, NoNode, Store, ensure_path
from broker.storage.log_directory import encode_uuid


class WrongCluster(Exception):
    """The log directories belong to another cluster than the metadata store."""


class BrokerIdTaken(Exception):
    """Another broker, alive, is registered under this id."""


class Election(NamedTuple):
    """The controller: ``broker_id`` and, if it is this broker, ``epoch``."""

    broker_id: int
    epoch: int | None


def new_uuid() -> uuid.UUID:
    """A random uuid as Kafka makes them for topics and clusters.

    Not one of the two reserved ones, and none whose text begins with a dash, which command lines take for an option.
    """
    while True:
        value = uuid.uuid4()
        if value.int > 1 and not encode_uuid(value).startswith("-"):
            return value


def ensure_cluster_id(store: Store, expected: str | None) -> str:
    """The cluster's id; where the store has none yet it becomes `expected` (of meta.properties), or a new one.

    Raises WrongCluster if the store's id is not the one expected.
    """
    for path in znodes.PERSISTENT:
        ensure_path(store, path)
    try:
        wanted = expected or encode_uuid(new_uuid())
        store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(wanted), make_parents=True)
        return wanted
    except NodeExists:
        found = znodes.decode_cluster_id(store.get(znodes.CLUSTER_ID)[0])
    if expected not in (None, found):
        raise WrongCluster(
            f"the log directories belong to cluster {expected} (meta.properties), the metadata store to {found}:"
            " point log.dirs or the metadata store at the right place"
        )
    return found


def register_broker(store: Store, broker_id: int, registration: znodes.BrokerRegistration) -> int:
    """Register under ``/brokers/ids`` in the store's session; the broker epoch.

    A registration that this session made before (a predecessor's of the same broker) is replaced. Raises BrokerIdTaken.
    """
    path = znodes.broker_path(broker_id)
    data = znodes.encode_broker(registration)
    try:
        store.create(path, data, ephemeral=True)
    except NodeExists:
        stat = store.exists(path)
        if stat is not None and stat.owner != (store.session.id if store.session else 0):
            raise BrokerIdTaken(
                f"another broker is registered with broker.id={broker_id}: give this one an id of its own"
            ) from None
        if stat is None:
            store.create(path, data, ephemeral=True)
        else:
            store.set(path, data)
    stat = store.exists(path)
    assert stat is not None
    return stat.created


def elect_controller(store: Store, broker_id: int) -> Election:
    """Become the controller if there is none, or if a predecessor in this session was it; each time in a new epoch.

    The epoch is raised in the transaction that takes the office, so that nobody acts in an epoch that is not durable.
    """
    while True:
        epoch, epoch_version = _controller_epoch(store)
        transaction = store.transaction()
        found = store.exists(znodes.CONTROLLER)
        if found is not None and found.owner != (store.session.id if store.session else 0):
            try:
                return Election(znodes.decode_controller(store.get(znodes.CONTROLLER)[0]), None)
            except NoNode:
                continue  # it resigned between the two looks
        if found is not None:
            transaction.delete(znodes.CONTROLLER)
        transaction.create(
            znodes.CONTROLLER, znodes.encode_controller(broker_id, time.time_ns() // 1_000_000), ephemeral=True
        )
        transaction.set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch + 1), epoch_version)
        try:
            transaction.commit()
        except (NodeExists, NoNode, BadVersion):
            continue  # another broker was faster: look who it is
        return Election(broker_id, epoch + 1)


def _controller_epoch(store: Store) -> tuple[int, int]:
    """Epoch of the last election (0: there was none) and the version of its node, which exists afterwards."""
    try:
        store.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
    except NodeExists:
        pass  # the usual case
    data, stat = store.get(znodes.CONTROLLER_EPOCH)
    return znodes.decode_controller_epoch(data), stat.version
