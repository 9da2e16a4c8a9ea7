"""The listeners with TLS in one process: their contexts, made from the published material.

Each worker makes them when it starts, and when the coordinator has published new material or new keys for session tickets.
Used in the process's only thread.
"""

import logging
import time
from collections.abc import Sequence

from odradek._ext.net.tls import TlsListener
from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError, raise_all
from odradek.config.listeners import ENCRYPTED, Listener
from odradek.security.contexts import ListenerMaterial, load_listeners, server_context, warnings
from odradek.security.peers import wrong_between_brokers
from odradek.security.principal import mapper
from odradek.shm.published_tls import PublishedTls, TooMuchMaterial, ticket_keys

log = logging.getLogger("odradek.tls")


class TlsListeners:
    """See the module.

    :param published: the material, which all processes of the broker share.
    """

    def __init__(self, published: PublishedTls) -> None:
        self.published = published
        self._version = 0
        self._listeners: dict[str, TlsListener] = {}

    @property
    def changed(self) -> bool:
        """Whether there is newer material than `take_over` has used."""
        return self.published.version != self._version

    def take_over(self) -> None:
        """Make the contexts of the newest material. They worked in the process that published it, so a failure is an internal
        error, and the former contexts stay in use."""
        version, material, secret = self.published.read_with_tickets()
        self._listeners = {
            name: _listener(of_listener, ticket_keys(secret, name)) for name, of_listener in material.items()
        }
        self._version = version

    def in_order(self, listeners: Sequence[Listener]) -> list[TlsListener | None]:
        """For each of these listeners its TLS; None for one without."""
        return [self._listeners.get(listener.name) for listener in listeners]


def _listener(material: ListenerMaterial, tickets: bytes) -> TlsListener:
    return TlsListener(
        server_context(material),
        authenticates=material.authenticates,
        principal_of=None if material.client_auth == "none" else mapper(material.rules),
        slow_key=material.slow,
        ticket_keys=tickets,
    )


def _begins(chain: str) -> float:
    """Unix time in seconds from which all certificates of a chain (PEM) are valid."""
    from cryptography import x509  # reading the key stores has imported it

    return max(one.not_valid_before_utc.timestamp() for one in x509.load_pem_x509_certificates(chain.encode()))


def begin_tls(config: BrokerConfig) -> TlsListeners | None:
    """Load the key stores of all listeners, and check that each works; None if no listener uses TLS.

    :raises ConfigError: a listener cannot work; the message names the key, its value and the reason.
    """
    if not any(listener.protocol in ENCRYPTED for listener in config.listeners):
        return None
    for line in warnings(config):
        log.warning("%s", line)
    tls = TlsListeners(PublishedTls())
    try:
        material = load_listeners(config)
        raise_all([*wrong_between_brokers(config, material)])
        tls.published.publish(material)
    except TooMuchMaterial as error:
        raise ConfigError("", None, str(error)) from None
    for name, of_listener in material.items():
        if of_listener.ends_ms < time.time() * 1000:
            ended = time.strftime("%Y-%m-%d", time.gmtime(of_listener.ends_ms / 1000))
            log.warning(
                "the certificate of listener %s expired on %s: clients that verify it cannot connect", name, ended
            )
        begins = _begins(of_listener.chain)
        if begins > time.time():
            log.warning(
                "the certificate of listener %s is not valid before %s (UTC): clients that verify it cannot connect; check the "
                "clock of this machine",
                name, time.strftime("%Y-%m-%d %H:%M", time.gmtime(begins)),
            )  # fmt: skip
    TlsListeners(
        tls.published
    ).take_over()  # a check; the supervisor keeps no context, and so no keys of session tickets
    return tls
