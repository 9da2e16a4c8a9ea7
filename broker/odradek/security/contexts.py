"""TLS contexts of listeners: from the configuration to a `ListenerMaterial`, and from that to an `ssl.SSLContext`.

Functions without state. The supervisor loads the material before it serves, the coordinator loads it again when
something changed; both check it completely, so that workers, which receive the material as bytes, build contexts that
are known to work.
"""

import os
import ssl
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cryptography import x509

from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.config.key import show
from odradek.config.listeners import ENCRYPTED, Listener
from odradek.security.cipher_suites import Suites, chosen
from odradek.security.keystores import KeyPair, StoreSettings, ends, pem, read_key_store, read_trust_store
from odradek.security.principal import MappingError, parse_rules

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
PROTOCOLS = ("TLS", *VERSIONS)
DEFAULT_SUITES = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2, in OpenSSL's notation: authenticated encryption with forward secrecy. Every client since Java 8 has them."""
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class ListenerMaterial(NamedTuple):
    """All that TLS of a listener needs, as texts and numbers, so that it can be published to other processes. It contains the
    private key: never to be logged.

    :param authenticates: the handshake is the whole authentication (SSL); False: SASL follows.
    :param key, chain, trust: PEM; `trust` is empty if no client certificate is asked for and there is no trust store.
    :param versions: the lowest and highest version, keys of `VERSIONS`. :param ciphers: for TLS 1.2, in OpenSSL's
    names; empty: default.
    :param rules: ssl.principal.mapping.rules. :param slow: see `KeyPair.slow`. :param ends_ms: Unix time at which the
        first certificate of the chain expires. :param subject, names: subject and alternative names of the listener's
        own certificate.
    """

    name: str
    authenticates: bool
    key: str
    chain: str
    trust: str
    client_auth: str
    versions: tuple[str, str]
    ciphers: str
    rules: str
    slow: bool
    ends_ms: int
    subject: str
    names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<TLS material of listener {self.name}: {self.subject}>"


def load_listeners(config: BrokerConfig) -> dict[str, ListenerMaterial]:
    """The material of all listeners with TLS, by name; checked by a handshake of each with itself. Raises ConfigError
    for the first that cannot work, with one line."""
    return {
        listener.name: load_listener(config, listener)
        for listener in config.listeners
        if listener.protocol in ENCRYPTED
    }


def load_listener(config: BrokerConfig, listener: Listener) -> ListenerMaterial:
    """The material of one listener. Raises ConfigError."""
    reading = _Settings(config, listener.name)
    store = reading.key_store()
    if not store.given:
        raise ConfigError(
            "listeners", str(listener),
            f"has the security protocol {listener.protocol}, so ssl.keystore.location must be set, or ssl.keystore.key with"
            " ssl.keystore.certificate.chain (PEM text)",
        )  # fmt: skip
    pair = read_key_store(store)
    client_auth = _client_auth(reading, listener)
    trust_store = reading.trust_store()
    trust = read_trust_store(trust_store) if trust_store.given else ()
    if client_auth != "none" and not trust:
        raise reading.error(
            "ssl.client.auth",
            "needs ssl.truststore.location or ssl.truststore.certificates, against which certificates are checked",
        )
    rules = str(reading.value("ssl.principal.mapping.rules"))
    try:
        parse_rules(rules)
    except MappingError as error:
        raise reading.error("ssl.principal.mapping.rules", str(error)) from None
    suites, versions = _suites_and_versions(reading)
    material = ListenerMaterial(
        listener.name,
        listener.protocol == "SSL",
        pair.key.decode(),
        pair.chain_pem.decode(),
        "".join(pem(certificate).decode() for certificate in trust),
        client_auth,
        versions,
        suites.openssl,
        rules,
        pair.slow,
        int(ends(pair.chain).timestamp() * 1000),
        pair.chain[0].subject.rfc4514_string(),
        alternative_names(pair.chain[0]),
    )
    try:
        handshake_with_itself(material)
    except (ssl.SSLError, OSError) as error:
        raise _of_tls(reading, store, pair, error) from None
    return material


def _of_tls(reading: "_Settings", store: StoreSettings, pair: KeyPair, error: Exception) -> ConfigError:
    reason = getattr(error, "reason", None) or str(error)
    if "NO_SHARED_CIPHER" in reason or "NO_CIPHERS" in reason or "NO_SUITABLE_SIGNATURE" in reason:
        return reading.error("ssl.cipher.suites", f"leaves no suite that the {pair.kind} key of the listener can use")
    part = "location" if store.location is not None else "key"
    return ConfigError(
        store.name_of(part),
        store.location,
        f"contains a key or certificate that TLS cannot use: {reason.lower().replace('_', ' ')}",
    )


class _Settings:
    """Reads the `ssl.*` keys of one listener."""

    def __init__(self, config: BrokerConfig, listener_name: str) -> None:
        self._config = config
        self._listener = listener_name

    def name(self, key: str) -> str:
        return self._config.listener_key(self._listener, key)

    def value(self, key: str) -> object:
        return self._config.listener_value(self._listener, key)

    def text(self, key: str) -> str | None:
        value = self.value(key)
        return None if value is None or value == "" else str(value)

    def type(self, key: str) -> str | None:
        """The type of a store; None if it was not set, so that any format is accepted."""
        return self.text(key) if self._config.is_set(self.name(key)) else None

    def error(self, key: str, reason: str) -> ConfigError:
        name = self.name(key)
        row_value = self.value(key)
        where = self._config.where(name)
        return ConfigError(name, show(row_value), reason, "" if where == "default" else where)  # type: ignore[arg-type]

    def key_store(self) -> StoreSettings:
        names = {part: f"ssl.keystore.{part}" for part in ("location", "password", "type", "key", "certificate.chain")}
        names["key.password"] = "ssl.key.password"
        return StoreSettings(
            self.text("ssl.keystore.location"),
            self.type("ssl.keystore.type"),
            self.text("ssl.keystore.password"),
            self.text("ssl.key.password"),
            self.text("ssl.keystore.certificate.chain"),
            self.text("ssl.keystore.key"),
            lambda part: self.name(names[part]),
        )

    def trust_store(self) -> StoreSettings:
        return StoreSettings(
            self.text("ssl.truststore.location"),
            self.type("ssl.truststore.type"),
            self.text("ssl.truststore.password"),
            None,
            self.text("ssl.truststore.certificates"),
            None,
            lambda part: self.name(f"ssl.truststore.{part}"),
        )


def _client_auth(reading: _Settings, listener: Listener) -> str:
    """ssl.client.auth of a listener; on SASL_SSL only the key with the listener's prefix counts (KIP-684)."""
    if listener.protocol == "SASL_SSL" and reading.name("ssl.client.auth") == "ssl.client.auth":
        return "none"
    return str(reading.value("ssl.client.auth"))


def warnings(config: BrokerConfig) -> list[str]:
    """One line for each setting of TLS that does not do what its author may expect."""
    unprefixed = str(config["ssl.client.auth"])
    ignored = [
        listener.name
        for listener in config.listeners
        if listener.protocol == "SASL_SSL"
        and config.listener_key(listener.name, "ssl.client.auth") == "ssl.client.auth"
    ]
    if unprefixed == "none" or not ignored:
        return []
    name = ignored[0]
    return [
        f"ssl.client.auth={unprefixed} ({config.where('ssl.client.auth')}) does not apply to the SASL_SSL listener {name}:"
        f" clients log in with SASL there; listener.name.{name.lower()}.ssl.client.auth={unprefixed} asks for certificates too"
    ]


def _suites_and_versions(reading: _Settings) -> tuple[Suites, tuple[str, str]]:
    """The cipher suites, and the lowest and highest TLS version that the settings leave."""
    enabled = reading.value("ssl.enabled.protocols")
    names = tuple(enabled) if isinstance(enabled, tuple) else ()
    versions = checked_versions(names, lambda reason: reading.error("ssl.enabled.protocols", reason))
    protocol = str(reading.value("ssl.protocol"))
    if protocol not in PROTOCOLS:
        raise reading.error("ssl.protocol", f"must be one of {', '.join(PROTOCOLS)}")
    wanted = reading.value("ssl.cipher.suites")
    if not isinstance(wanted, tuple) or not wanted:
        return Suites("", True), versions
    try:
        suites = chosen(wanted)
    except ValueError as error:
        raise reading.error("ssl.cipher.suites", str(error)) from None
    return suites, versions_with(suites, versions, lambda reason: reading.error("ssl.cipher.suites", reason))


def checked_versions(names: Iterable[str], error: "type[Exception] | object") -> tuple[str, str]:
    """The lowest and highest of these TLS versions. :param error: makes the exception from its reason."""
    names = tuple(names)
    wrong = [name for name in names if name not in VERSIONS]
    if wrong or not names:
        raise error(f"must contain only {' and '.join(VERSIONS)}; older versions are not supported")  # type: ignore[operator]
    ordered = [name for name in VERSIONS if name in names]
    return ordered[0], ordered[-1]


def versions_with(suites: Suites, versions: tuple[str, str], error: object) -> tuple[str, str]:
    """The versions for which there are suites: a list without suites of TLS 1.3 disables TLS 1.3, as in Java."""
    left = [
        name
        for name in VERSIONS
        if versions[0] <= name <= versions[1] and (suites.tls_1_3 if name == "TLSv1.3" else suites.openssl)
    ]
    if not left:
        raise error(f"contains no suite of the enabled versions {' to '.join(dict.fromkeys(versions))}")  # type: ignore[operator]
    return left[0], left[-1]


def alternative_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """The alternative names of a certificate as texts, sorted."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(sorted(f"{type(name).__name__}:{name.value}" for name in extension.value))


# -- contexts -----------------------------------------------------------------------------------------------------------


def load_key(context: ssl.SSLContext, key: bytes, chain: bytes) -> None:
    """Give a context its private key and certificates. Python reads them from files only, so they are in memory that
    looks like one."""
    fd = os.memfd_create("odradek-key", os.MFD_CLOEXEC)
    try:
        os.write(fd, key + chain)
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def configure(context: ssl.SSLContext, versions: tuple[str, str], ciphers: str) -> None:
    """Set versions and cipher suites; switch off compression and renegotiation."""
    context.minimum_version, context.maximum_version = VERSIONS[versions[0]], VERSIONS[versions[1]]
    if ciphers:
        context.set_ciphers(ciphers)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION


def server_context(material: ListenerMaterial) -> ssl.SSLContext:
    """The context of a listener. Raises ssl.SSLError, OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    configure(context, material.versions, material.ciphers or DEFAULT_SUITES)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_SINGLE_ECDH_USE
    load_key(context, material.key.encode(), material.chain.encode())
    if material.trust:
        trust(context, material.trust)
    context.verify_mode = CLIENT_AUTH[material.client_auth]
    if material.client_auth == "none":
        context.num_tickets = 1
    else:  # a resumed session would skip the check of the client's certificate against a changed trust store
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    return context


def trust(context: ssl.SSLContext, certificates: str) -> None:
    """Trust these certificates (PEM), also those that are not roots, as Java does."""
    context.load_verify_locations(cadata=certificates)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def handshake_with_itself(material: ListenerMaterial) -> str:
    """Let a client connect to the listener's context, all in memory. Returns the negotiated version. Raises
    ssl.SSLError, OSError."""
    server = server_context(material)
    server.verify_mode = ssl.CERT_NONE  # nothing is known of clients here
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    client.minimum_version, client.maximum_version = VERSIONS["TLSv1.2"], VERSIONS["TLSv1.3"]
    client.set_ciphers("ALL:@SECLEVEL=0")
    return handshake(client, server)


def handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> str:
    """Let a client connect to a server, all in memory. Returns the negotiated version. Raises ssl.SSLError, OSError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends_of = (client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True))
    open_ends = set(ends_of)
    for _ in range(8):
        for end in ends_of:
            if end in open_ends:
                try:
                    end.do_handshake()
                    open_ends.discard(end)
                except ssl.SSLWantReadError:
                    continue
        if not open_ends:
            return str(ends_of[0].version())
    raise ssl.SSLError("the handshake with itself did not end")


def why_not_replaced(
    old: Mapping[str, ListenerMaterial], new: Mapping[str, ListenerMaterial], config: BrokerConfig
) -> ConfigError | None:
    """Why the new material must not replace the old one at run time (Kafka's rules); None if it may."""
    for name, fresh in new.items():
        known = old.get(name)
        if known is None:
            continue
        reading = _Settings(config, name)
        location = reading.name("ssl.keystore.location")
        shown = reading.text("ssl.keystore.location")
        if fresh.subject != known.subject and not config["ssl.allow.dn.changes"]:
            reason = f"its certificate has the subject {fresh.subject!r} instead of {known.subject!r}"
            return ConfigError(location, shown, f"{reason}; ssl.allow.dn.changes=true allows that")
        missing = sorted(set(known.names) - set(fresh.names))
        if missing and not config["ssl.allow.san.changes"]:
            reason = (
                f"its certificate lacks the alternative name {missing[0]!r}; ssl.allow.san.changes=true allows that"
            )
            return ConfigError(location, shown, reason)
        if fresh.trust and not known.trust:
            return reading.error(
                "ssl.truststore.location", "a trust store cannot be added to an open listener; restart the broker"
            )
    return None
