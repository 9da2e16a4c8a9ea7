"""The public keys of identity providers, and how reading them went, shared by the broker's processes in a memfd.

The coordinator publishes; workers read before they check a token, the reporter for each scrape. A coordinator that starts
continues with the keys of its predecessor. A new version exists after each attempt to read keys; `Provider.keys_version` says
whether the keys have changed. Nobody waits until processes have confirmed a version.
"""

import json
from typing import NamedTuple

from odradek.shm.confirmed_pages import ConfirmedPages

COPY_BYTES = 16 << 20
"""The largest size of the keys of all listeners; unwritten parts take no memory."""


class Provider(NamedTuple):
    """The keys of one identity provider.

    :param listeners: the names of the listeners that use them. :param url: their source.
    :param keys: JWKs with only public members (`odradek.security.sasl.jwks.Jwks.keys`).
    :param keys_version: raised when `keys` change; 0 if they were never read.
    :param read_ms: Unix time of the last successful attempt; 0 if there was none.
    :param reads, failures: numbers of attempts that succeeded and failed.
    :param error: of the last attempt; empty if it succeeded.
    """

    listeners: tuple[str, ...]
    url: str
    keys: tuple[dict[str, str], ...] = ()
    keys_version: int = 0
    read_ms: int = 0
    reads: int = 0
    failures: int = 0
    error: str = ""


class PublishedJwks(ConfirmedPages):
    """See the module. The supervisor creates it before the first fork."""

    def __init__(self) -> None:
        super().__init__("odradek-jwks", COPY_BYTES)

    def publish_providers(self, providers: list[Provider]) -> int:
        """Publish all providers; see `publish`."""
        return self.publish(json.dumps(providers, separators=(",", ":")).encode())

    def read_providers(self) -> tuple[int, list[Provider]]:
        """The newest version and its providers; (0, []) if nothing was published yet."""
        published = self.read()
        if published is None:
            return 0, []
        version, data = published
        return version, [
            Provider(tuple(listeners), url, tuple(keys), *rest) for listeners, url, keys, *rest in json.loads(data)
        ]
