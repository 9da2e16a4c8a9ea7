"""Reads key stores and trust stores: PEM, PKCS12 and JKS, from files or from the text of a configuration key.

Functions without state. The real format is found by a file's first bytes: `keytool` has written PKCS12 under the name
JKS since Java 9. Each error is a ConfigError that names the key of the configuration; none contains a password, a
private key or a part of one.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import pkcs12

from odradek.config.errors import ConfigError
from odradek.config.regular_file import read_regular
from odradek.security import jks

LARGEST_FILE = 16 << 20
_PRIVATE_KEY = re.compile(rb"-----BEGIN ((?:[A-Z0-9]+ )*PRIVATE KEY)-----.+?-----END \1-----", re.DOTALL)
_PEM = b"-----BEGIN "
_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)
"""What `cryptography` raises for keys and certificates that are damaged or of an unknown kind."""
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey


class StoreSettings(NamedTuple):
    """Where a store is. Unset fields are None.

    :param inline: the certificates as PEM text. :param inline_key: the private key as PEM text (key store only).
    :param name_of: the name of a configuration key as the operator wrote it, from its last part ("location",
        "password", "type", "key.password", ...), for messages.
    """

    location: str | None
    type: str | None
    password: str | None
    key_password: str | None
    inline: str | None
    inline_key: str | None
    name_of: Callable[[str], str]

    def __repr__(self) -> str:
        return f"<store {self.location or '(inline)'}>"

    @property
    def given(self) -> bool:
        """Whether there is a store at all."""
        return self.location is not None or self.inline is not None or self.inline_key is not None


class KeyPair(NamedTuple):
    """A private key with its certificates.

    :param key: PEM, PKCS8, not encrypted: never to be logged. :param chain: the key's own certificate first.
    """

    key: bytes
    chain: tuple[x509.Certificate, ...]
    kind: str

    def __repr__(self) -> str:
        return f"<key pair {self.kind}, {len(self.chain)} certificates>"

    @property
    def chain_pem(self) -> bytes:
        return b"".join(pem(certificate) for certificate in self.chain)

    @property
    def slow(self) -> bool:
        """Whether a signature takes so long that it must not be computed in an event loop."""
        return self.kind.startswith("RSA") and int(self.kind[4:]) > 2048


def pem(certificate: x509.Certificate) -> bytes:
    """A certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def ends(certificates: tuple[x509.Certificate, ...]) -> datetime:
    """When the first of these certificates expires (UTC)."""
    return min(certificate.not_valid_after_utc for certificate in certificates)


def read_key_store(settings: StoreSettings) -> KeyPair:
    """The private key and the certificates of a key store. Raises ConfigError."""
    if settings.location is None:
        return _inline_key_pair(settings)
    if settings.inline is not None or settings.inline_key is not None:
        extra = "key" if settings.inline_key is not None else "certificate.chain"
        raise ConfigError(
            settings.name_of(extra), None, f"must not be set together with {settings.name_of('location')}"
        )
    data, form = _read(settings)
    if form == "PEM":
        _no_store_password(settings)
        return _pem_key_pair(data, data, settings, "location", settings.location)
    if form == "PKCS12":
        key, certificate, others = _pkcs12(data, settings)
        if key is None or certificate is None:
            raise _wrong(settings, "contains no private key with a certificate")
        return _pair(key, _ordered(certificate, others), settings, "location", settings.location)
    return _jks_key_pair(data, settings)


def read_trust_store(settings: StoreSettings) -> tuple[x509.Certificate, ...]:
    """The trusted certificates of a trust store, at least one. Raises ConfigError."""
    if settings.location is None:
        return _certificates((settings.inline or "").encode(), settings, "certificates", None)
    if settings.inline is not None:
        raise ConfigError(
            settings.name_of("certificates"), None, f"must not be set together with {settings.name_of('location')}"
        )
    data, form = _read(settings)
    if form == "PEM":
        _no_store_password(settings)
        return _certificates(data, settings, "location", settings.location)
    if form == "PKCS12":
        key, certificate, others = _pkcs12(data, settings)
        # As in Java, of a private key's entry only its own certificate is trusted, not the authorities above it.
        found = [certificate] if key is not None and certificate is not None else others
        if key is None and certificate is not None:
            found = [certificate, *others]
    else:
        store = _jks(data, settings)
        ders = [*store.trusted.values(), *(key.chain[0] for key in store.keys if key.chain)]
        found = [_der(der, settings) for der in ders]
    if not found:
        raise _wrong(settings, "contains no certificate")
    return tuple(found)


def _wrong(settings: StoreSettings, reason: str) -> ConfigError:
    return ConfigError(settings.name_of("location"), settings.location, reason)


def _read(settings: StoreSettings) -> tuple[bytes, str]:
    """The bytes of a store, and its format: PEM, PKCS12 or JKS."""
    assert settings.location is not None
    try:
        data = read_regular(settings.location, LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _wrong(settings, f"cannot be read: {reason}") from None
    if len(data) > LARGEST_FILE:
        raise _wrong(settings, f"is larger than {LARGEST_FILE} bytes, so it is no key or trust store")
    if data.startswith(jks.JCEKS_MAGIC):
        raise _wrong(settings, "is a JCEKS store; convert it with keytool -importkeystore -deststoretype PKCS12")
    form = "JKS" if data.startswith(jks.MAGIC) else "PEM" if _PEM in data else "PKCS12" if data[:1] == b"\x30" else ""
    if not form:
        raise _wrong(settings, "is neither PEM nor PKCS12 nor JKS")
    kind = None if settings.type is None else settings.type.upper()
    if kind not in (None, "PEM", "PKCS12", "JKS"):
        raise ConfigError(settings.name_of("type"), settings.type, "must be PEM, PKCS12 or JKS")
    if kind is not None and (kind == "PEM") != (form == "PEM"):
        raise ConfigError(
            settings.name_of("type"), settings.type, f"must be {form}, because {settings.location} is {form}"
        )
    return data, form


def _no_store_password(settings: StoreSettings) -> None:
    if settings.password is not None:
        raise ConfigError(
            settings.name_of("password"), None, "must not be set for PEM; the password of a PEM key is ssl.key.password"
        )


# -- PEM ----------------------------------------------------------------------------------------------------------------


def _inline_key_pair(settings: StoreSettings) -> KeyPair:
    for part, value in (("key", settings.inline_key), ("certificate.chain", settings.inline)):
        if value is None:
            other = settings.name_of("certificate.chain" if part == "key" else "key")
            raise ConfigError(settings.name_of(part), None, f"must be set, because {other} is set")
    if settings.type is not None and settings.type.upper() != "PEM":
        raise ConfigError(
            settings.name_of("type"), settings.type, "must be PEM, because the key is in the configuration"
        )
    _no_store_password(settings)
    assert settings.inline is not None and settings.inline_key is not None
    return _pem_key_pair(settings.inline_key.encode(), settings.inline.encode(), settings, "key", None)


def _pem_key_pair(key: bytes, chain: bytes, settings: StoreSettings, part: str, shown: str | None) -> KeyPair:
    blocks = list(_PRIVATE_KEY.finditer(key))
    name = settings.name_of(part)
    if len(blocks) != 1:
        raise ConfigError(name, shown, f"contains {len(blocks) or 'no'} PEM private keys; exactly one is needed")
    encrypted = b"ENCRYPTED" in blocks[0].group()
    password = settings.key_password
    if encrypted and password is None:
        raise ConfigError(
            settings.name_of("key.password"), None, f"must be set, because the private key of {name} is encrypted"
        )
    try:
        private = serialization.load_pem_private_key(
            blocks[0].group(), password.encode() if encrypted and password else None
        )
    except _UNREADABLE:
        if encrypted:
            raise ConfigError(
                settings.name_of("key.password"),
                None,
                f"is not the password of the private key of {name}, or the key is damaged",
            ) from None
        raise ConfigError(name, shown, "contains a private key that cannot be read") from None
    certificates = _certificates(chain, settings, "certificate.chain" if part == "key" else "location", shown)
    return _pair(private, certificates, settings, part, shown)


def _certificates(data: bytes, settings: StoreSettings, part: str, shown: str | None) -> tuple[x509.Certificate, ...]:
    name = settings.name_of(part)
    try:
        certificates = x509.load_pem_x509_certificates(data)
    except _UNREADABLE:
        raise ConfigError(name, shown, "contains no PEM certificate that can be read") from None
    return tuple(certificates)


# -- PKCS12 and JKS -----------------------------------------------------------------------------------------------------


def _pkcs12(data: bytes, settings: StoreSettings) -> tuple[object, x509.Certificate | None, list[x509.Certificate]]:
    password = None if settings.password is None else settings.password.encode()
    try:
        store = pkcs12.load_pkcs12(data, password)
    except ValueError:
        if settings.password is None:
            raise ConfigError(
                settings.name_of("password"),
                None,
                f"must be set, because {settings.location} is a PKCS12 store with a password",
            ) from None
        raise ConfigError(
            settings.name_of("password"), None, f"is not the password of {settings.location}, or the file is damaged"
        ) from None
    except UnsupportedAlgorithm as error:
        raise _wrong(settings, f"is a PKCS12 store that is not supported: {error}") from None
    return (
        store.key,
        store.cert.certificate if store.cert else None,
        [entry.certificate for entry in store.additional_certs],
    )


def _ordered(first: x509.Certificate, others: list[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    """The chain from the key's own certificate upwards; a store holds the others in any order."""
    chain, rest = [first], list(others)
    while rest:
        issuer = next((one for one in rest if one.subject == chain[-1].issuer), None)
        if issuer is None:
            break
        rest.remove(issuer)
        chain.append(issuer)
    return tuple(chain)


def _jks(data: bytes, settings: StoreSettings) -> jks.JksStore:
    try:
        return jks.read(data, settings.password)
    except jks.WrongPassword:
        raise ConfigError(
            settings.name_of("password"), None, f"is not the password of {settings.location}, or the file is damaged"
        ) from None
    except jks.JksError as error:
        raise _wrong(settings, f"is a JKS store that cannot be read: {error}") from None


def _jks_key_pair(data: bytes, settings: StoreSettings) -> KeyPair:
    store = _jks(data, settings)
    if len(store.keys) != 1:
        raise _wrong(settings, f"contains {len(store.keys) or 'no'} private keys; exactly one is needed")
    password = settings.key_password if settings.key_password is not None else settings.password
    if password is None:
        raise ConfigError(
            settings.name_of("password"), None, f"must be set, because {settings.location} is a JKS store"
        )
    name = settings.name_of("key.password" if settings.key_password is not None else "password")
    try:
        private = serialization.load_der_private_key(jks.unprotect(store.keys[0], password), None)
    except jks.WrongPassword:
        raise ConfigError(name, None, f"is not the password of the private key in {settings.location}") from None
    except (jks.JksError, *_UNREADABLE):
        raise _wrong(settings, "contains a private key that cannot be read") from None
    chain = tuple(_der(der, settings) for der in store.keys[0].chain)
    return _pair(private, chain, settings, "location", settings.location)


def _der(der: bytes, settings: StoreSettings) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(der)
    except _UNREADABLE:
        raise _wrong(settings, "contains a certificate that cannot be read") from None


# -- keys ---------------------------------------------------------------------------------------------------------------


def _pair(
    private: object, chain: tuple[x509.Certificate, ...], settings: StoreSettings, part: str, shown: str | None
) -> KeyPair:
    name = settings.name_of(part)
    if not isinstance(private, PrivateKey):
        kind = "DSA" if isinstance(private, dsa.DSAPrivateKey) else type(private).__name__
        raise ConfigError(name, shown, f"contains a {kind} key; must be an RSA, EC, Ed25519 or Ed448 key")
    if not chain:
        raise ConfigError(name, shown, "contains no certificate of the private key")
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    try:
        own = chain[0].public_key().public_bytes(*form)
    except _UNREADABLE:
        raise ConfigError(name, shown, "contains a certificate whose public key cannot be read") from None
    if own != private.public_key().public_bytes(*form):
        raise ConfigError(name, shown, "contains a private key that does not belong to the first certificate")
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(text, chain, kind_of(private))


def kind_of(key: object) -> str:
    """The kind of a private or public key as text: "RSA 2048", "EC secp256r1", "Ed25519"."""
    if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey):
        return f"RSA {key.key_size}"
    if isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        return f"EC {key.curve.name}"
    return type(key).__name__.removesuffix("PrivateKey").removesuffix("PublicKey")
