"""The election of the controller: one transaction creates ``/controller`` and begins a controller epoch.

Used with the embedded store and with ZooKeeper, in the coordinator's store thread. The version of ``/controller_epoch`` that
fences all writes of the controller is the result of that transaction: a version that is read afterwards could already be that
of a successor.
"""

from functools import partial
from typing import NamedTuple

from odradek.clock import now_ms
from odradek.metadata import znodes
from odradek.metadata.corrupt_nodes import usable
from odradek.metadata.store import BadVersion, NodeExists, NoNode, Stat, Store

UNKNOWN = -1
"""The id of a controller whose node cannot be decoded."""


class Reign(NamedTuple):
    """A won election: the controller epoch, and the version of its node."""

    epoch: int
    epoch_version: int


def run_for_controller(store: Store, broker_id: int, seen_epoch: int = 0) -> Reign | int:
    """Become the controller, unless another session is; return the epoch, or the id of the controller. Raises StoreError;
    CorruptNode if ``/controller_epoch`` cannot be decoded, because no epoch may be used twice.

    :param seen_epoch: the largest controller epoch that this broker has seen. It is larger than that of the store if the store
        was restored from an older backup; the new epoch is larger than both.

    A controller node of this session, left by a predecessor of this process or by an election whose answer was lost, is
    replaced in a new epoch.
    """
    while True:
        try:
            store.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
        except NodeExists:
            pass  # the usual case
        data, epoch_stat = store.get(znodes.CONTROLLER_EPOCH)
        epoch = max(znodes.decode_controller_epoch(data), seen_epoch) + 1
        transaction = store.transaction()
        stat = store.exists(znodes.CONTROLLER)
        if stat is not None and not is_own(store, stat):
            try:
                data = store.get(znodes.CONTROLLER)[0]
                return usable(
                    znodes.CONTROLLER, partial(znodes.decode_controller, data), UNKNOWN, "the controller is unknown"
                )
            except NoNode:
                continue  # the controller resigned between the two reads
        if stat is not None:
            transaction.delete(znodes.CONTROLLER, stat.version)
        transaction.create(znodes.CONTROLLER, znodes.encode_controller(broker_id, now_ms()), ephemeral=True)
        transaction.set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), epoch_stat.version)
        try:
            results = transaction.commit()
        except (NodeExists, NoNode, BadVersion):
            continue  # another broker was faster: read its id
        written = results[-1]
        assert isinstance(written, Stat)
        return Reign(epoch, written.version)


def begin_epoch(store: Store, reign: Reign, epoch: int) -> Reign | None:
    """Begin a newer epoch of the same controller, because brokers have seen newer ones than that of `reign`. None if this
    session is not the controller any more. Raises StoreError."""
    stat = store.exists(znodes.CONTROLLER)
    if stat is None or not is_own(store, stat):
        return None
    transaction = store.transaction()
    transaction.check(znodes.CONTROLLER, stat.version)
    transaction.set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), reign.epoch_version)
    try:
        written = transaction.commit()[-1]
    except (NoNode, BadVersion):
        return None
    assert isinstance(written, Stat)
    return Reign(epoch, written.version)


def is_own(store: Store, stat: Stat) -> bool:
    """Whether an ephemeral node belongs to the session of the store."""
    return store.session is not None and stat.owner == store.session.id


def still_reigns(store: Store, reign: Reign) -> bool:
    """Whether this session still has the controller node, in this epoch. Raises StoreError."""
    stat = store.exists(znodes.CONTROLLER)
    epoch = store.exists(znodes.CONTROLLER_EPOCH)
    return stat is not None and is_own(store, stat) and epoch is not None and epoch.version == reign.epoch_version
