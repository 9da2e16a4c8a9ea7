"""The quotas of clients, published by the coordinator to all processes (docs/decisions/0032-quotas.md).

The coordinator reads them from the metadata store when it starts and when they change. Workers enforce the quotas of requests,
the supervisor those of new connections.
"""

import json
import logging
from collections.abc import Mapping

from odradek._ext.shm.layout import ProcessKind
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.quotas.quotas import Entity, Quotas
from odradek.shm.confirmed_pages import ConfirmedPages
from odradek.shm.confirmed_version import TAKEN_WITHIN_S, serving
from odradek.shm.published_pages import HEAD_BYTES

log = logging.getLogger("odradek.quotas")

COPY_BYTES = 64 << 20
LARGEST = COPY_BYTES - HEAD_BYTES
"""The largest size of all quotas together, in bytes: a few hundred thousand entities."""

Values = Mapping[Entity, Mapping[str, float]]


class TooManyQuotas(Exception):
    """The quotas do not fit into the shared memory."""


def encoded(values: Values) -> bytes:
    """Encode quotas. Raises TooManyQuotas."""
    data = json.dumps([[entity, quotas] for entity, quotas in values.items()], separators=(",", ":")).encode()
    if len(data) > LARGEST:
        raise TooManyQuotas(
            f"the client quotas take {len(data)} bytes; the limit is {LARGEST} bytes: delete some of them"
        )
    return data


class PublishedQuotas:
    """The shared quotas of a broker. The supervisor creates it; every process that it forks inherits it."""

    def __init__(self) -> None:
        self._pages = ConfirmedPages("odradek-client-quotas", COPY_BYTES)
        self.current = Quotas()
        self._version = 0

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors that a child must keep open."""
        return self._pages.descriptors

    @property
    def changed(self) -> bool:
        """Whether there are quotas that this process has not taken over. Costs one read of memory."""
        return self._pages.changed

    def enter(self, index: int) -> None:
        """Set the calling process's place in the shared process table."""
        self._pages.enter(index)

    def read(self) -> tuple[int, Quotas]:
        """The version of the newest quotas, and the quotas; (0, none) if nothing was published yet."""
        published = self._pages.read()
        if published is None:
            return 0, Quotas()
        version, data = published
        return version, Quotas((tuple(entity), quotas) for entity, quotas in json.loads(data))

    def take_over(self) -> bool:
        """Read the newest quotas if there are any that this process has not. Returns whether there were. The caller applies
        `current`, then calls `confirm`."""
        if not self.changed:
            return False
        self._version, self.current = self.read()
        return True

    def confirm(self) -> None:
        """Confirm that this process applies `current`."""
        self._pages.taken(self._version)

    def publish(self, values: Values, shm: SharedMemory) -> None:
        """Publish quotas to all processes, and wait up to `TAKEN_WITHIN_S` until each has applied them. Only the
        coordinator calls it. Raises TooManyQuotas."""
        version = self._pages.publish(encoded(values))
        self._pages.taken(version)
        self.current = Quotas(values.items())
        shm.wake_all()
        appliers = serving(shm, ProcessKind.WORKER, ProcessKind.SUPERVISOR)
        late = self._pages.wait_until_taken(version, appliers, TAKEN_WITHIN_S)
        if late:
            log.warning(
                "%d processes have not applied the changed quotas within %g s (indexes %s of the process table); they apply "
                "them when their event loops continue",
                len(late), TAKEN_WITHIN_S, ", ".join(map(str, late)),
            )  # fmt: skip
