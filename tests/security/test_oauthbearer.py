"""OAUTHBEARER without I/O: messages, the server's states, and with them the client's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import sasl_authenticate, sasl_handshake
from odradek.security.sasl.client import LoginError, TokenCredentials, login
from odradek.security.sasl.exchange import Ask, Done, Exchange, Failed, Former, Respond
from odradek.security.sasl.mechanism import Challenge, KeysQuestion, Proven, Refused
from odradek.security.sasl.oauthbearer import (
    LONGEST_MESSAGE,
    LONGEST_TOKEN,
    MOST_PAIRS,
    Identity,
    OAuthBearer,
    UnknownKey,
    parse_client_first,
)
from tests.api.test_sasl_against_kafka import frame

NOW_MS = 1_000_000
ALICE = Identity("alice", NOW_MS + 60_000)


def accept(token):
    if token == b"unknown":
        raise UnknownKey("no such key")
    if token != b"good":
        raise Refused("a bad token")
    return ALICE


def message(token="good", header="n,,", more=""):
    return f"{header}\x01auth=Bearer {token}\x01{more}\x01".encode()


# -- messages --------------------------------------------------------------------------------------------------------


def test_a_message_is_parsed():
    first = parse_client_first(b"n,a=al=2Cice=3D,\x01auth=bEARER  a.b-_~+/c==\x01traceId=x y\tz\x01host=h\x01\x01")
    assert first == ("al,ice=", b"a.b-_~+/c==", {"traceId": "x y\tz", "host": "h"})
    assert "a.b" not in repr(first)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01auth=Bearer x",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer x\x01\x01",
        b"n,a=,\x01auth=Bearer x\x01\x01",
        b"n,a=b=2D,\x01auth=Bearer x\x01\x01",
        b"n,a=b,c,\x01auth=Bearer x\x01\x01",
        b"n,,x\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer x=y\x01\x01",
        b"n,,\x01auth=Bearer x y\x01\x01",
        b"n,,\x01auth=Bearer x\n\x01\x01",
        b"n,,\x01auth=\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01Auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x\x01a1=b\x01\x01",
        b"n,,\x01auth=Bearer x\x01a=\x01\x01",
        b"n,,\x01auth=Bearer x\x01=b\x01\x01",
        b"n,,\x01auth=Bearer x\x01a=b\x7f\x01\x01",
        b"n,,\x01auth=Bearer x\x01a=\xff\x01\x01",
        b"n,,\x01auth=Bearer x\x01\x01\x01",
        b"n,,\x01\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x\x01\x01rest",
        b"n,,\x01" + b"a=b\x01" * MOST_PAIRS + b"auth=Bearer x\x01\x01",
        message("x" * (LONGEST_TOKEN + 1)),
        message() + b"x" * LONGEST_MESSAGE,
    ],
    ids=lambda data: repr(data[:40]),
)
def test_a_malformed_message_is_refused(data):
    with pytest.raises(Refused) as caught:
        parse_client_first(data)
    assert caught.value.text is None and "Bearer x" not in caught.value.reason


def test_the_limits_can_be_reached():
    assert len(parse_client_first(message("x" * LONGEST_TOKEN)).token) == LONGEST_TOKEN
    names = [f"{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(MOST_PAIRS - 1)]
    assert (
        len(parse_client_first(message(more="".join(f"{name}=x\x01" for name in names))).extensions) == MOST_PAIRS - 1
    )


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda rest: b"n,,\x01auth=Bearer " + rest))
def test_any_bytes_are_a_message_or_refused(data):
    try:
        parse_client_first(data)
    except Refused:
        pass


def test_a_message_of_many_separators_takes_no_long_time():
    for data in (
        b"n,,\x01" + b"\x01" * 60_000,
        b"n,a=" + b"=2C" * 20_000,
        b"n,,\x01auth=Bearer " + b"a" * 60_000 + b"!",
    ):
        with pytest.raises(Refused):
            parse_client_first(data)


# -- the server's states ---------------------------------------------------------------------------------------------


def test_a_good_token_is_proven_at_once():
    assert OAuthBearer(accept).evaluate(message()) == Proven(b"", "alice", ALICE.expires_ms)


def test_the_authorization_id_must_be_the_principal():
    assert isinstance(OAuthBearer(accept).evaluate(message(header="n,a=alice,")), Proven)
    with pytest.raises(Refused) as caught:
        OAuthBearer(accept).evaluate(message(header="n,a=bob,"))
    assert "authorization id (bob)" in caught.value.text


def test_a_bad_token_gets_the_error_and_the_dummy_ends_the_login():
    mechanism = OAuthBearer(accept)
    assert mechanism.evaluate(message("bad")) == Challenge(b'{"status":"invalid_token"}', "a bad token")
    with pytest.raises(Refused) as caught:
        mechanism.evaluate(b"\x01")
    assert (caught.value.reason, caught.value.text) == ("a bad token", '{"status":"invalid_token"}')


@pytest.mark.parametrize("second", [b"", b"\x01\x01", message(), b"x"])
def test_after_the_error_nothing_but_a_failure_follows_even_with_a_good_token(second):
    mechanism = OAuthBearer(accept)
    mechanism.evaluate(message("bad"))
    with pytest.raises(Refused) as caught:
        mechanism.evaluate(second)
    assert caught.value.text is None


def test_a_token_of_an_unknown_key_asks_for_keys_once():
    mechanism = OAuthBearer(accept)
    assert mechanism.evaluate(message("unknown")) == KeysQuestion()
    assert mechanism.resumed() == Challenge(b'{"status":"invalid_token"}', "no such key")
    with pytest.raises(Refused, match="no such key"):
        mechanism.evaluate(b"\x01")


def test_a_token_of_a_key_that_was_found_is_proven():
    found = []

    def verify(token):
        if not found:
            raise UnknownKey("no such key")
        return ALICE

    mechanism = OAuthBearer(verify)
    assert mechanism.evaluate(message()) == KeysQuestion()
    found.append(1)
    assert isinstance(mechanism.resumed(), Proven)


def test_a_refusal_names_the_user_that_the_token_claims():
    def verify(token):
        error = UnknownKey("no such key")
        error.user = "bob"
        raise error

    mechanism = OAuthBearer(verify)
    mechanism.evaluate(message())
    assert mechanism.resumed() == Challenge(b'{"status":"invalid_token"}', "no such key", "bob")
    with pytest.raises(Refused) as caught:
        mechanism.evaluate(b"\x01")
    assert caught.value.user == "bob"
    with pytest.raises(Refused) as caught:
        OAuthBearer(accept).evaluate(message(header="n,a=carol,"))
    assert caught.value.user == "alice"


# -- in the exchange -------------------------------------------------------------------------------------------------


def exchange(lifetime_ms=0, former=None, verify=accept, now_ms=NOW_MS):
    made = Exchange(["OAUTHBEARER"], lambda _: OAuthBearer(verify), lambda _: lifetime_ms, former, lambda: now_ms)
    made.frame(frame(sasl_handshake.Request(mechanism="OAUTHBEARER"), 17, 1))
    return made


def authenticate(data):
    return frame(sasl_authenticate.Request(auth_bytes=data), 36, 2)


@pytest.mark.parametrize(
    ("configured", "now_ms", "lifetime_ms"),
    [
        (0, NOW_MS, 60_000),
        (10_000, NOW_MS, 10_000),
        (100_000, NOW_MS, 60_000),
        (0, ALICE.expires_ms + 5, 1),  # within the clock skew: not a session without an end
        (10_000, ALICE.expires_ms, 1),
    ],
)
def test_the_session_ends_with_the_token_or_by_the_configuration(configured, now_ms, lifetime_ms):
    done = exchange(configured, now_ms=now_ms).frame(authenticate(message()))
    assert isinstance(done, Done) and done.lifetime_ms == lifetime_ms and done.user == "alice"


def test_a_renewal_must_be_of_the_same_user():
    former = Former("alice", "OAUTHBEARER")
    assert isinstance(exchange(former=former).frame(authenticate(message())), Done)
    failed = exchange(former=Former("bob", "OAUTHBEARER")).frame(authenticate(message()))
    assert isinstance(failed, Failed) and b"Cannot change principals" in failed.data


def test_the_exchange_waits_for_keys():
    waiting = exchange()
    asked = waiting.frame(authenticate(message("unknown")))
    assert asked == Ask(KeysQuestion())
    assert isinstance(waiting.resumed(), Respond)
    failed = waiting.frame(authenticate(b"\x01"))
    assert isinstance(failed, Failed) and failed.reason == "no such key"


def conversation(credentials, verify=accept):
    """The client's part of a login with the server's, in memory."""
    server = Exchange(["OAUTHBEARER"], lambda _: OAuthBearer(verify), lambda _: 0, None, lambda: NOW_MS)
    client = login(credentials)
    ask = next(client)
    while True:
        action = server.frame(frame(ask.request, ask.api.key, ask.api.max_version))
        response = (
            sasl_handshake.Response(error_code=0, mechanisms=["OAUTHBEARER"])
            if ask.api.key == 17
            else _response_of(action)
        )
        ask = client.send(response)


def _response_of(action):
    if isinstance(action, Done):
        return sasl_authenticate.Response(auth_bytes=b"", session_lifetime_ms=action.lifetime_ms)
    if isinstance(action, Respond):
        return sasl_authenticate.Response(auth_bytes=b'{"status":"invalid_token"}')
    return sasl_authenticate.Response(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no", auth_bytes=b""
    )


def test_the_client_and_the_server_understand_each_other():
    with pytest.raises(StopIteration) as ended:
        conversation(TokenCredentials(lambda: "good", {"traceId": "1"}))
    assert ended.value.value == 60_000
    with pytest.raises(LoginError, match="SASL_AUTHENTICATION_FAILED"):
        conversation(TokenCredentials(lambda: "bad"))


def test_the_client_refuses_a_broker_that_continues_after_its_error():
    client = login(TokenCredentials(lambda: "x"))
    next(client)
    client.send(sasl_handshake.Response(error_code=0))
    dummy = client.send(sasl_authenticate.Response(auth_bytes=b"{\x1b[31m}"))
    assert bytes(dummy.request.auth_bytes) == b"\x01"
    with pytest.raises(LoginError, match=r"does not accept the token: '\{\\x1b\[31m\}'"):
        client.send(sasl_authenticate.Response(auth_bytes=b""))


def test_credentials_show_no_token():
    assert "secret" not in repr(TokenCredentials(lambda: "secret", {"a": "secret"}))
