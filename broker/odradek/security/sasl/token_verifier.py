"""Checks the tokens of OAUTHBEARER: JSON Web Tokens (RFC 7519) that an identity provider signed.

A worker owns a `TokenVerifier` for each listener and uses it only in its loop: a check takes some tens to some hundreds of
microseconds, depending on the algorithm. Tokens that were accepted are remembered by their digest until they expire or the keys
change.

A token must be signed with a known key by one of `jwks.ALGORITHMS`, and have the claims `exp`, `iat` and that of the principal.
The rules are those of Kafka's `BrokerJwtValidator`, and stricter where noted in decision 34.
"""

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import jwt
from jwt.algorithms import get_default_algorithms
from jwt.utils import base64url_decode

from odradek.security.sasl.jwks import ALGORITHMS, LONGEST_ID, PublicKey
from odradek.security.sasl.mechanism import Refused
from odradek.security.sasl.oauth_settings import AUDIENCE, ISSUER, OAuthSettings
from odradek.security.sasl.oauthbearer import LONGEST_TOKEN, Identity, UnknownKey

LONGEST_HEADER = 4096
"""The longest header in bytes of base64: it is read before the signature is checked."""
SHORT = 2048
"""Of longer tokens, the signature is checked before anything else: PyJWT decodes them slowly, also those of strangers."""
MOST_KEPT = 1000
MOST_TRIED = 4
"""The largest number of keys with which one token is checked: several, if it names none."""
LONGEST_NAME = 1024
_BLANKS = " \t\n\v\f\r"
"""What is cut off a name, as by Java's `trim`. Other white space belongs to the name, which could else be another user's."""
LATEST = 253402300799
"""The last second of the year 9999: larger times are refused."""

_REASONS: dict[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "the token has expired",
    jwt.ImmatureSignatureError: "the token is not valid yet (nbf)",
    jwt.InvalidSignatureError: "the signature of the token is wrong",
    jwt.InvalidIssuerError: f"the token has another issuer than {ISSUER}",
    jwt.InvalidAudienceError: f"the token is for another audience (aud) than {AUDIENCE}",
}
_ALGORITHMS = get_default_algorithms()
_OPTIONS: Any = {
    "require": ["exp", "iat"],
    "verify_iat": False,  # as in Kafka: a token of the near future is valid; its type is checked below
    "verify_sub": False,  # another claim may contain the principal
    "verify_jti": False,
}


class TokenVerifier:
    """See the module. :param clock: Unix time in seconds; of the memory, while the library uses the wall clock."""

    def __init__(self, settings: OAuthSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._keys: Sequence[PublicKey] = ()
        self._without_keys = "the keys of the identity provider have not been read yet"
        self._accepted: OrderedDict[bytes, Identity] = OrderedDict()

    def use(self, keys: Sequence[PublicKey], without_keys: str) -> None:
        """Use these keys from now on. :param without_keys: why there are none; for the log."""
        self._keys = keys
        self._without_keys = without_keys
        self._accepted.clear()

    def verify(self, token: bytes) -> Identity:
        """Check a token. Raises Refused, UnknownKey; both name the user that the token claims, for the log."""
        if len(token) > LONGEST_TOKEN:
            raise Refused(f"a token of {len(token)} bytes; allowed are {LONGEST_TOKEN}")
        try:
            return self._verified(token)
        except (Refused, UnknownKey) as error:
            error.user = self._claimed_user(token)
            raise

    def _claimed_user(self, token: bytes) -> str:
        """The user in the claims of a token that is not accepted; "" if they cannot be read."""
        try:
            user = json.loads(base64url_decode(token.split(b".")[1])).get(self._settings.sub_claim)
        except (IndexError, ValueError, AttributeError, RecursionError):
            return ""
        return user if isinstance(user, str) else ""

    def _verified(self, token: bytes) -> Identity:
        digest = hashlib.sha256(token).digest()
        known = self._accepted.get(digest)
        if known is not None:
            if known.expires_ms <= (self._clock() - self._settings.skew_s) * 1000:
                del self._accepted[digest]
                raise Refused(_REASONS[jwt.ExpiredSignatureError])
            self._accepted.move_to_end(digest)
            return known
        identity = self._check(token)
        self._accepted[digest] = identity
        if len(self._accepted) > MOST_KEPT:
            self._accepted.popitem(last=False)
        return identity

    def _check(self, token: bytes) -> Identity:
        algorithm, key_id = _header(token)
        keys = self._candidates(algorithm, key_id)
        if len(keys) > 1 or len(token) > SHORT:
            keys = _signers(token, algorithm, keys)
        return self._identity(self._claims(token, algorithm, keys[0]))

    def _candidates(self, algorithm: str, key_id: str | None) -> list[PublicKey]:
        """The keys to try; at least one. Raises Refused, UnknownKey."""
        if not self._keys:
            raise UnknownKey(self._without_keys)
        named = [key for key in self._keys if key_id is None or key.key_id == key_id]
        if not named:
            raise UnknownKey("the token is signed with a key that the identity provider does not publish (kid)")
        keys = [key for key in named if algorithm in key.algorithms]
        if not keys:
            raise Refused(f"no key of the identity provider is for {algorithm}, with which the token is signed")
        if len(keys) > MOST_TRIED:
            raise Refused(f"the token does not name its key (kid), and {len(keys)} keys may have signed it")
        return keys

    def _claims(self, token: bytes, algorithm: str, key: PublicKey) -> dict[str, Any]:
        """The claims of a token that is signed with this key. Raises Refused."""
        settings = self._settings
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                options=_OPTIONS,
                audience=settings.audience or None,
                issuer=settings.issuer,
                leeway=settings.skew_s,
            )
        except jwt.MissingRequiredClaimError as error:
            raise Refused(f"the token has no claim {error.claim}") from None
        except jwt.PyJWTError as error:
            if isinstance(error, jwt.InvalidAudienceError) and not settings.audience:
                raise Refused(f"the token is for an audience (aud), and {AUDIENCE} is not set") from None
            raise Refused(_REASONS.get(type(error), f"the token cannot be read ({type(error).__name__})")) from None
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise Refused(f"the token cannot be read ({type(error).__name__})") from None
        return claims

    def _identity(self, claims: dict[str, Any]) -> Identity:
        """Whom the claims of a valid token name. Raises Refused."""
        for name in ("exp", "iat", "nbf"):
            if name in claims and not _is_time(claims[name]):
                raise Refused(f"the claim {name} of the token is not a time")
        if claims["exp"] < max(claims["iat"], claims.get("nbf", 0)):
            raise Refused("the token expires (exp) before it is issued or valid (iat, nbf)")
        _check_scope(claims.get(self._settings.scope_claim), self._settings.scope_claim)
        name = self._settings.sub_claim
        user = claims.get(name)
        if not isinstance(user, str) or not user.strip(_BLANKS):
            raise Refused(f"the claim {name} of the token is missing, empty, or no text")
        user = user.strip(_BLANKS)
        if len(user) > LONGEST_NAME or any(
            char < " " or char == "\x7f" or "\ud800" <= char <= "\udfff" for char in user
        ):
            raise Refused(f"the claim {name} of the token is too long, or has characters that a name must not have")
        return Identity(user, int(claims["exp"] * 1000))


def _header(token: bytes) -> tuple[str, str | None]:
    """The algorithm and the id of the key, if the token has one. Raises Refused."""
    if token.count(b".") != 2:
        raise Refused("the token is not a signed JSON Web Token of three parts")
    if token.index(b".") > LONGEST_HEADER:
        raise Refused(f"the header of the token has more than {LONGEST_HEADER} bytes")
    try:
        header = jwt.get_unverified_header(token[: token.index(b".")] + b"..")
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise Refused(f"the header of the token cannot be read ({type(error).__name__})") from None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise Refused(f"the algorithm of the token must be one of {', '.join(sorted(ALGORITHMS))}")
    if "crit" in header or "b64" in header:
        raise Refused("the header of the token demands an extension (crit, b64), and none is supported")
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > LONGEST_ID):
        raise Refused(f"the id of the token's key (kid) is no text of at most {LONGEST_ID} characters")
    return algorithm, key_id


def _signers(token: bytes, algorithm: str, keys: list[PublicKey]) -> list[PublicKey]:
    """Those of the keys with which the token is signed; at least one. Raises Refused."""
    content, _, text = token.rpartition(b".")
    check = _ALGORITHMS[algorithm]
    try:
        signature = base64url_decode(text)
        signers = [key for key in keys if check.verify(content, key.key, signature)]
    except ValueError:
        signers = []
    if not signers:
        raise Refused(_REASONS[jwt.InvalidSignatureError])
    return signers


def _is_time(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and (isinstance(value, int) or math.isfinite(value))
        and 0 <= value <= LATEST
    )


def _check_scope(value: Any, name: str) -> None:
    """The scope has no effect on what a client may do; as in Kafka, it must be well-formed. Raises Refused."""
    scopes = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    if not all(isinstance(scope, str) and scope.strip() for scope in scopes) or len(set(scopes)) != len(scopes):
        raise Refused(f"the claim {name} of the token has an element that is empty, no text, or contained twice")
