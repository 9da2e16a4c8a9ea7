"""The TLS material of the listeners, shared by the broker's processes in a memfd that is created before the first fork.

The supervisor publishes the first version, before it serves; the coordinator publishes later ones, after it has
checked them. Workers take them over when they start and when they are woken. The memfd contains private keys: it has
no name in a file system, only processes of the broker have its descriptor, and its pages never reach a disk unless
the machine swaps.

With the material, a new secret is published each time, from which all workers make the same keys for session tickets.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from odradek.security.contexts import ListenerMaterial
from odradek.shm.owned_descriptors import close_with
from odradek.shm.published_pages import HEAD_BYTES, PublishedPages

COPY_BYTES = 8 << 20
LARGEST = COPY_BYTES - HEAD_BYTES
"""The largest size of the material of all listeners together, in bytes; unused parts take no memory."""


TICKET_SECRET_BYTES = 32
TICKET_KEYS_BYTES = 80
"""The size of OpenSSL's keys of session tickets: a name of 16 bytes, and two keys of 32."""


class TooMuchMaterial(Exception):
    """The certificates of all listeners do not fit."""


def encoded(material: Mapping[str, ListenerMaterial]) -> bytes:
    """The material and a new secret for tickets as bytes. Raises TooMuchMaterial."""
    listeners = {name: list(fields) for name, fields in material.items()}
    fields = {"tickets": os.urandom(TICKET_SECRET_BYTES).hex(), "listeners": listeners}
    data = json.dumps(fields, separators=(",", ":")).encode()
    if len(data) > LARGEST:
        raise TooMuchMaterial(
            f"the certificates of all listeners take {len(data)} bytes; the limit is {LARGEST}: use smaller trust stores"
        )
    return data


class PublishedTls:
    """The shared material. The supervisor creates it if a listener uses TLS; every process that it forks inherits it."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("odradek-tls", os.MFD_CLOEXEC)
        close_with(self, self._fd)
        self._pages = PublishedPages(self._fd, copy_bytes=COPY_BYTES)

    @property
    def descriptor(self) -> int:
        """The descriptor that a child must keep open."""
        return self._fd

    def publish(self, material: Mapping[str, ListenerMaterial]) -> int:
        """Publish the material of all listeners. Returns its version. The caller must wake the workers. Raises
        TooMuchMaterial."""
        return self._pages.publish(encoded(material))

    def read(self) -> tuple[int, dict[str, ListenerMaterial]]:
        """The newest version, and the material by name of the listener; (0, {}) if nothing was published yet."""
        version, material, _ = self.read_with_tickets()
        return version, material

    def read_with_tickets(self) -> tuple[int, dict[str, ListenerMaterial], bytes]:
        """Like `read`, and the secret from which `ticket_keys` makes the keys of session tickets."""
        published = self._pages.read()
        if published is None:
            return 0, {}, b""
        version, data = published
        fields = json.loads(data)
        material = {name: _material(of_listener) for name, of_listener in fields["listeners"].items()}
        return version, material, bytes.fromhex(fields["tickets"])

    @property
    def version(self) -> int:
        """The newest version. Costs two small reads."""
        return self._pages.version


def ticket_keys(secret: bytes, listener: str) -> bytes:
    """The keys for the session tickets of a listener. Who knows them cannot compute those of another listener."""
    return hashlib.shake_256(secret + listener.encode()).digest(TICKET_KEYS_BYTES)


def _material(fields: list[Any]) -> ListenerMaterial:
    return ListenerMaterial._make(tuple(field) if isinstance(field, list) else field for field in fields)
