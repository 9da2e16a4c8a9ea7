"""Key sets: which keys of a document are used."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from odradek.security.sasl.jwks import LARGEST_DOCUMENT, MOST_KEYS, JwksError, parse_document, public_keys
from tests.identity_provider import jwks, private_key, public_jwk, segment

RSA = public_jwk(private_key("RS256"), kid="r")
EC = public_jwk(private_key("ES256"), kid="e")


def reason(jwk):
    """Why a key is left out; it stands beside a good one."""
    found = parse_document(jwks(jwk, RSA))
    assert len(found.keys) == 1 and len(found.left_out) == 1
    return found.left_out[0]


def number(value):
    return segment(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def test_usable_keys_are_kept_with_public_members_only():
    found = parse_document(jwks(RSA | {"x5c": ["abc"], "use": "sig", "key_ops": ["verify"]}, EC))
    assert [set(key) for key in found.keys] == [{"kty", "n", "e", "kid"}, {"kty", "crv", "x", "y", "kid"}]
    rsa_key, ec_key = public_keys(found.keys)
    assert rsa_key.algorithms == {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"} and rsa_key.key_id == "r"
    assert ec_key.algorithms == {"ES256"}


def test_a_key_for_one_algorithm_is_for_this_one_only():
    (key,) = public_keys(parse_document(jwks(RSA | {"alg": "PS256"})).keys)
    assert key.algorithms == {"PS256"}


def test_private_and_symmetric_keys_are_never_kept():
    private = json.loads(RSAAlgorithm.to_jwk(private_key("RS256")))
    assert "private key" in reason(private)
    private_ec = json.loads(ECAlgorithm.to_jwk(private_key("ES256")))
    assert "private key" in reason(private_ec)
    assert "symmetric" in reason({"kty": "oct", "k": "c2VjcmV0", "kid": "r"})
    found = parse_document(jwks(private, RSA))
    assert not {"d", "p", "q", "dp", "dq", "qi", "k"} & set(found.keys[0])


@pytest.mark.parametrize(
    ("jwk", "words"),
    [
        (7, "not a JSON object"),
        ({}, "key type"),
        ({"kty": ["RSA"]}, "key type"),
        ({"kty": "RSA"}, "cannot be read"),
        ({"kty": "RSA", "n": "!", "e": "AQAB"}, ""),
        ({"kty": "RSA", "n": 7, "e": "AQAB"}, "no text"),
        ({"kty": "RSA", "n": "A" * 5000, "e": "AQAB"}, "too long"),
        (RSA | {"use": "enc"}, "use"),
        (RSA | {"key_ops": ["sign"]}, "key_ops"),
        (RSA | {"key_ops": "verify"}, "key_ops"),
        (RSA | {"alg": "HS256"}, "alg"),
        (RSA | {"alg": "ES256"}, "alg"),
        (RSA | {"alg": "none"}, "alg"),
        (RSA | {"kid": 7}, "no text"),
        (RSA | {"kid": "x" * 1001}, "id"),
        (EC | {"x": EC["y"], "y": EC["x"]}, "cannot be read"),
        (EC | {"crv": "P-384"}, "cannot be read"),
        (EC | {"crv": "P-999"}, "cannot be read"),
    ],
    ids=lambda value: "" if not isinstance(value, str) else None,
)
def test_unusable_keys_are_left_out_with_a_reason(jwk, words):
    assert words in reason(jwk)


def test_curves_and_sizes_that_are_not_allowed_are_left_out():
    assert "1024 bits" in reason(public_jwk(rsa.generate_private_key(65537, 1024)))
    assert "curve" in reason(public_jwk(ec.generate_private_key(ec.SECP256K1())))
    ed = json.loads(OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key()))
    assert "key type" in reason(ed)
    modulus = private_key("RS256").public_key().public_numbers().n
    huge = (1 << 9000) + 1
    assert "bits" in reason({"kty": "RSA", "n": number(huge)[:1400], "e": "AQAB"})
    assert "exponent" in reason({"kty": "RSA", "n": number(modulus), "e": number(modulus - 2)})


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", 'list "keys"'),
        (b"{}", 'list "keys"'),
        (b'{"keys":{}}', 'list "keys"'),
        (b'{"keys":[]}', "no usable key"),
        (b"<html>", "not JSON"),
        (jwks({"kty": "oct", "k": "x", "kid": "\x1b\n"}), r"no usable key: key 1 ('\x1b\n') is a symmetric key"),
        (jwks(*[RSA] * (MOST_KEYS + 1)), "101 keys"),
        (b" " * (LARGEST_DOCUMENT + 1), "bytes"),
    ],
    ids=lambda value: "" if not isinstance(value, str) else None,
)
def test_documents_without_a_usable_key_are_refused(document, words):
    with pytest.raises(JwksError) as caught:
        parse_document(document)
    assert words in str(caught.value) and "\n" not in str(caught.value) and "\x1b" not in str(caught.value)
