"""Replaces certificates while the broker runs: after AlterConfigs of this broker, and when a file of a key or trust
store changed. Twice a day, it replaces the keys of session tickets.

Runs in the coordinator's store thread, as do all changes of settings. The rules are Kafka's
(`contexts.why_not_replaced`); what does not pass them, or cannot be read, changes nothing: the former certificates
stay in use. Open connections always keep what they have.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from odradek._ext.shm.metering import count
from odradek.clock import now_ms
from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError, raise_all
from odradek.security.contexts import ListenerMaterial, load_listener, load_listeners, why_not_replaced
from odradek.security.faults import StoreFault
from odradek.security.peers import wrong_between_brokers
from odradek.security.store_files import Signature, signature
from odradek.shm.published_faults import PublishedFaults
from odradek.shm.published_tls import PublishedTls, TooMuchMaterial, encoded

log = logging.getLogger("odradek.tls")

Material = Mapping[str, ListenerMaterial]

TICKETS_S = 12 * 3600
"""How long session tickets are encrypted with the same keys. A client with an older ticket makes a full handshake."""


class TlsReload:
    """See the module.

    :param wake: wakes all processes of the broker. :param clock: monotonic seconds.
    :param faults: where the listeners are published whose changed stores cannot be used.
    """

    def __init__(
        self,
        published: PublishedTls,
        config: BrokerConfig,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        faults: PublishedFaults | None = None,
    ) -> None:
        self._published = published
        self._config = config
        self._wake = wake
        self._clock = clock
        self._seen = self._used = self._signature()
        self._next_look = 0.0
        self._next_tickets = clock() + TICKETS_S
        self._faults = faults
        self._publish_faults(())

    def check(self, config: BrokerConfig) -> Material | None:
        """Load the material that these settings describe; None if it is the material in use. Raises ConfigError."""
        material, present = load_listeners(config), self._published.read()[1]
        if material == present:
            return None
        refusal = why_not_replaced(present, material, config)
        if refusal is not None:
            raise refusal
        raise_all([*wrong_between_brokers(config, material)])
        try:
            encoded(material)
        except TooMuchMaterial as error:
            raise ConfigError("ssl.truststore.location", None, str(error)) from None
        return material

    def apply(self, material: Material | None) -> None:
        """Let all workers use this material, from `check`, for new connections."""
        self._publish_faults(())
        if material is None:
            return
        present = self._published.read()[1]
        self._published.publish(material)
        count("tls_reloads", 1)
        for name, fresh in material.items():
            if present.get(name) != fresh:
                ends = time.strftime("%Y-%m-%d", time.gmtime(fresh.ends_ms / 1000))
                log.info(
                    "listener %s uses a new key store or trust store; its certificates are valid until %s", name, ends
                )
        self._wake()

    def follow(self, config: BrokerConfig) -> None:
        """Use what the settings describe, for instance those that were stored before this start. A failure is logged
        and counted."""
        try:
            self.apply(self.check(config))
        except ConfigError as error:
            count("tls_reload_failures", 1)
            log.error("cannot use the changed key stores, so the former ones stay in use: %s", error)
            self._publish_faults(self._faulty(config, error))

    def _faulty(self, config: BrokerConfig, error: ConfigError) -> list[StoreFault]:
        """The listeners whose stores cannot be used; all, if only their combination is wrong.

        :param error: the first reason.
        """
        at_ms = now_ms()
        present = self._published.read()[1]
        found = []
        for listener in config.listeners:
            if listener.name in present:
                try:
                    material = {listener.name: load_listener(config, listener)}
                    refusal = why_not_replaced(present, material, config)
                except ConfigError as reason:
                    refusal = reason
                if refusal is not None:
                    found.append(StoreFault(listener.name, at_ms, str(refusal)))
        return found or [StoreFault(name, at_ms, str(error)) for name in present]

    def _publish_faults(self, faults: Iterable[StoreFault]) -> None:
        if self._faults is not None:
            try:
                self._faults.publish_stores(faults)
            except OSError as error:
                log.warning("cannot publish that key stores cannot be used: %s; `odradek doctor` may miss it", error)

    def look(self) -> None:
        """Called often: every `odradek.ssl.reload.ms`, look at the files' times, and follow a change that is
        complete, that is, that is older than one interval: keys and certificates are seldom replaced at the same
        moment. Publish new keys of session tickets when they are due."""
        interval_s = self._config.integer("odradek.ssl.reload.ms") / 1000
        now = self._clock()
        if now >= self._next_tickets:
            self._next_tickets = now + TICKETS_S
            self._published.publish(self._published.read()[1])
            self._wake()
        if not interval_s or now < self._next_look:
            return
        self._next_look = now + interval_s
        present, before = self._signature(), self._seen
        self._seen = present
        if present == before and present != self._used:
            self._used = present
            self.follow(self._config)

    def _signature(self) -> Signature:
        return signature(self._config, [listener.name for listener in self._config.listeners])
