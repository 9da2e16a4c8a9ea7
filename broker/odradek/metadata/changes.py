"""The notifications of changed settings in ``/config/changes``: which are new, what they name, which are old.

Used in the coordinator's store thread; watches are called in other threads, and only call `wake`. A broker that was away reads
all settings when it joins, so a notification that is missed or cannot be decoded costs nothing but time.
"""

import logging
from collections.abc import Callable, Sequence

from odradek.metadata import znodes
from odradek.metadata.store import NoNode, Stat, Store

log = logging.getLogger("odradek.metadata")

EXPIRE_AFTER_MS = 15 * 60 * 1000
"""The age in ms at which a notification is deleted, as in Kafka."""


def number_of(name: str) -> int:
    """The number of a notification; -1 for another node."""
    digits = name.removeprefix(znodes.CONFIG_CHANGE.rpartition("/")[2])
    return int(digits) if digits.isdecimal() else -1


class SettingsChanges:
    """See the module.

    :param wake: called in any thread when `look` should be called.
    """

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        self._store = store
        self._wake = wake
        self._last = -1
        self._failed: list[str] = []

    def begin(self) -> None:
        """Watch for changes from now on; called before all settings are read. Raises StoreError."""
        self._last = max(map(number_of, self._names()), default=-1)
        self._failed = []

    def _names(self) -> list[str]:
        return self._store.children(znodes.CONFIG_CHANGES, lambda _: self._wake())

    def look(self, now_ms: int) -> list[str]:
        """The paths below ``/config`` that changed since the last call, each once, in the order of the changes; watches for the
        next change. Deletes old notifications. Raises StoreError; the next call then returns the same changes.

        :param now_ms: the time of the wall clock, which is compared with the times at which ZooKeeper created the nodes.
        """
        names = sorted(self._names(), key=number_of)
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in names]
        nodes = self._store.get_many(paths)
        changed: dict[str, None] = dict.fromkeys(self._failed)
        for name, node in zip(names, nodes, strict=True):
            if node is not None and number_of(name) > self._last:
                try:
                    changed[znodes.decode_config_change(f"{znodes.CONFIG_CHANGES}/{name}", node[0])] = None
                except znodes.CorruptNode as error:
                    log.error("%s; skipping it", error)
        self._delete_old(paths, [None if node is None else node[1] for node in nodes], now_ms)
        self._last = max(map(number_of, names), default=self._last)
        self._failed = []
        return list(changed)

    def repeat(self, changed: list[str]) -> None:
        """These changes could not be applied: the next `look` returns them again."""
        self._failed = changed

    def _delete_old(self, paths: Sequence[str], stats: Sequence[Stat | None], now_ms: int) -> None:
        for path, stat in zip(paths, stats, strict=True):
            if stat is not None and stat.created_ms and now_ms - stat.created_ms > EXPIRE_AFTER_MS:
                try:
                    self._store.delete(path)
                except NoNode:
                    pass  # another broker deleted it
