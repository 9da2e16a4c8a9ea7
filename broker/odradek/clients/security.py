"""How a client protects its connections: Kafka's client keys in a properties file (`--command-config`), and the
sockets made with them.

Used in one thread of a client's process. Unknown keys are ignored, because Kafka's own tools also read such a file, and have
many more keys; one that resembles a known key of this file gets a warning.
"""

import base64
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from odradek.clients.errors import ClientError, HandshakeError, UnreachableError
from odradek.clients.sasl_settings import credentials_of
from odradek.clients.security_keys import similar_key
from odradek.config import properties, providers
from odradek.config.errors import ConfigError
from odradek.security.sasl.client import Credentials, LoginError, TokenCredentials
from odradek.security.sasl.mechanism import OAUTHBEARER

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LONGEST_FILE = 1 << 20
_PREFIXES = ("ssl.", "sasl.", "security.protocol")


@dataclass(frozen=True)
class ClientSecurity:
    """The security settings of a client.

    :param protocol: security.protocol. :param trusted: PEM of the trusted certificates; empty: those of the system.
    :param key, chain: PEM of the client's private key and certificates; empty: it presents none.
    :param verifies_host: whether the broker's certificate must contain the host name or address to which the client connects.
    :param versions: the lowest and highest TLS version. :param ciphers: of TLS 1.2, in OpenSSL's names; empty: the default.
    :param credentials: for the login; None without SASL. :param authorization: the Authorization header for a broker's
    metrics.listener. :param warnings: one line for each key of the file that is probably misspelled, and for settings that
        send secrets without encryption.
    """

    protocol: str = "PLAINTEXT"
    trusted: str = ""
    key: bytes = field(default=b"", repr=False)
    chain: bytes = b""
    verifies_host: bool = True
    versions: tuple[str, str] = ("TLSv1.2", "TLSv1.3")
    ciphers: str = ""
    credentials: Credentials | TokenCredentials | None = None
    authorization: str | None = field(default=None, repr=False)
    warnings: tuple[str, ...] = ()
    _made: list[ssl.SSLContext] = field(default_factory=list, repr=False, compare=False)

    @property
    def encrypted(self) -> bool:
        """Whether connections use TLS."""
        return self.protocol in ("SSL", "SASL_SSL")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "ClientSecurity":
        """Read Kafka's client keys from a properties file. Raises ClientError, with one line that names the key and
        the reason."""
        file = os.fspath(path)
        hints: list[str] = []
        try:
            with open(file, "rb") as stream:
                text = properties.decode(stream.read(_LONGEST_FILE))
            read = [(entry.name, entry.value, f"{file}:{entry.line}") for entry in properties.parse(text, file)]
            entries = {name: value.strip() for name, value, _ in providers.resolved(read)}
            hints = [f"key {name} is unknown; {hint}" for name in entries if (hint := similar_key(name))]
            security = cls.from_settings(entries)
            return replace(security, warnings=tuple(f"{file}: {line}" for line in (*hints, *security.warnings)))
        except OSError as error:
            raise ClientError(f"cannot read the client configuration {file}: {error.strerror}") from None
        except ConfigError as error:
            raise ClientError(" ".join((f"{file}: {error}", *(f"({hint})" for hint in hints)))) from None

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> "ClientSecurity":
        """The same from settings. Raises ConfigError."""
        known = {name: value for name, value in settings.items() if name.startswith(_PREFIXES)}
        header = _authorization(settings)
        protocol = known.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise ConfigError("security.protocol", protocol, f"must be one of {', '.join(PROTOCOLS)}")
        credentials = credentials_of(known) if protocol.startswith("SASL") else None
        # TLS also without security.protocol=SSL: metrics.listener may use it while the listener does not.
        warnings = (credentials.warning,) if isinstance(credentials, TokenCredentials) and credentials.warning else ()
        if protocol.endswith("SSL") or any(name.startswith("ssl.") for name in known):
            return replace(_with_tls(protocol, known, credentials, header), warnings=warnings)
        return cls(protocol, credentials=credentials, authorization=header, warnings=warnings)

    def context(self) -> ssl.SSLContext:
        """The TLS context, made at the first call. Raises ClientError."""
        if not self._made:
            self._made.append(self._new_context())
        return self._made[0]

    def _new_context(self) -> ssl.SSLContext:
        from odradek.security.contexts import configure, load_key, trust

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.verifies_host
        try:
            configure(context, self.versions, self.ciphers)
            if self.trusted:
                trust(context, self.trusted)
            else:
                context.load_default_certs()
            if self.key:
                load_key(context, self.key, self.chain)
        except (ssl.SSLError, OSError) as error:
            raise ClientError(f"cannot use the TLS settings of the client: {error}") from None
        return context

    def wrap(self, sock: socket.socket, host: str) -> socket.socket:
        """The socket to use in place of a connected one: after the TLS handshake, or the same one. Closes it and raises
        UnreachableError if the handshake fails."""
        if not self.encrypted:
            return sock
        context = self.context()
        try:
            return context.wrap_socket(sock, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            sock.close()
            raise HandshakeError(
                f"the broker's certificate is not accepted: {_verification(error, host, bool(self.trusted))}"
            ) from None
        except ssl.SSLError as error:
            sock.close()
            raise HandshakeError(f"the TLS handshake failed: {_handshake(error)}") from None
        except TimeoutError:
            sock.close()
            raise UnreachableError("the TLS handshake did not end in time; is it a listener with TLS?") from None
        except OSError as error:
            sock.close()
            reason = error.strerror or "the broker closed the connection"
            raise UnreachableError(f"the TLS handshake failed: {reason}; is it a listener with TLS?") from None

    def librdkafka(self) -> dict[str, Any]:
        """The equal settings of librdkafka, whose keys differ.

        Raises ClientError for a delegation token, and if there is no token for OAUTHBEARER.
        """
        settings: dict[str, Any] = {"security.protocol": self.protocol}
        if isinstance(self.credentials, TokenCredentials):
            from odradek.clients.oauth_tokens import library_callback

            try:
                self.credentials.token()  # now: the library would report a failure only as a timeout
            except LoginError as error:
                raise ClientError(f"cannot log in as {self.credentials.user}: {error}") from None
            settings |= {"sasl.mechanism": OAUTHBEARER, "oauth_cb": library_callback(self.credentials)}
        elif self.credentials is not None:
            if self.credentials.by_token:
                raise ClientError(
                    "this command uses librdkafka, which cannot log in with a delegation token: use the login of a user"
                )
            settings["sasl.mechanism"] = self.credentials.mechanism
            settings |= {"sasl.username": self.credentials.user, "sasl.password": self.credentials.password}
        if not self.encrypted:
            return settings
        settings["ssl.endpoint.identification.algorithm"] = "https" if self.verifies_host else "none"
        if self.trusted:
            settings["ssl.ca.pem"] = self.trusted
        if self.key:
            settings |= {"ssl.key.pem": self.key.decode(), "ssl.certificate.pem": self.chain.decode()}
        if self.ciphers:
            settings["ssl.cipher.suites"] = self.ciphers
        return settings


PLAIN = ClientSecurity()


def _authorization(settings: Mapping[str, str]) -> str | None:
    """The header for metrics.listener, from the first line of the file that the broker's own keys name. Raises ConfigError."""
    for key, scheme in (("metrics.listener.token.file", "Bearer"), ("metrics.listener.password.file", "Basic")):
        path = settings.get(key)
        if not path:
            continue
        try:
            with open(path, "rb") as file:
                line = file.read(_LONGEST_FILE).strip().partition(b"\n")[0].strip()
        except OSError as error:
            raise ConfigError(key, path, f"cannot be read: {error.strerror}") from None
        if not line:
            raise ConfigError(key, path, "is empty")
        return f"{scheme} {(base64.b64encode(line) if scheme == 'Basic' else line).decode('latin-1')}"
    return None


def _with_tls(
    protocol: str,
    settings: Mapping[str, str],
    credentials: Credentials | TokenCredentials | None,
    authorization: str | None,
) -> ClientSecurity:
    from odradek.security.cipher_suites import Suites, chosen
    from odradek.security.contexts import checked_versions, versions_with
    from odradek.security.keystores import StoreSettings, pem, read_key_store, read_trust_store

    def text(name: str) -> str | None:
        return settings.get(name) or None

    def names(name: str, default: str) -> tuple[str, ...]:
        return tuple(filter(None, (part.strip() for part in settings.get(name, default).split(","))))

    key_store = StoreSettings(
        text("ssl.keystore.location"),
        text("ssl.keystore.type"),
        text("ssl.keystore.password"),
        text("ssl.key.password"),
        text("ssl.keystore.certificate.chain"),
        text("ssl.keystore.key"),
        lambda part: f"ssl.{'' if part == 'key.password' else 'keystore.'}{part}",
    )
    trust_store = StoreSettings(
        text("ssl.truststore.location"),
        text("ssl.truststore.type"),
        text("ssl.truststore.password"),
        None,
        text("ssl.truststore.certificates"),
        None,
        lambda part: f"ssl.truststore.{part}",
    )
    pair = read_key_store(key_store) if key_store.given else None
    trusted = read_trust_store(trust_store) if trust_store.given else ()
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm.lower() not in ("https", ""):
        raise ConfigError(
            "ssl.endpoint.identification.algorithm", algorithm, "must be https, or empty for no check of the host name"
        )
    key = "ssl.enabled.protocols"
    versions = checked_versions(
        names(key, "TLSv1.2,TLSv1.3"), lambda reason: ConfigError(key, settings.get(key), reason)
    )
    suites = Suites("", True)
    wanted = names("ssl.cipher.suites", "")
    if wanted:
        shown = settings["ssl.cipher.suites"]
        try:
            suites = chosen(wanted)
        except ValueError as error:
            raise ConfigError("ssl.cipher.suites", shown, str(error)) from None
        versions = versions_with(suites, versions, lambda reason: ConfigError("ssl.cipher.suites", shown, reason))
    return ClientSecurity(
        protocol,
        "".join(pem(certificate).decode() for certificate in trusted),
        b"" if pair is None else pair.key,
        b"" if pair is None else pair.chain_pem,
        bool(algorithm),
        versions,
        suites.openssl,
        credentials,
        authorization,
    )


def _verification(error: ssl.SSLCertVerificationError, host: str, own_trust: bool) -> str:
    message = str(error.verify_message).rstrip(".")
    if error.verify_code in (62, 64):  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
        return (
            f"it does not contain the host {host}; connect with a name that it contains, or set"
            " ssl.endpoint.identification.algorithm= (empty) if you trust the network"
        )
    if error.verify_code == 10:  # X509_V_ERR_CERT_HAS_EXPIRED
        return "it has expired (if it has not, the clock of this machine is wrong); replace the broker's certificate"
    if error.verify_code == 9:  # X509_V_ERR_CERT_NOT_YET_VALID
        return (
            "it is not valid yet; compare the clocks of the two machines, and the certificate (`odradek certificate`)"
        )
    where = (
        "ssl.truststore.location"
        if own_trust
        else "the certificates of this system, because ssl.truststore.location is not set"
    )
    return f"{message} (checked against {where}); the trust store must contain the authority that signed it"


def _handshake(error: ssl.SSLError) -> str:
    reason = error.reason or str(error)
    known = {
        "UNEXPECTED_EOF_WHILE_READING": "the broker closed the connection during it; the listener may not speak TLS",
        "WRONG_VERSION_NUMBER": "the listener does not speak TLS; security.protocol=PLAINTEXT may be right",
        "UNSUPPORTED_PROTOCOL": "the broker offers no TLS version that ssl.enabled.protocols contains",
        "TLSV1_ALERT_PROTOCOL_VERSION": "the broker accepts no TLS version that ssl.enabled.protocols contains",
        "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker accepts no cipher suite of this client, or requires a client certificate",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker requires a client certificate: set ssl.keystore.location",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the broker refuses the certificate in ssl.keystore.location: it has expired, or is"
        " not valid yet by the broker's clock",
        "TLSV1_ALERT_UNKNOWN_CA": "the broker refuses the certificate in ssl.keystore.location: the broker's"
        " ssl.truststore.location does not contain the authority that signed it",
        "SSLV3_ALERT_BAD_CERTIFICATE": "the broker refuses the certificate in ssl.keystore.location; its log names the reason",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the broker refuses the certificate in ssl.keystore.location; its log names the"
        " reason",
    }
    return known.get(reason, reason.lower().replace("_", " "))


def refuses_certificate(error: OSError) -> bool:
    """Whether the broker ended the connection because of the client's certificate, or the lack of one. With TLS 1.3 the client
    learns this at its first read after the handshake."""
    return isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")


def lost(error: OSError) -> str:
    """The reason of a failed read or write, as text."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "the broker closed it"
    if isinstance(error, ssl.SSLError):
        return _handshake(error)
    return error.strerror or str(error)
