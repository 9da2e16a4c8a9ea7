"""How this broker connects to other brokers: the client's side of the inter-broker listener.

A process that connects to brokers (the coordinator, the replicator) has one `PeerSecurity`, which its threads share. It uses
the key store, the trust store and the JAAS line of the broker's own inter-broker listener. A process without a `PeerSecurity`
connects to PLAINTEXT listeners.
"""

import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.clock import now_ms
from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.config.listeners import ENCRYPTED
from odradek.security.contexts import (
    DEFAULT_SUITES,
    ListenerMaterial,
    configure,
    handshake,
    load_key,
    server_context,
    trust,
)
from odradek.security.faults import LoginFault
from odradek.security.opening import PeerRefused
from odradek.security.peer_settings import HOST_CHECK, PeerSettings, error_of, settings_of
from odradek.security.sasl.client import Credentials, TokenCredentials
from odradek.security.sasl.token_settings import TokenSource

if TYPE_CHECKING:
    from odradek.security.sasl.shared_token import SharedToken

log = logging.getLogger("odradek.security")

TRUST_STORE = "ssl.truststore.location"
PERIOD_S = 60.0
"""A failure is logged once in this time for each address."""
MOST_ADDRESSES = 256
TOKEN_WAIT_S = 2.0
"""The longest time for which a connection waits for a token of an identity provider."""
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
_HOST_MISMATCH, _ADDRESS_MISMATCH, _EXPIRED, _NOT_YET_VALID = 62, 64, 10, 9  # X509_V_ERR_*

Address = tuple[str, int]


class _Failing(NamedTuple):
    """:param logged_s: when the last failure was logged, by the monotonic clock."""

    logged_s: float
    fault: LoginFault


class PublishedMaterial(Protocol):
    """The present key stores and trust stores of this broker's listeners; see `shm.published_tls`."""

    @property
    def version(self) -> int: ...
    def read(self) -> tuple[int, dict[str, ListenerMaterial]]: ...


def client_context(material: ListenerMaterial, verifies_host: bool) -> ssl.SSLContext:
    """The context of a connection to another broker: the listener's key store is the client's certificate. Raises ssl.SSLError,
    OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = verifies_host
    configure(context, material.versions, material.ciphers or DEFAULT_SUITES)
    load_key(context, material.key.encode(), material.chain.encode())
    if material.trust:
        trust(context, material.trust)
    else:
        context.load_default_certs()
    return context


class PeerSecurity:
    """See the module.

    :param published: None if no listener uses TLS. :param count: counts a failed handshake, a failed login, and a failed
        attempt to get a token for logins.
    :param publish: publishes the addresses to which this process cannot log in; called when a failure is logged, and when a
        connection to such an address works. Raises OSError.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        config: BrokerConfig,
        published: PublishedMaterial | None,
        count: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        publish: Callable[[Iterable[LoginFault]], None] = lambda _: None,
    ) -> None:
        self._config = config
        self._published = published
        self._count = count
        self._publish = publish
        self._clock = clock
        self._lock = threading.Lock()
        self._known = config.settings
        try:
            self.settings = settings_of(config)
        except ConfigError as error:  # a setting made at run time, which another broker or tool has stored
            log.error("ignoring settings made at run time for connections to other brokers: %s", error)
            self.settings = settings_of(config.changed({}, {}))
        self._token: SharedToken | None = self._token_for(self.settings)
        self._context: ssl.SSLContext | None = None
        self._made_of: tuple[int, bool] = (-1, True)
        self._failing: dict[Address, _Failing] = {}
        self._publish_faults()  # replaces those of this process's predecessor

    def credentials(self, limit_s: float = TOKEN_WAIT_S) -> Credentials | TokenCredentials | None:
        """For the login of a new connection; None without SASL. With OAUTHBEARER, waits for a token if there is none.

        Raises NoTokenError. :param limit_s: the longest time in seconds to wait, if it is shorter than `TOKEN_WAIT_S`.
        """
        found = self.settings.credentials
        if not isinstance(found, TokenSource):
            return found
        assert self._token is not None
        return self._token.credentials(min(limit_s, TOKEN_WAIT_S))

    async def credentials_in_loop(self, limit_s: float = TOKEN_WAIT_S) -> Credentials | TokenCredentials | None:
        """As `credentials`, for an event loop."""
        found = self.settings.credentials
        if not isinstance(found, TokenSource):
            return found
        assert self._token is not None
        return await self._token.credentials_in_loop(min(limit_s, TOKEN_WAIT_S))

    def _token_for(self, settings: PeerSettings, former: "SharedToken | None" = None) -> "SharedToken | None":
        """The token for logins with these settings: the former one if they have not changed."""
        source, renewal = settings.credentials, settings.renewal
        if not isinstance(source, TokenSource):
            return former
        if former is not None and (former.source, former.renewal, former.closed) == (source, renewal, False):
            return former
        from odradek.security.sasl.shared_token import SharedToken  # with HTTP, which other brokers do not need

        made = SharedToken(source, renewal, self._count)
        made.start()
        return made

    def refresh(self) -> None:
        """Called regularly by the thread that takes over changed settings: use the present ones for new connections. Settings
        that cannot be used are logged, and the former ones stay in use."""
        settings = self._config.settings
        if settings is self._known:
            return
        self._known = settings
        try:
            changed = settings_of(self._config)
        except ConfigError as error:
            log.error("connections to other brokers keep their former settings: %s", error)
            return
        # The token first: another thread that sees the new settings must find it.
        former, self._token = self._token, self._token_for(changed, self._token)
        self.settings = changed
        if former is not None and (former is not self._token or not isinstance(changed.credentials, TokenSource)):
            former.close()

    def context(self) -> ssl.SSLContext | None:
        """The TLS context for a new connection, made of the newest key stores; None without TLS. Raises PeerRefused."""
        if self.settings.protocol not in ENCRYPTED:
            return None
        if self._published is None:  # the login must not follow unencrypted
            raise PeerRefused(f"this broker has no key store for listener {self.settings.listener}")
        with self._lock:
            wanted = (self._published.version, self.settings.verifies_host)
            if self._context is None or wanted != self._made_of:
                version, material = self._published.read()
                try:
                    self._context = client_context(material[self.settings.listener], wanted[1])
                except (KeyError, OSError) as error:  # ssl.SSLError is an OSError
                    raise PeerRefused(f"this broker cannot use its key store or trust store: {error}") from error
                self._made_of = version, wanted[1]
            return self._context

    def reason_of(self, error: OSError, host: str) -> str | None:
        """See the function `reason_of`."""
        return reason_of(error, host)

    def failed(self, broker: str, address: Address, reason: str) -> None:
        """A handshake or a login failed: count it, and log and publish it unless this was done within `PERIOD_S`."""
        self._count()
        now = self._clock()
        with self._lock:
            known = self._failing.get(address)
            if known is not None and now - known.logged_s < PERIOD_S:
                return
            if len(self._failing) >= MOST_ADDRESSES:
                self._failing.clear()
                known = None
            at_ms = now_ms()
            since_ms = at_ms if known is None else known.fault.since_ms
            self._failing[address] = _Failing(now, LoginFault(broker, *address, reason, since_ms, at_ms))
            self._publish_faults()
        log.error(
            "cannot authenticate a connection to %s at %s:%d (listener %s, %s): %s; retrying, further failures at this address "
            "within %d s are only counted",
            broker, *address, self.settings.listener, self.settings.protocol, reason, PERIOD_S,
        )  # fmt: skip

    def succeeded(self, address: Address) -> None:
        """A connection works: the next failure is logged."""
        if self._failing:
            with self._lock:
                if self._failing.pop(address, None) is not None:
                    self._publish_faults()

    def _publish_faults(self) -> None:
        try:
            self._publish([failing.fault for failing in self._failing.values()])
        except OSError as error:
            log.warning(
                "cannot publish which brokers this one cannot log in to: %s; `odradek doctor` may miss one", error
            )


def reason_of(error: OSError, host: str) -> str | None:
    """Why TLS failed, as text for a log line; None if the other broker only closed the connection, as one that stops does."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _verification(error, host)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError) or not isinstance(error, ssl.SSLError):
        return None
    reason = error.reason or str(error)
    return _HANDSHAKE.get(reason, f"the TLS handshake failed: {reason.lower().replace('_', ' ')}")


_HANDSHAKE = {
    "WRONG_VERSION_NUMBER": "the other broker does not speak TLS on this listener, or sent something else",
    "UNSUPPORTED_PROTOCOL": "the other broker offers no TLS version that ssl.enabled.protocols of this broker contains",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the other broker accepts no TLS version of ssl.enabled.protocols of this broker",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the other broker accepts no cipher suite of this broker, or requires a certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other broker requires a certificate, and this broker sent none",
    "TLSV1_ALERT_UNKNOWN_CA": "the other broker does not trust the certificate of this broker (alert unknown_ca): its trust "
    "store lacks the authority",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other broker refused the certificate of this broker, because it has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other broker refused the certificate of this broker (alert bad_certificate)",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other broker refused the certificate of this broker (alert certificate_unknown)",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the other broker refused the certificate of this broker, which does not allow its "
    "use as a client (extended key usage)",
    "TLSV1_ALERT_ACCESS_DENIED": "the other broker refused the certificate of this broker (alert access_denied)",
}


def _verification(error: ssl.SSLCertVerificationError, host: str) -> str:
    if error.verify_code in (_HOST_MISMATCH, _ADDRESS_MISMATCH):
        return (
            f"the certificate of the other broker does not contain the host {host} (its advertised.listeners); a certificate "
            f"with this name, or an empty {HOST_CHECK}, would be accepted"
        )
    if error.verify_code == _EXPIRED:
        return "the certificate of the other broker has expired"
    if error.verify_code == _NOT_YET_VALID:
        return "the certificate of the other broker is not valid yet"
    message = str(error.verify_message).rstrip(".")
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return (
            f"no authority in {TRUST_STORE} of this broker has signed the certificate of the other broker ({message})"
        )
    return (
        f"the certificate of the other broker is not accepted: {message} (checked against {TRUST_STORE} of this broker)"
    )


def wrong_between_brokers(config: BrokerConfig, materials: Mapping[str, ListenerMaterial]) -> Iterator[ConfigError]:
    """An error if brokers with this key store and trust store could not connect to each other; Kafka checks the same. An
    expired certificate does not count: the broker could otherwise not even be restarted."""
    material = materials.get(config.inter_broker_listener.name) if config.clustered else None
    if material is None or material.ends_ms < time.time() * 1000:
        return
    try:
        handshake(client_context(material, False), server_context(material))
    except ssl.SSLError as error:
        reason = str(getattr(error, "verify_message", "") or error.reason or error).rstrip(".")
        name = config.listener_key(material.name, TRUST_STORE)
        value = config.listener_value(material.name, TRUST_STORE)
        yield error_of(
            config,
            name,
            None if value is None else str(value),
            f"must contain the authority of the certificate of listener {material.name}, which is the inter-broker listener: "
            f"brokers with these stores could not connect to each other ({reason})",
        )
