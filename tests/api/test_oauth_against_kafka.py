"""The same logins with OAUTHBEARER at this broker and at a real Kafka with the same key set: the responses must be equal, byte
for byte, and so must be which tokens are accepted.

Recorded differences:

- After its error, Kafka accepts another first message on the connection. At Odradek, one connection is one attempt.
- Kafka accepts a token whose payload is another valid token (cty=JWT). Odradek refuses it.
- Kafka closes the connection without a response if the scheme is not Bearer, because of an error in its error message.
- A key with a member `alg` checks only tokens of this algorithm.
- A token without a key id (kid) is tried with up to four keys; Kafka uses the first one.
"""

import time

import jwt
import pytest

from odradek.protocol.schemas import metadata, sasl_authenticate, sasl_handshake
from tests.api.test_sasl_against_kafka import Side, frame
from tests.identity_provider import claims, jwks, private_key, public_jwk, segment, token
from tests.sasl_pair import both_brokers

pytestmark = [pytest.mark.xdist_group("oauth-against-kafka"), pytest.mark.timeout(900), pytest.mark.java]

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
LISTENERS = ("OA", "AUD", "SUB")
NOW = int(time.time())
LATER = {"iat": NOW, "exp": NOW + 86400}
"""So that connections.max.reauth.ms is the lifetime of each session, the same for both brokers."""
KEYS = {
    "rsa": private_key("RS256"),
    "rsa2": private_key("RS256", "2"),
    **{name: private_key(name) for name in ("ES256", "ES384", "ES512")},
}
METADATA = frame(metadata.Request(topics=[], allow_auto_topic_creation=False), 3, 4)


def first(made, authorization="", more=""):
    return f"n,{authorization},\x01auth=Bearer {made}{more}\x01\x01".encode()


def handshake(version=1):
    return frame(sasl_handshake.Request(mechanism="OAUTHBEARER"), 17, version)


def authenticate(data, version=2):
    return frame(sasl_authenticate.Request(auth_bytes=data), 36, version)


def attempt(message, version=2):
    return [handshake(), authenticate(message, version), authenticate(b"\x01", version)]


def rsa(**other):
    return token(KEYS["rsa"], "RS256", "rsa", **(LATER | other))


def forged(header, key=None, **other):
    """A token with any header, signed with RS256 whatever it says."""
    parts = f"{segment(header)}.{segment(claims(**(LATER | other)))}"
    algorithm = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256)
    return f"{parts}.{segment(algorithm.sign(parts.encode(), key or KEYS['rsa']))}"


def signed(payload, **header):
    return jwt.PyJWS().encode(payload, KEYS["rsa"], "RS256", {"kid": "rsa"} | header)


TOKENS = {
    "good": ("OA", rsa()),
    **{
        name: ("OA", token(KEYS["rsa"], name, "rsa", **LATER)) for name in ("RS384", "RS512", "PS256", "PS384", "PS512")
    },
    **{name: ("OA", token(KEYS[name], name, name, **LATER)) for name in ("ES256", "ES384", "ES512")},
    "curve of another algorithm": ("OA", token(KEYS["ES256"], "ES256", "ES384", **LATER)),
    "none": ("OA", f"{segment({'alg': 'none'})}.{segment(claims(**LATER))}."),
    "none with a signature": ("OA", forged({"alg": "none", "kid": "rsa"})),
    "None": ("OA", forged({"alg": "None", "kid": "rsa"})),
    "HS256": ("OA", jwt.encode(claims(**LATER), b"x" * 64, "HS256", {"kid": "rsa"})),
    "a key of somebody else": ("OA", token(private_key("RS256", "else"), "RS256", "rsa", **LATER)),
    "the other key": ("OA", token(KEYS["rsa2"], "RS256", "rsa", **LATER)),
    "an unknown key id": ("OA", token(KEYS["rsa"], "RS256", "nope", **LATER)),
    "an empty key id": ("OA", token(KEYS["rsa"], "RS256", "", **LATER)),
    "critical extension": ("OA", forged({"alg": "RS256", "kid": "rsa", "crit": ["x"], "x": 1})),
    "b64": ("OA", forged({"alg": "RS256", "kid": "rsa", "b64": False, "crit": ["b64"]})),
    "no algorithm": ("OA", forged({"kid": "rsa"})),
    "a number as algorithm": ("OA", forged({"alg": 7, "kid": "rsa"})),
    "an embedded key": (
        "OA",
        forged({"alg": "RS256", "jwk": public_jwk(private_key("RS256", "else"))}, private_key("RS256", "else")),
    ),
    "no exp": ("OA", rsa(exp=None)),
    "no iat": ("OA", rsa(iat=None)),
    "no sub": ("OA", rsa(sub=None)),
    "an empty sub": ("OA", rsa(sub="")),
    "a blank sub": ("OA", rsa(sub="  ")),
    "a sub with spaces around": ("OA", rsa(sub=" alice ")),
    "expired": ("OA", rsa(exp=NOW - 3600, iat=NOW - 7200)),
    "issued in the future": ("OA", rsa(iat=NOW + 3600)),
    "issued after its end": ("OA", rsa(iat=NOW + 200000)),
    "nbf in the future": ("OA", rsa(nbf=NOW + 36000)),
    "nbf in the past": ("OA", rsa(nbf=NOW - 10)),
    "an audience, none expected": ("OA", rsa(aud="kafka")),
    "the audience": ("AUD", rsa(aud="kafka", iss="https://issuer")),
    "one of the audiences": ("AUD", rsa(aud=["x", "two"], iss="https://issuer")),
    "another audience": ("AUD", rsa(aud=["x", "y"], iss="https://issuer")),
    "no audience": ("AUD", rsa(iss="https://issuer")),
    "another issuer": ("AUD", rsa(aud="kafka", iss="https://issuer/")),
    "no issuer": ("AUD", rsa(aud="kafka")),
    "another claim": ("SUB", rsa(sub=None, preferred_username="alice")),
    "the other claim missing": ("SUB", rsa()),
    "scope text": ("OA", rsa(scope="a b")),
    "scope list": ("OA", rsa(scope=["a", "b"])),
    "scope twice": ("OA", rsa(scope=["a", "a"])),
    "scope empty": ("OA", rsa(scope="")),
    "scope number": ("OA", rsa(scope=7)),
    "two parts": ("OA", "a.b"),
    "four parts": ("OA", rsa() + ".x"),
    "no signature": ("OA", rsa().rpartition(".")[0] + "."),
    "garbage": ("OA", "xyz"),
    "five parts": ("OA", "a.b.c.d.e"),
    "a list as payload": ("OA", signed(b"[1]")),
    "no UTF-8": ("OA", signed(b'{"sub":"\xff"}')),
}
MESSAGES = {
    "authorization id": first(rsa(), "a=alice"),
    "another authorization id": first(rsa(), "a=bob"),
    "an extension": first(rsa(), more="\x01traceId=12 3"),
    "lower case": first(rsa()).replace(b"Bearer", b"bearer"),
    "spaces": first(rsa()).replace(b"Bearer ", b"Bearer   "),
    "no token": b"n,,\x01auth=Bearer \x01\x01",
    "no auth": b"n,,\x01host=x\x01\x01",
    "no pairs": b"n,,\x01\x01",
    "one end": first(rsa())[:-1],
    "three ends": first(rsa()) + b"\x01",
    "channel binding": first(rsa()).replace(b"n,", b"y,", 1),
    "no header": first(rsa())[3:],
    "an extension with digits": first(rsa(), more="\x01trace1=x"),
    "an empty extension": first(rsa(), more="\x01trace="),
    "an extension that is no ASCII": first(rsa()).replace(b"\x01\x01", b"\x01trace=\xc3\xa9\x01\x01"),
    "an extension without a value": first(rsa(), more="\x01trace"),
    "two tokens": first(rsa(), more=f"\x01auth=Bearer {rsa(sub='bob')}"),
    "not UTF-8": first(rsa()).replace(b"n,,", b"n,a=\xff,"),
    "the dummy first": b"\x01",
    "empty": b"",
    "plain": b"\0alice\0alice-secret",
}


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    directory = tmp_path_factory.mktemp("keys")
    (directory / "jwks.json").write_bytes(jwks(*(public_jwk(key, kid=name) for name, key in KEYS.items())))
    sasl = {"sasl.oauthbearer.jwks.endpoint.url": f"file://{directory}/jwks.json"}
    for name in LISTENERS:
        prefix = f"listener.name.{name.lower()}"
        sasl |= {
            f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}.oauthbearer.sasl.jaas.config": MODULE,
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": HANDLER,
            f"{prefix}.connections.max.reauth.ms": "3600000",
        }
    sasl |= {
        "listener.name.aud.oauthbearer.sasl.oauthbearer.expected.audience": "kafka,two",
        "listener.name.aud.oauthbearer.sasl.oauthbearer.expected.issuer": "https://issuer",
        "listener.name.sub.oauthbearer.sasl.oauthbearer.sub.claim.name": "preferred_username",
        "connection.failed.authentication.delay.ms": "0",
    }
    allowed = ("urls", f"file://{directory}/jwks.json"), ("files", f"{directory}/jwks.json")
    options = " ".join(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{name}={value}" for name, value in allowed)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", options)
        with both_brokers(tmp_path_factory, [*LISTENERS], sasl) as (ours, theirs):
            yield Side(ours), Side(theirs)


def both(sides, listener, frames):
    return [side.said(listener, frames) for side in sides]


@pytest.mark.parametrize("name", TOKENS)
def test_a_token_is_accepted_or_refused_as_by_kafka(sides, name):
    listener, made = TOKENS[name]
    ours, theirs = both(sides, listener, attempt(first(made)))
    assert ours == theirs


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("version", [0, 2])
def test_a_message_is_answered_as_by_kafka(sides, name, version):
    ours, theirs = both(sides, "OA", [handshake(), authenticate(MESSAGES[name], version)])
    assert ours == theirs


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_failure_ends_as_in_kafka(sides, version):
    ours, theirs = both(sides, "OA", attempt(first("xyz"), version))
    assert ours == theirs
    assert b'{"status":"invalid_token"}' in ours[1] and b'{"status":"invalid_token"}' in ours[2]


@pytest.mark.parametrize("messages", [[first(rsa())], [first("xyz"), b"\x01"]])
def test_tokens_without_requests_are_answered_as_by_kafka(sides, messages):
    ours, theirs = both(sides, "OA", [handshake(0), *messages])
    assert ours == theirs


def test_a_session_ends_with_its_token_as_in_kafka(sides):
    made, lifetimes = rsa(exp=int(time.time()) + 1800), []
    for side in sides:
        with side.wire("OA") as wire:
            assert wire.handshake("OAUTHBEARER").error_code == 0
            lifetimes.append(wire.authenticate(first(made)).session_lifetime_ms)
    assert all(0 < lifetime <= 1_800_000 for lifetime in lifetimes)


def test_a_renewal_as_another_user_is_answered_as_by_kafka(sides):
    frames = [handshake(), authenticate(first(rsa())), handshake(), authenticate(first(rsa(sub="bob")))]
    ours, theirs = both(sides, "OA", frames)
    assert ours == theirs
