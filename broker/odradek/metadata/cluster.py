"""Joining a cluster: the nodes every broker makes sure of, the cluster's id, the broker's registration, the controller.

Runs in the coordinator's controller thread (the id also in the first loader); the store is what protects it.
"""

import time
import uuid
from pathlib import Path
from typing import NamedTuple

from odradek.metadata import znodes
from odradek.metadata.store import BadVersion, NodeExists, NoNode, Store, ensure_path
from odradek.storage.log_directory import encode_uuid

ADOPTED_PRODUCER_IDS_FROM = 1 << 40
"""Where the ids of producers begin after a take-over of Kafka's directories; no other cluster gets that far."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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
                f"another broker is registered with broker.id={broker_id}: set a different broker.id for this one"
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


# -- the machine --------------------------------------------------------------------------------------------------


def was_adopted(store: Store) -> bool:
    """Whether the cluster was Kafka's, and may go back to it."""
    (found,) = store.get_many([znodes.PRODUCER_ID_BLOCK])
    block = None if found is None else znodes.decode_producer_id_block(found[0])
    return block is not None and block.last + 1 >= ADOPTED_PRODUCER_IDS_FROM


def may_have_lost_cache(store: Store) -> bool:
    """Whether logs that were not closed in order may lack records that somebody has read, without a sign in their files.

    In a cluster that may go back to Kafka only if the machine was booted since: Kafka does not know the leader epochs that
    begin here, so none begins without need. In others any start of that kind counts: the logs may have been altered by
    hand, or lie on a device that was away.
    """
    (found,) = store.get_many([znodes.MACHINE_BOOT])
    return not was_adopted(store) or found is None or found[0] != machine_boot()


def machine_boot() -> bytes:
    """What no other boot of this machine has in common with this one; nothing known: empty."""
    try:
        return BOOT_ID.read_bytes().strip()
    except OSError:
        return b""


def note_boot(store: Store) -> None:
    """Remember for the next start which boot this is, where that start will ask.

    Only after the leader epochs of this start are stored.
    """
    boot = machine_boot()
    (found,) = store.get_many([znodes.MACHINE_BOOT])
    if not boot or not was_adopted(store) or (found is not None and found[0] == boot):
        return
    ensure_path(store, znodes.MACHINE_BOOT)
    store.set(znodes.MACHINE_BOOT, boot)
