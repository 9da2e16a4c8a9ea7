"""The quotas of the metadata store, which the broker's processes enforce.

Runs in the coordinator's store thread. All quotas are read when the coordinator starts, and those of single entities when
they change, by this broker or by another one.
"""

import logging
from collections.abc import Iterable

from odradek._ext.shm.shared_memory import SharedMemory
from odradek.controller.quotas import Entity, entities_of, entity_at, path_of, quotas_in
from odradek.controller.topics import Refusal
from odradek.metadata.corrupt_nodes import usable_settings
from odradek.metadata.store import Store
from odradek.protocol.errors import ErrorCode
from odradek.quotas.quotas import Quotas, entity_of
from odradek.shm.published_quotas import LARGEST, PublishedQuotas, TooManyQuotas

log = logging.getLogger("odradek.quotas")

ENTITY_BYTES = 240
"""The encoded size of an entity with all its quotas, without its names."""
BYTES_OF_CHARACTER = 6


class EnforcedQuotas:
    """The quotas in force. :param shared: publishes them to all processes."""

    def __init__(self, store: Store, shared: PublishedQuotas, shm: SharedMemory) -> None:
        self._store = store
        self._shared = shared
        self._shm = shm
        self._values: dict[tuple[str | None, str | None, str | None], dict[str, float]] = {}
        self._size = 0

    @property
    def current(self) -> Quotas:
        """The quotas, for this process."""
        return self._shared.current

    def load(self) -> None:
        """Read all quotas and publish them. Raises StoreError."""
        self._values, self._size = {}, 0
        for entity, path in entities_of(self._store):
            self._set(entity, self._read(path) or {})
        self._publish()

    def _read(self, path: str) -> dict[str, float] | None:
        """The quotas in a node; None if it cannot be decoded. Raises StoreError."""
        stored = usable_settings(self._store, path, "its quotas stay as they are, after a start there are none,")
        return None if stored is None else quotas_in(path, stored)

    def refresh(self, entities: Iterable[Entity]) -> None:
        """Read the quotas of these entities again, and publish them; all processes apply them when this returns. Raises
        StoreError."""
        for entity in entities:
            path = path_of(entity)
            values = self._read(path)
            if values is not None:
                self._set(entity, values)
        self._publish()

    def refresh_paths(self, paths: Iterable[str]) -> None:
        """As `refresh`, for paths below `/config` of which another broker notified this one; others are ignored. Raises
        StoreError."""
        entities = [entity for entity in map(entity_at, paths) if entity is not None]
        if entities:
            self.refresh(entities)

    def check_room(self) -> None:
        """Raises Refusal if no further entity can get quotas."""
        if self._size > LARGEST:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"The quotas of all entities take {self._size} bytes; the limit is {LARGEST} bytes: delete some of them.",
            )

    def _set(self, entity: Entity, values: dict[str, float]) -> None:
        key = entity_of(entity)
        size = ENTITY_BYTES + BYTES_OF_CHARACTER * sum(len(name or "") for name in key)
        if self._values.pop(key, None) is not None:
            self._size -= size
        if values:
            self._values[key] = values
            self._size += size

    def _publish(self) -> None:
        try:
            self._shared.publish(self._values, self._shm)
        except TooManyQuotas as error:
            log.error("cannot enforce the changed quotas: %s; the former ones stay in force", error)
