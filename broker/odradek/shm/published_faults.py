"""Present faults of TLS and of logins between brokers, shared by the broker's processes in a memfd.

The coordinator publishes why changed key stores cannot be used; the coordinator and the replicator each publish why they cannot
log in to other brokers. The supervisor reads them for the status document, the reporter for the metrics. Each area of the
memfd has one writer at a time; a process that starts replaces the faults of its predecessor.
"""

import json
import os
from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from odradek.security.faults import LoginFault, StoreFault
from odradek.shm.owned_descriptors import close_with
from odradek.shm.published_pages import PublishedPages

COPY_BYTES = 1 << 21
REASON_CHARACTERS = 500
"""A longer reason is cut off: another broker may have sent it."""


class Area(IntEnum):
    """A part of the memfd with its own writer."""

    STORES = 0
    COORDINATOR_LOGINS = 1
    REPLICATOR_LOGINS = 2


class PublishedFaults:
    """See the module. The supervisor creates it before the first fork."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("odradek-faults", os.MFD_CLOEXEC)
        close_with(self, self._fd)
        self._areas = [PublishedPages(self._fd, start=area * 2 * COPY_BYTES, copy_bytes=COPY_BYTES) for area in Area]

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that a child must keep open."""
        return (self._fd,)

    def publish_stores(self, faults: Iterable[StoreFault]) -> None:
        """Publish the listeners whose changed stores cannot be used. Raises OSError."""
        self._publish(Area.STORES, faults)

    def publish_logins(self, area: Area, faults: Iterable[LoginFault]) -> None:
        """Publish the addresses to which a process cannot log in. Raises OSError."""
        self._publish(area, faults)

    def stores(self) -> list[StoreFault]:
        """The listeners whose changed stores cannot be used."""
        return [StoreFault(*fields) for fields in self._read(Area.STORES)]

    def logins(self) -> list[LoginFault]:
        """The addresses to which a process of this broker cannot log in, each once, by address."""
        found: dict[tuple[str, int], LoginFault] = {}
        for area in (Area.COORDINATOR_LOGINS, Area.REPLICATOR_LOGINS):
            for fields in self._read(area):
                fault = LoginFault(*fields)
                known = found.get((fault.host, fault.port))
                if known is None or fault.last_ms > known.last_ms:
                    found[fault.host, fault.port] = fault
        return [found[address] for address in sorted(found)]

    def _publish(self, area: Area, faults: Iterable[StoreFault | LoginFault]) -> None:
        rows = [fault._replace(reason=fault.reason[:REASON_CHARACTERS]) for fault in faults]
        if rows or self._areas[area].version:
            self._areas[area].publish(json.dumps(rows, separators=(",", ":")).encode())

    def _read(self, area: Area) -> list[Any]:
        published = self._areas[area].read()
        return [] if published is None else list(json.loads(published[1]))
