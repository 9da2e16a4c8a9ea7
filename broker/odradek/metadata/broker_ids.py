"""The ids that ZooKeeper generates for brokers without one (broker.id.generation.enable), as in Kafka."""

from odradek.metadata import znodes
from odradek.metadata.store import Store, ensure_path


def generate_broker_id(store: Store, reserved_max_id: int) -> int:
    """An id that no other broker gets: the version of a node that every such broker writes, above the ids of operators.

    If the response is lost, the node may be written twice; then one id is skipped. Raises StoreError.

    :param reserved_max_id: reserved.broker.max.id.
    """
    ensure_path(store, znodes.BROKER_SEQUENCE)
    return reserved_max_id + store.set(znodes.BROKER_SEQUENCE, b"").version
