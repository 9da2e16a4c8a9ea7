"""Reads JKS key stores, the format of Java's `keytool` before Java 9. Pure functions over bytes.

The format, big-endian: magic FE ED FE ED, version (1 or 2), the number of entries, the entries, and a SHA-1 digest of
the password in UTF-16, the text "Mighty Aphrodite", and everything before the digest. An entry begins with its tag
(1: private key with its certificate chain, 2: trusted certificate), alias and creation time. A private key is a PKCS8
EncryptedPrivateKeyInfo whose encryption is a XOR with a chain of SHA-1 digests: salt (20 bytes), encrypted key, and
SHA-1 of the password and the key.
"""

import hashlib
import hmac
from typing import NamedTuple

from odradek.security.der import DerError, Reader

MAGIC = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC = b"\xce\xce\xce\xce"
_DIGEST_BYTES = 20
_WHITENER = b"Mighty Aphrodite"
_KEY_ENTRY, _TRUSTED_ENTRY = 1, 2
_OID_KEY_PROTECTOR = bytes.fromhex("2b060104012a02110101")  # 1.3.6.1.4.1.42.2.17.1.1
_LARGEST_PART = 1 << 20
_MOST_ENTRIES = 10_000


class JksError(ValueError):
    """The bytes are not a JKS store, or the password is wrong; the message says which."""


class WrongPassword(JksError):
    """The password of the store or of the key is wrong."""


class JksKey(NamedTuple):
    """An entry with a private key. :param protected: the encrypted PKCS8 key. :param chain: DER certificates, the
    key's own first."""

    alias: str
    protected: bytes
    chain: list[bytes]


class JksStore(NamedTuple):
    """The content of a store. :param trusted: DER certificates by alias."""

    keys: list[JksKey]
    trusted: dict[str, bytes]


class _Reader:
    """A bounded cursor over the store."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self.at:
            raise JksError("the file is cut off")
        part = self._data[self.at : self.at + size]
        self.at += size
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def part(self) -> bytes:
        size = self.number(4)
        if size > _LARGEST_PART:
            raise JksError(f"an entry has a part of {size} bytes; the limit is {_LARGEST_PART}")
        return self.take(size)

    def text(self) -> str:
        return self.take(self.number(2)).decode(
            "utf-8", "replace"
        )  # Java's modified UTF-8 differs for NUL and emoji only


def read(data: bytes, password: str | None) -> JksStore:
    """Read a store. :param password: of the store; None: its integrity is not checked. Raises JksError, WrongPassword."""
    if len(data) < 12 + _DIGEST_BYTES or data[:4] != MAGIC:
        raise JksError("it does not begin with FE ED FE ED")
    if password is not None:
        digest = hashlib.sha1(_utf16(password) + _WHITENER + data[:-_DIGEST_BYTES], usedforsecurity=False).digest()
        if not hmac.compare_digest(digest, data[-_DIGEST_BYTES:]):
            raise WrongPassword("the password is wrong, or the file was changed")
    reader = _Reader(data[:-_DIGEST_BYTES])
    reader.take(4)
    version, count = reader.number(4), reader.number(4)
    if version not in (1, 2):
        raise JksError(f"its version is {version}; versions 1 and 2 are known")
    if count > _MOST_ENTRIES:
        raise JksError(f"it has {count} entries; the limit is {_MOST_ENTRIES}")
    store = JksStore([], {})
    for _ in range(count):
        _read_entry(reader, version, store)
    return store


def _read_entry(reader: _Reader, version: int, store: JksStore) -> None:
    tag, alias = reader.number(4), reader.text()
    reader.take(8)  # when it was created
    if tag == _KEY_ENTRY:
        protected, certificates = reader.part(), reader.number(4)
        if certificates > _MOST_ENTRIES:
            raise JksError(f"the chain of {alias!r} has {certificates} certificates; the limit is {_MOST_ENTRIES}")
        store.keys.append(JksKey(alias, protected, [_read_certificate(reader, version) for _ in range(certificates)]))
    elif tag == _TRUSTED_ENTRY:
        store.trusted[alias] = _read_certificate(reader, version)
    else:
        raise JksError(f"the entry {alias!r} has the unknown tag {tag}")


def _read_certificate(reader: _Reader, version: int) -> bytes:
    kind = reader.text() if version == 2 else "X.509"
    if kind != "X.509":
        raise JksError(f"it contains a certificate of the type {kind!r}; only X.509 is known")
    return reader.part()


def unprotect(key: JksKey, password: str) -> bytes:
    """The private key of an entry, as PKCS8 DER. Raises JksError, WrongPassword."""
    data = _encrypted_data(key.protected)
    if len(data) < 2 * _DIGEST_BYTES:
        raise JksError(f"the private key of {key.alias!r} is cut off")
    secret = _utf16(password)
    block = data[:_DIGEST_BYTES]
    encrypted, check = data[_DIGEST_BYTES:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    stream = bytearray()
    while len(stream) < len(encrypted):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    plain = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain, usedforsecurity=False).digest(), check):
        raise WrongPassword(f"the password of the private key {key.alias!r} is wrong")
    return plain


def _encrypted_data(protected: bytes) -> bytes:
    """The encrypted octets of an EncryptedPrivateKeyInfo: SEQUENCE { SEQUENCE { OID, NULL }, OCTET STRING }."""
    try:
        outer = Reader(protected).sequence()
        algorithm = outer.sequence()
        oid = algorithm.expect(0x06)
        if oid != _OID_KEY_PROTECTOR:
            raise JksError(f"a private key has an unknown encryption (object identifier {oid.hex()})")
        return outer.expect(0x04)
    except DerError as error:
        raise JksError(f"a private key is malformed: {error}") from None


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")
