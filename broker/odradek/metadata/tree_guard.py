"""Keeps a broker from using a tree in ZooKeeper that is not that of its cluster.

While brokers run, the tree can be deleted or replaced by that of another cluster, or ZooKeeper can be replaced by an empty one.
A broker that then read topics and settings, or stored new ones, would mix two clusters.
"""

from collections.abc import Callable

from kazoo.exceptions import NoNodeError

from odradek.metadata.store import CHANGED, Event
from odradek.metadata.zookeeper_connection import ZookeeperConnection

Check = Callable[[bytes | None], None]
"""Judges the data of a node, None if it does not exist. Raises WrongTree."""


class TreeGuard:
    """Reads one node before the first request of each session, and again after each change of it.

    :param path: of the node. :param check: see `Check`.
    :param changed: called, in any thread, when the node may have changed since it was right.
    """

    def __init__(self, path: str, check: Check, changed: Callable[[], None]) -> None:
        self.path = path
        self._check = check
        self._changed = changed
        self._admitted: int | None = None  # the session in which the node is right

    def admit(self, connection: ZookeeperConnection, within_s: float) -> None:
        """Check the tree, if that is necessary. Raises WrongTree, and the exceptions of kazoo."""
        session = connection.client._session_id
        if self._admitted == session:
            return

        def changed(_: Event) -> None:
            self._admitted = None
            self._changed()

        self._admitted = session  # before the node is read: a change meanwhile resets it
        try:
            pending = connection.client.get_async(self.path, connection.armed(changed, CHANGED, self.path))
            try:
                data = pending.get(timeout=within_s)[0] or b""
            except NoNodeError:
                data = None
            except BaseException:
                connection.withdraw(pending)
                raise
            self._check(data)
        except BaseException:
            self._admitted = None
            raise
