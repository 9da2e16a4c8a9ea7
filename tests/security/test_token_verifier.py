"""Tokens: which are accepted, by RFC examples, Kafka's rules, and hostile tokens."""

import time

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.security.sasl.jwks import ALGORITHMS, parse_document, public_keys
from odradek.security.sasl.mechanism import Refused
from odradek.security.sasl.oauth_settings import KeySource, OAuthSettings
from odradek.security.sasl.oauthbearer import LONGEST_TOKEN, UnknownKey
from odradek.security.sasl.token_verifier import MOST_KEPT, TokenVerifier
from tests.identity_provider import claims, jwks, private_key, public_jwk, segment, token

SETTINGS = OAuthSettings(KeySource("file:///x", 1, 1, 1))
NOW = int(time.time())
DAYS = 10 * 86_400
"""The tests may run long after this module was imported."""
KEYS = {name: private_key(name) for name in ("RS256", "ES256", "ES384", "ES512")}
DOCUMENT = jwks(*(public_jwk(key, kid=name) for name, key in KEYS.items()))


class Clock:
    def __init__(self):
        self.ahead = 0.0

    def __call__(self):
        return time.time() + self.ahead


def verifier(document=DOCUMENT, clock=time.time, **changes):
    made = TokenVerifier(SETTINGS._replace(**changes), clock)
    made.use(public_keys(parse_document(document).keys), "")
    return made


def verified(text, of=None, **changes):
    return (of or verifier(**changes)).verify(text.encode() if isinstance(text, str) else text)


def refusal(text, of=None, **changes):
    """Why a token is refused. Nothing in it is a part of the token."""
    with pytest.raises((Refused, UnknownKey)) as caught:
        verified(text, of, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def made(**other):
    return token(KEYS["RS256"], "RS256", "RS256", **other)


def forged(header, payload=None, key=None):
    """A token with any header and payload, signed with RS256."""
    payload = segment(claims()) if payload is None else payload
    parts = f"{header if isinstance(header, str) else segment(header)}.{payload}"
    algorithm = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256)
    return f"{parts}.{segment(algorithm.sign(parts.encode(), key or KEYS['RS256']))}"


RS = {"alg": "RS256", "kid": "RS256"}


# -- examples of RFC 7515, appendix A: signed in 2011, without iat, so that a right signature shows as another refusal

PAYLOAD = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
RFC_7515 = {
    "A.2, RS256": (
        {
            "kty": "RSA",
            "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yR"
            "T-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo"
            "7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91"
            "kzk2PAcDTW9gb54h4FRWyuXpoQ",
            "e": "AQAB",
        },
        "eyJhbGciOiJSUzI1NiJ9",
        "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t"
        "1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12j"
        "zDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQ"
        "Ge77Rw",
    ),
    "A.3, ES256": (
        {
            "kty": "EC",
            "crv": "P-256",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        },
        "eyJhbGciOiJFUzI1NiJ9",
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
    ),
}


@pytest.mark.parametrize("name", RFC_7515)
def test_signatures_of_the_rfc_are_right_and_changed_ones_wrong(name):
    key, header, signature = RFC_7515[name]
    of = verifier(jwks(key))
    assert refusal(f"{header}.{PAYLOAD}.{signature}", of) == "the token has no claim iat"
    for changed in (f"{header}.{PAYLOAD[:-3]}AAA.{signature}", f"{header}.{PAYLOAD}.A{signature[1:]}"):
        assert refusal(changed, of) == "the signature of the token is wrong"


def test_the_unsecured_example_of_the_rfc_is_refused():
    assert "algorithm" in refusal(f"eyJhbGciOiJub25lIn0.{PAYLOAD}.")


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        ('{"sub": "bob", "exp": 1, "iat": 1}', "bob"),
        ('{"sub": 5}', ""),
        ('{"sub": ["bob"]}', ""),
        ("{}", ""),
        ("[]", ""),
        ("not JSON", ""),
        ('{"sub": ' + "[" * 5_000, ""),
        ('{"sub": ' + "9" * 5_000 + "}", ""),
    ],
    ids=["text", "number", "list", "no claim", "no object", "no JSON", "deep", "long number"],
)
def test_a_token_that_is_not_accepted_names_the_user_that_it_claims(payload, named):
    of = verifier(jwks(public_jwk(KEYS["RS256"])))
    stranger = private_key("RS256", "stranger")
    head, body = (segment(part.encode()) for part in ('{"alg": "RS256"}', payload))
    for text, user in ((f"{head}.{body}.AAAA", named), (token(stranger, "RS256", "x"), "alice")):
        with pytest.raises((Refused, UnknownKey)) as caught:
            of.verify(text.encode())
        assert caught.value.user == user


@pytest.mark.parametrize("text", ["", ".", "..", "a", "a.b", "a.!.c", "\x00.\xff.x"])
def test_what_is_no_token_names_nobody(text):
    with pytest.raises((Refused, UnknownKey)) as caught:
        verifier(jwks(public_jwk(KEYS["RS256"]))).verify(text.encode())
    assert caught.value.user == ""


# -- accepted --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_each_algorithm_is_accepted_and_nobody_elses_key(algorithm):
    name = "RS256" if algorithm[1] == "S" and algorithm[0] != "E" else algorithm
    ends = int(time.time()) + 60
    assert verified(token(KEYS[name], algorithm, name, exp=ends)) == ("alice", ends * 1000)
    stranger = private_key(name, "stranger")
    assert refusal(token(stranger, algorithm, name)) == "the signature of the token is wrong"


def test_a_token_without_a_key_id_is_tried_with_all_keys_of_its_algorithm_up_to_a_limit():
    keys = [private_key("ES256", str(number)) for number in range(5)]
    four, five = (jwks(*map(public_jwk, keys[:number])) for number in (4, 5))
    for key in keys[:4]:
        assert verified(token(key, "ES256", None), document=four).user == "alice"
    assert "signature" in refusal(token(keys[4], "ES256", None), document=four)
    assert "5 keys may have signed" in refusal(token(keys[0], "ES256", None), document=five)


def test_the_rules_of_claims():
    assert verified(made(sub=None, name="bob"), sub_claim="name").user == "bob"
    assert verified(made(sub="  Zoë, \u4e2d \r\n")).user == "Zoë, \u4e2d"
    for blank in "\u00a0", "\u2003", "\u3000", "\u200b", "\ufeff":  # cut off by Java's trim neither
        assert verified(made(sub=f"{blank}admin{blank}")).user == f"{blank}admin{blank}"
    assert verified(made(aud=["x", "b"]), audience=("a", "b")).user == "alice"
    assert verified(made(iss="i"), issuer="i").user == "alice"
    assert verified(made(iat=1, exp=int(time.time()) - 20)).user == "alice"  # within the skew
    ends = int(time.time()) + 600
    assert verified(made(exp=ends + 0.25)).expires_ms == ends * 1000 + 250
    assert verified(made(scope=["a", "b"], jti=7, sub2=None)).user == "alice"


# -- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "changes", "words"),
    [
        ({"exp": NOW - 3600, "iat": NOW - 7200}, {}, "has expired"),
        ({"exp": NOW - 20, "iat": NOW - 7200}, {"skew_s": 0}, "has expired"),
        ({"nbf": NOW + DAYS, "exp": NOW + 2 * DAYS}, {}, "not valid yet"),
        ({"iat": NOW + DAYS}, {}, "expires (exp) before"),
        ({"exp": None}, {}, "no claim exp"),
        ({"iat": None}, {}, "no claim iat"),
        ({"sub": None}, {}, "the claim sub"),
        ({"sub": ""}, {}, "the claim sub"),
        ({"sub": " \t"}, {}, "the claim sub"),
        ({"sub": "a\nb"}, {}, "characters that a name must not have"),
        ({"sub": "a\x00"}, {}, "characters that a name must not have"),
        ({"sub": "\ud800"}, {}, "characters that a name must not have"),
        ({"sub": "a" * 1025}, {}, "too long"),
        ({"aud": "x"}, {}, "sasl.oauthbearer.expected.audience is not set"),
        ({"aud": "x"}, {"audience": ("a",)}, "another audience"),
        ({"aud": {"a": 1}}, {"audience": ("a",)}, "another audience"),
        ({"aud": [["a"]]}, {"audience": ("a",)}, "another audience"),
        ({}, {"audience": ("a",)}, "no claim aud"),
        ({"aud": []}, {"audience": ("a",)}, "no claim aud"),
        ({"iss": "https://a/"}, {"issuer": "https://a"}, "another issuer"),
        ({"iss": ["https://a"]}, {"issuer": "https://a"}, "another issuer"),
        ({}, {"issuer": "https://a"}, "no claim iss"),
        ({"scope": ["a", 7]}, {}, "scope"),
        ({"scope": [["a"]]}, {}, "scope"),
        ({"scope": ["a", "a"]}, {}, "scope"),
        ({"scope": ""}, {}, "scope"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_claims_are_refused(other, changes, words):
    assert words in refusal(made(**other), **changes)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"7",
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b"\xff",
        b'{"sub":"alice","iat":1,"exp":1e999}',
        b'{"sub":"alice","iat":1,"exp":Infinity}',
        b'{"sub":"alice","iat":1,"exp":NaN}',
        b'{"sub":"alice","iat":1,"exp":' + b"9" * 400 + b"}",
        b'{"sub":"alice","iat":1,"exp":' + b"9" * 5000 + b"}",
        b'{"sub":"alice","iat":1,"exp":99999999999999}',
        b'{"sub":"alice","iat":1,"exp":"9999999999"}',
        b'{"sub":"alice","iat":1,"exp":true}',
        b'{"sub":"alice","iat":1,"exp":[9999999999]}',
        b'{"sub":"alice","iat":-1,"exp":9999999999}',
        b'{"sub":"alice","iat":"1","exp":9999999999}',
        b'{"sub":"alice","iat":{},"exp":9999999999}',
        b'{"sub":"alice","iat":1,"exp":9999999999,"nbf":"1"}',
        b'{"sub":"alice","iat":1,"exp":9999999999,"nbf":[]}',
        b'{"sub":["alice"],"iat":1,"exp":9999999999}',
        b'{"sub":{"x":"alice"},"iat":1,"exp":9999999999}',
        b'{"sub":7,"iat":1,"exp":9999999999}',
        b'{"sub":null,"iat":1,"exp":9999999999}',
        b"[" * 9000,
        b'{"a":' * 5000,
    ],
    ids=lambda payload: repr(payload[:60]),
)
def test_signed_payloads_of_the_wrong_form_are_refused(payload):
    refusal(forged(RS, segment(payload)))


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "None"},
        {"alg": "NONE"},
        {"alg": "HS256"},
        {"alg": "HS512"},
        {"alg": "RS1"},
        {"alg": "EdDSA"},
        {"alg": "ES256K"},
        {"alg": ""},
        {"alg": None},
        {"alg": 7},
        {"alg": ["RS256"]},
        {"alg": {"RS256": 1}},
        {"kid": "RS256"},
        {"alg": "ES256", "kid": "RS256"},
        {"alg": "RS256", "kid": "ES256"},
        {"alg": "RS256", "kid": ["RS256"]},
        {"alg": "RS256", "kid": {"$ne": ""}},
        {"alg": "RS256", "kid": 7},
        {"alg": "RS256", "kid": "x" * 1001},
        {"alg": "RS256", "kid": "../../../dev/null"},
        {"alg": "RS256", "kid": "' OR 1=1 --"},
        {"alg": "RS256", "kid": "\ud800"},
        {"alg": "RS256", "kid": ""},
        RS | {"crit": ["exp"]},
        RS | {"crit": []},
        RS | {"crit": None},
        RS | {"b64": True},
        RS | {"b64": False},
        RS | {"x": "y" * 9000},
    ],
    ids=lambda header: str(header)[:60],
)
def test_headers_that_are_not_allowed_are_refused_although_the_signature_is_right(header):
    refusal(forged(header))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"7",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 5000,
        b'{"alg":"RS256"' + b" " * 9000 + b"}",
        b'{"alg":' + b"9" * 5000 + b"}",
    ],
)
def test_headers_that_are_no_objects_are_refused(header):
    refusal(forged(segment(header)))


def test_keys_and_urls_in_the_header_are_not_used():
    stranger = private_key("RS256", "stranger")
    for more in (
        {"jwk": public_jwk(stranger)},
        {"jku": "http://127.0.0.1:1/jwks"},
        {"x5u": "http://127.0.0.1:1/x"},
        {"x5c": ["abc"]},
    ):
        assert "signature" in refusal(forged(RS | more, key=stranger))
        assert verified(forged(RS | more)).user == "alice"


def test_a_public_key_is_not_a_secret():
    """The classic confusion: HS256 with the text of the public key as the shared secret."""
    public = KEYS["RS256"].public_key()
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    for encoding, form in (
        (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo),
        (serialization.Encoding.PEM, serialization.PublicFormat.PKCS1),
    ):
        secret = public.public_bytes(encoding, form)
        for name in ("HS256", "RS256"):
            parts = f"{segment({'alg': name, 'kid': 'RS256'})}.{segment(claims())}"
            refusal(f"{parts}.{segment(algorithm.sign(parts.encode(), secret))}")


def test_empty_and_stripped_and_changed_signatures_are_refused():
    header, payload, signature = made().split(".")
    for changed in ("", "A", signature[:-4], signature + "AAAA", "A" * len(signature), segment(b"\0" * 256)):
        refusal(f"{header}.{payload}.{changed}")
    es = token(KEYS["ES256"], "ES256", "ES256").rpartition(".")[0]
    for size in (0, 1, 63, 64, 65, 96, 128):
        refusal(f"{es}.{segment(bytes(size))}")


@pytest.mark.parametrize(
    "text", ["", ".", "..", "...", "a", "a.b", "a.b.c", "a.b.c.d", "a.b.c.d.e", "é.é.é", "\0.\0.\0"]
)
def test_texts_that_are_no_tokens_are_refused(text):
    refusal(text)


def test_a_token_in_a_token_is_refused():
    nested = jwt.PyJWS().encode(made().encode(), KEYS["RS256"], "RS256", {"kid": "RS256", "cty": "JWT"})
    assert "cannot be read" in refusal(nested)


def test_the_size_of_a_token_is_bounded():
    assert verified(made(x="y" * 11_000)).user == "alice"
    assert "allowed are" in refusal("x" * (LONGEST_TOKEN + 1))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_changed_tokens_are_refused_and_nothing_else_is_raised(data):
    good = made().encode()
    position = data.draw(st.integers(0, len(good) - 1))
    changed = good[:position] + data.draw(st.binary(max_size=3)) + good[position + data.draw(st.integers(0, 3)) :]
    of = verifier()
    try:
        identity = of.verify(changed)
    except (Refused, UnknownKey):
        return
    # Only bits beyond the last byte of a base64 text may differ.
    assert identity.user == "alice" and abs(len(changed) - len(good)) <= 2


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["alg", "kid", "typ", "crit", "b64"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text(max_size=5)
            | st.sampled_from(["RS256", "none"]),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
            max_leaves=4,
        ),
    )
)
def test_any_header_is_refused_or_names_a_good_token(header):
    try:
        of = forged(segment(header))
        assert verified(of).user == "alice"
    except (Refused, UnknownKey):
        pass


# -- keys and memory -------------------------------------------------------------------------------------------------


def test_without_keys_the_reason_is_that_of_the_caller():
    of = TokenVerifier(SETTINGS, time.time)
    with pytest.raises(UnknownKey, match="not been read yet"):
        of.verify(made().encode())
    of.use((), "the provider is down")
    with pytest.raises(UnknownKey, match="the provider is down"):
        of.verify(made().encode())


def test_a_remembered_token_ends_with_its_time_and_with_its_key(monkeypatch):
    clock = Clock()
    of, text = verifier(clock=clock), made()
    checks = []
    decode = jwt.decode
    monkeypatch.setattr(jwt, "decode", lambda *args, **named: checks.append(1) or decode(*args, **named))
    assert verified(text, of) == verified(text, of)
    assert len(checks) == 1  # the second time from memory
    clock.ahead = 60 + 30 + 1
    assert refusal(text, of) == "the token has expired"
    clock.ahead = 0
    verified(text, of)
    of.use(public_keys(parse_document(jwks(public_jwk(KEYS["ES256"], kid="ES256"))).keys), "")
    with pytest.raises(UnknownKey):
        verified(text, of)


def test_the_memory_is_bounded_and_keeps_what_is_used():
    of = verifier()
    kept = made(sub="kept")
    verified(kept, of)
    for number in range(MOST_KEPT + 10):
        verified(token(KEYS["ES256"], "ES256", "ES256", jti=str(number)), of)
        verified(kept, of)
    assert len(of._accepted) == MOST_KEPT


def test_refused_tokens_are_not_remembered():
    of = verifier()
    for _ in range(3):
        refusal(made(exp=1, iat=1), of)
    assert not of._accepted
