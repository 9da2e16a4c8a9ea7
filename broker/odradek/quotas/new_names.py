"""Limits of the names that clients make up and that the coordinator remembers for days: groups and transactional ids.

Used in the coordinator's loop. A name is counted for the address whose request created it, as long as it exists and this
process runs: a successor counts the names that it loads from the log only in the sum. Loading is never refused.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger("odradek.requests")

REPORT_AGAIN_MS = 60_000
RECOUNT_AGAIN_MS = 10_000
SHOWN = 100  # characters of a name in log lines


@dataclass(frozen=True)
class NameLimits:
    """The limits of one kind of names.

    :param kind: for log lines, in the plural. :param key: the configuration key of `most`; with `.per.client` that of
        `most_of_client`. :param length: the longest new name, in characters.
    """

    kind: str
    key: str
    most: int = 100_000
    most_of_client: int = 10_000
    length: int = 1_000


LENGTH_KEY = "odradek.id.max.length"
GROUPS = NameLimits("groups", "odradek.groups.max")
TRANSACTIONAL_IDS = NameLimits("transactional ids", "odradek.transactional.ids.max")


class NewNames:
    """Decides whether a client may create another name, and counts those of each address.

    :param total: returns the number of existing names. :param exists: whether a name exists. :param clock: wall clock, in ms.
    """

    def __init__(
        self, limits: NameLimits, total: Callable[[], int], exists: Callable[[str], bool], clock: Callable[[], int]
    ) -> None:
        self._limits = limits
        self._total = total
        self._exists = exists
        self._clock = clock
        self._creators: dict[str, int] = {}
        self._counts: Counter[int] = Counter()
        self._recount_ms: dict[int, int] = {}
        self._report_ms = 0
        self._unreported = 0

    def too_long(self, name: str, client: str) -> bool:
        """Whether a new name is too long; a refusal is logged. :param client: as log lines show it."""
        if len(name) <= self._limits.length:
            return False
        self._refused(
            name, client, f"it has {len(name)} characters, and {LENGTH_KEY} allows {self._limits.length} for a new one"
        )
        return True

    def full(self, name: str, owner: int, client: str) -> bool:
        """Whether the address of a client may not create another name; a refusal is logged.

        :param owner: the number of the address (`_ext/shm/owners.pyx`). :param client: as log lines show it.
        """
        limits = self._limits
        if self._counts[owner] >= limits.most_of_client:
            self._recount(owner)
            if self._counts[owner] >= limits.most_of_client:
                self._refused(
                    name,
                    client,
                    f"its address has created {self._counts[owner]} existing {limits.kind}, and {limits.key}.per.client allows"
                    f" {limits.most_of_client}",
                )
                return True
        if (total := self._total()) >= limits.most:
            self._refused(name, client, f"there are {total} {limits.kind}, and {limits.key} allows {limits.most}")
            return True
        return False

    def created(self, name: str, owner: int) -> None:
        """Count a name for the address of the client that created it."""
        former = self._creators.get(name)
        if former is not None:
            self._forget(name, former)
        self._creators[name] = owner
        self._counts[owner] += 1

    def _recount(self, owner: int) -> None:
        """Forget the names of an address that do not exist any more, at most once in some seconds: there may be many."""
        now_ms = self._clock()
        if not 0 <= now_ms - self._recount_ms.get(owner, -RECOUNT_AGAIN_MS) < RECOUNT_AGAIN_MS:
            self._recount_ms[owner] = now_ms
            for name in [name for name, creator in self._creators.items() if creator == owner]:
                if not self._exists(name):
                    self._forget(name, owner)

    def _forget(self, name: str, owner: int) -> None:
        del self._creators[name]
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]

    def _refused(self, name: str, client: str, why: str) -> None:
        now_ms = self._clock()
        if 0 <= now_ms - self._report_ms < REPORT_AGAIN_MS:
            self._unreported += 1
            return
        shown = repr(name) if len(name) <= SHOWN else f"{name[:SHOWN]!r}..."
        more = f"; refused {self._unreported} others since the last line" if self._unreported else ""
        log.warning(
            "%s: refused to create %s for %s: %s%s", self._limits.kind, shown, client, why, more,
            extra={"client_address": client.partition(" ")[0]},  # a client's name begins with its address
        )  # fmt: skip
        self._report_ms, self._unreported = now_ms, 0
