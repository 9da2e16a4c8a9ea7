"""Limits of the names that clients make up and that the coordinator remembers for days: groups and transactional ids.

Used in the coordinator's loop. A name is counted for its owner, the client whose request created it
(`security/owners.py`), until the name is removed or this process ends. The log does not contain the owners, so a successor of
this process counts the names that it loads in the total only. Loading is never refused.

Above the limit of all names, an owner that has created only `few` may still create names, until there are twice as many
names as the limit: some clients that use the limit up do not keep all others from their first groups.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from odradek.config.broker_config import BrokerConfig

log = logging.getLogger("odradek.requests")

REPORT_AGAIN_MS = 60_000
RECOUNT_AGAIN_MS = 10_000
SHOWN = 100  # characters of a name in log lines


@dataclass(frozen=True)
class NameLimits:
    """The limits of one kind of names.

    :param kind: for log lines, in the plural. :param key: the configuration key of `most`; with `.per.client` that of
        `most_of_client`. :param length: the longest new name, in characters. :param few: see the module.
    """

    kind: str
    key: str
    most: int = 100_000
    most_of_client: int = 10_000
    length: int = 1_000
    few: int = 100

    def __call__(self) -> "NameLimits":
        """Implements `CurrentLimits` with constant limits."""
        return self


CurrentLimits = Callable[[], NameLimits]
"""Returns the limits of one kind at each use: they may change at any time."""

LENGTH_KEY = "odradek.id.max.length"
SHORT = 249
"""The smallest value of that key."""
PER_CLIENT_KEYS = {
    "odradek.groups.max": "odradek.groups.max.per.client",
    "odradek.transactional.ids.max": "odradek.transactional.ids.max.per.client",
}
GROUPS = NameLimits("groups", "odradek.groups.max")
TRANSACTIONAL_IDS = NameLimits("transactional ids", "odradek.transactional.ids.max")


def configured(limits: NameLimits, config: BrokerConfig) -> CurrentLimits:
    """The limits of the kind of `limits` with the current values of the configuration."""

    seen: object = None
    now = limits

    def current() -> NameLimits:
        nonlocal seen, now
        if seen is not config.settings:  # replaced when a setting changes
            seen = config.settings
            now = replace(
                limits,
                most=config.integer(limits.key),
                most_of_client=config.integer(PER_CLIENT_KEYS[limits.key]),
                length=config.integer(LENGTH_KEY),
            )
        return now

    return current


@dataclass
class _Owned:
    """The names of an owner. :param recount_ms: when those that do not exist any more were last forgotten."""

    names: set[str]
    recount_ms: int = -RECOUNT_AGAIN_MS


class NewNames:
    """Decides whether a client may create another name, and counts those of each owner.

    :param total: returns the number of existing names. :param exists: whether a name exists. :param clock: wall clock, in ms.
    """

    def __init__(
        self, limits: CurrentLimits, total: Callable[[], int], exists: Callable[[str], bool], clock: Callable[[], int]
    ) -> None:
        self._limits = limits
        self._total = total
        self._exists = exists
        self._clock = clock
        self._owners: dict[str, str] = {}  # by name
        self._owned: dict[str, _Owned] = {}  # by owner
        self._report_ms = 0
        self._unreported = 0

    def too_long(self, name: str, client: str) -> bool:
        """Whether a new name is too long; a refusal is logged. :param client: as log lines show it."""
        longest = self._limits().length
        if len(name) <= longest:
            return False
        self._refused(name, client, f"it has {len(name)} characters, and {LENGTH_KEY} allows {longest} for a new one")
        return True

    def full(self, name: str, owner: str, client: str) -> bool:
        """Whether an owner may not create another name; a refusal is logged. :param client: as log lines show it."""
        limits, total = self._limits(), self._total()
        most = limits.most_of_client if total < limits.most else min(limits.few, limits.most_of_client)
        if (own := self._count(owner)) >= most:
            own = self._recount(owner)
        if own >= limits.most_of_client:
            key = PER_CLIENT_KEYS[limits.key]
            why = f"{owner} has created {own} existing {limits.kind}, and {key} allows {limits.most_of_client}"
        elif own >= most or total >= 2 * limits.most:
            why = (
                f"there are {total} {limits.kind}, and {limits.key} allows {limits.most}, or {2 * limits.most} for clients that"
                f" have created fewer than {limits.few} (here {own}); delete {limits.kind} or raise {limits.key} (at run time)"
            )
        else:
            return False
        self._refused(name, client, why)
        return True

    def created(self, name: str, owner: str) -> None:
        """Count a name for its owner."""
        self._forget(name)
        self._owners[name] = owner
        self._owned.setdefault(owner, _Owned(set())).names.add(name)

    def names_of(self, owner: str) -> Collection[str]:
        """The names that count for an owner; some may not exist any more."""
        owned = self._owned.get(owner)
        return () if owned is None else owned.names

    def _count(self, owner: str) -> int:
        owned = self._owned.get(owner)
        return 0 if owned is None else len(owned.names)

    def _recount(self, owner: str) -> int:
        """Forget the names of an owner that do not exist any more, at most once in some seconds: there may be many. Returns the
        number of the others."""
        owned, now_ms = self._owned.get(owner), self._clock()
        if owned is not None and not 0 <= now_ms - owned.recount_ms < RECOUNT_AGAIN_MS:
            owned.recount_ms = now_ms
            for name in [name for name in owned.names if not self._exists(name)]:
                self._forget(name)
        return self._count(owner)

    def _forget(self, name: str) -> None:
        owner = self._owners.pop(name, None)
        if owner is not None:
            names = self._owned[owner].names
            names.remove(name)
            if not names:
                del self._owned[owner]

    def _refused(self, name: str, client: str, why: str) -> None:
        now_ms = self._clock()
        if 0 <= now_ms - self._report_ms < REPORT_AGAIN_MS:
            self._unreported += 1
            return
        shown = repr(name) if len(name) <= SHOWN else f"{name[:SHOWN]!r}..."
        more = f"; refused {self._unreported} others since the last line" if self._unreported else ""
        log.warning(
            "%s: refused %s of %s: %s%s", self._limits().kind, shown, client, why, more,
            extra={"client_address": client.partition(" ")[0]},  # a client's name begins with its address
        )  # fmt: skip
        self._report_ms, self._unreported = now_ms, 0
