"""Sets of public keys (JWKS, RFC 7517) with which tokens are checked: which keys of a document can be used.

Pure functions. Only public RSA and EC keys are kept: symmetric keys and private keys are left out, so that no process of the
broker has a key with which it could make tokens. Imports the cryptographic library: for brokers that need it only.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.exceptions import InvalidKeyError

LARGEST_DOCUMENT = 1 << 20
MOST_KEYS = 100
LONGEST_ID = 1000
RSA_BITS = range(2048, 8193)
LARGEST_EXPONENT = (1 << 32) - 1
"""A large exponent makes each check of a signature as slow as a signature."""
_LONGEST_NUMBER = 1400  # base64 of 8192 bits, with room

RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
EC_ALGORITHMS = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
ALGORITHMS = frozenset((*RSA_ALGORITHMS, *EC_ALGORITHMS.values()))
"""The algorithms of tokens. Neither `none` nor one with a shared secret can be added: the keys are public."""
_KEPT = {"RSA": ("kty", "n", "e", "kid", "alg"), "EC": ("kty", "crv", "x", "y", "kid", "alg")}


class JwksError(ValueError):
    """A document that contains no set of usable keys. The message is one line for the operator."""


class PublicKey(NamedTuple):
    """A key, its id (None if it has none), and the algorithms of the signatures that it can check."""

    key_id: str | None
    algorithms: frozenset[str]
    key: RSAPublicKey | EllipticCurvePublicKey


class Jwks(NamedTuple):
    """The usable keys of a document, as JWKs with only public members, and why the others were left out."""

    keys: list[dict[str, str]]
    left_out: list[str]


def parse_document(document: bytes) -> Jwks:
    """The usable keys of a JWKS document. Raises JwksError if there is none."""
    if len(document) > LARGEST_DOCUMENT:
        raise JwksError(f"has more than {LARGEST_DOCUMENT} bytes")
    try:
        content = json.loads(document)
    except (ValueError, RecursionError):
        raise JwksError("is not JSON") from None
    keys = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(keys, list):
        raise JwksError('is not a JSON object with a list "keys"')
    if len(keys) > MOST_KEYS:
        raise JwksError(f"has {len(keys)} keys; allowed are {MOST_KEYS}")
    kept: list[dict[str, str]] = []
    left_out: list[str] = []
    for number, jwk in enumerate(keys, 1):
        try:
            kept.append(_usable(jwk))
        except JwksError as error:
            left_out.append(f"key {number}{_shown_id(jwk)} {error}")
    if not kept:
        raise JwksError("has no usable key" + (f": {'; '.join(left_out[:5])}" if left_out else ""))
    return Jwks(kept, left_out)


def public_keys(keys: Iterable[Mapping[str, str]]) -> list[PublicKey]:
    """The keys of `Jwks.keys`, ready to use. Raises JwksError."""
    return [_public_key(jwk) for jwk in keys]


def _usable(jwk: Any) -> dict[str, str]:
    if not isinstance(jwk, dict):
        raise JwksError("is not a JSON object")
    kty = jwk.get("kty")
    if kty == "oct":
        raise JwksError("is a symmetric key")
    if not isinstance(kty, str) or kty not in _KEPT:
        raise JwksError("has a key type (kty) other than RSA and EC")
    if "d" in jwk:
        raise JwksError("is a private key, which must not be published")
    if jwk.get("use", "sig") != "sig":
        raise JwksError("is not for signatures (use)")
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise JwksError("is not for checking signatures (key_ops)")
    kept = {name: jwk[name] for name in _KEPT[kty] if jwk.get(name) is not None}
    if not all(isinstance(value, str) and len(value) <= _LONGEST_NUMBER for value in kept.values()):
        raise JwksError("has a member that is no text, or is too long")
    if len(kept.get("kid", "")) > LONGEST_ID:
        raise JwksError(f"has an id (kid) of more than {LONGEST_ID} characters")
    _public_key(kept)
    return kept


def _public_key(jwk: Mapping[str, str]) -> PublicKey:
    """Raises JwksError."""
    is_rsa = jwk.get("kty") == "RSA"
    try:
        key = (RSAAlgorithm if is_rsa else ECAlgorithm).from_jwk(dict(jwk))
    except (InvalidKeyError, ValueError, KeyError, TypeError):
        raise JwksError("cannot be read, or has an unknown curve") from None
    if isinstance(key, RSAPublicKey):
        if key.key_size not in RSA_BITS:
            raise JwksError(f"has {key.key_size} bits; allowed are {RSA_BITS.start} to {RSA_BITS.stop - 1}")
        if key.public_numbers().e > LARGEST_EXPONENT:
            raise JwksError("has a public exponent of more than 32 bits")
        can: tuple[str, ...] = RSA_ALGORITHMS
    elif isinstance(key, EllipticCurvePublicKey) and jwk["crv"] in EC_ALGORITHMS:
        can = (EC_ALGORITHMS[jwk["crv"]],)
    else:
        raise JwksError(f"has a curve other than {', '.join(EC_ALGORITHMS)}")
    algorithm = jwk.get("alg")
    if algorithm is not None:
        if algorithm not in can:
            raise JwksError("is for an algorithm (alg) that is not supported")
        can = (algorithm,)
    return PublicKey(jwk.get("kid"), frozenset(can), key)


def _shown_id(jwk: Any) -> str:
    key_id = jwk.get("kid") if isinstance(jwk, dict) else None
    return f" ({key_id[:60]!a})" if isinstance(key_id, str) else ""
