"""The notifications of changed settings in ``/config/changes``, and of changed ACLs: which are new, what they name, which are
old.

Used in the coordinator's store thread; watches are called in other threads, and only call `wake`. A broker that was away reads
all settings when it joins, so a notification that is missed or cannot be decoded costs nothing but time.
"""

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from odradek.metadata import znodes
from odradek.metadata.store import NoNode, Stat, Store

log = logging.getLogger("odradek.metadata")

EXPIRE_AFTER_MS = 15 * 60 * 1000
"""The age in ms at which a notification is deleted, as in Kafka."""


SETTINGS = znodes.CONFIG_CHANGE.rpartition("/")[2]


def number_of(name: str, prefix: str = SETTINGS) -> int:
    """The number of a notification; -1 for another node."""
    digits = name.removeprefix(prefix)
    return int(digits) if digits.isdecimal() else -1


Named = TypeVar("Named", bound=Hashable)


class Notifications(Generic[Named]):
    """See the module.

    :param wake: called in any thread when `look` should be called.
    :param parent: the node with the notifications, whose names begin with `prefix`.
    :param decode: returns what a notification (path, data) names. Raises CorruptNode.
    """

    def __init__(
        self, store: Store, wake: Callable[[], None], parent: str, prefix: str, decode: Callable[[str, bytes], Named]
    ) -> None:
        self._store = store
        self._wake = wake
        self._parent = parent
        self._prefix = prefix
        self._decode = decode
        self._last = -1
        self._failed: list[Named] = []

    def _number(self, name: str) -> int:
        return number_of(name, self._prefix)

    def begin(self) -> None:
        """Watch for changes from now on; called before all settings are read. Raises StoreError."""
        self._last = max(map(self._number, self._names()), default=-1)
        self._failed = []

    def _names(self) -> list[str]:
        return self._store.children(self._parent, lambda _: self._wake())

    def look(self, now_ms: int) -> list[Named]:
        """What notifications have named since the last call, each once, in the order of the changes; watches for the
        next change. Deletes old notifications. Raises StoreError; the next call then returns the same changes.

        :param now_ms: the time of the wall clock, which is compared with the times at which ZooKeeper created the nodes.
        """
        names = sorted(self._names(), key=self._number)
        paths = [f"{self._parent}/{name}" for name in names]
        nodes = self._store.get_many(paths)
        changed: dict[Named, None] = dict.fromkeys(self._failed)
        for name, node in zip(names, nodes, strict=True):
            if node is not None and self._number(name) > self._last:
                try:
                    changed[self._decode(f"{self._parent}/{name}", node[0])] = None
                except znodes.CorruptNode as error:
                    log.error("%s; skipping it", error)
        self._delete_old(paths, [None if node is None else node[1] for node in nodes], now_ms)
        self._last = max(map(self._number, names), default=self._last)
        self._failed = []
        return list(changed)

    def repeat(self, changed: list[Named]) -> None:
        """These changes could not be applied: the next `look` returns them again."""
        self._failed = changed

    def _delete_old(self, paths: Sequence[str], stats: Sequence[Stat | None], now_ms: int) -> None:
        for path, stat in zip(paths, stats, strict=True):
            if stat is not None and stat.created_ms and now_ms - stat.created_ms > EXPIRE_AFTER_MS:
                try:
                    self._store.delete(path)
                except NoNode:
                    pass  # another broker deleted it


class SettingsChanges(Notifications[str]):
    """The notifications of changed settings; they name paths below ``/config``. :param wake: see `Notifications`."""

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        super().__init__(store, wake, znodes.CONFIG_CHANGES, SETTINGS, znodes.decode_config_change)
