"""PLAIN on the server, with Kafka's texts."""

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.jaas import parse
from odradek.security.sasl.mechanism import Proven, Refused
from odradek.security.sasl.plain import LONGEST_TOKEN, Plain, users_of

USERS = users_of(
    parse(
        'a.PlainLoginModule required username="x" password="y" user_alice="alice-secret" user_bob="" user_é="ü";'.replace(
            "user_é", '"user_é"'
        )
    )
)


def test_the_users_are_the_options_with_the_prefix():
    assert set(USERS) == {"alice", "bob", "é"}


@pytest.mark.parametrize("token", [b"\0alice\0alice-secret", b"alice\0alice\0alice-secret"])
def test_the_right_password(token):
    assert Plain(USERS).evaluate(token) == Proven(b"", "alice")
    assert Plain(USERS).evaluate("\0é\0ü".encode()) == Proven(b"", "é")


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0ALICE\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"bob\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0bob\0", "Authentication failed: password not specified"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (
            b"bob\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"a\0b", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"a\0b\0c\0d\0e", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_other_tokens_are_refused_with_kafkas_texts(token, text):
    with pytest.raises(Refused) as caught:
        Plain(USERS).evaluate(token)
    assert caught.value.text == text


def test_a_token_that_is_too_long_is_refused():
    with pytest.raises(Refused, match="bytes; allowed are"):
        Plain(USERS).evaluate(b"\0alice\0" + b"x" * LONGEST_TOKEN)


def test_the_comparison_is_the_same_for_a_user_who_does_not_exist(monkeypatch):
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: (compared.append((len(a), len(b))), real(a, b))[1])
    for token in (b"\0alice\0x", b"\0nobody\0x", b"\0alice\0" + b"x" * 1000):
        with pytest.raises(Refused):
            Plain(USERS).evaluate(token)
    assert compared == [(32, 32)] * 3


@given(st.binary(max_size=50))
def test_any_token_is_refused_or_proves_a_user_with_the_right_password(token):
    try:
        proven = Plain(USERS).evaluate(token)
    except Refused:
        return
    assert token.split(b"\0")[1:] in ([b"alice", b"alice-secret"], ["é".encode(), "ü".encode()])
    assert proven.user in USERS
