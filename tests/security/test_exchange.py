"""The exchange: whatever a client sends before it has proven who it is, nothing but the login is processed."""

import struct

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from odradek.protocol import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas import metadata, sasl_authenticate, sasl_handshake
from odradek.protocol.schemas.header import response_header_version
from odradek.security.sasl.client import Credentials, LoginError, login
from odradek.security.sasl.exchange import TRANSITIONS, Ask, Done, Exchange, Failed, Former, Respond, State, Versions
from odradek.security.sasl.plain import Plain, digest_of
from odradek.security.sasl.scram import Scram
from odradek.security.sasl.scram_credential import BY_NAME, SHA_256, credential_of, made_up, salted_password
from tests.sasl import GOOD, frame
from tests.sasl import authenticate_frame as authenticate
from tests.sasl import handshake_frame as handshake
from tests.sasl import versions_frame as versions

USERS = {"alice": digest_of(b"alice-secret")}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LIFETIME_MS = 60_000
NOW_MS = 1_700_000_000_000


def exchange(former=None, mechanisms=MECHANISMS, lifetimes=None):
    def make(name):
        return Scram(BY_NAME[name]) if name in BY_NAME else Plain(USERS)

    lifetimes = {"PLAIN": LIFETIME_MS} if lifetimes is None else lifetimes
    return Exchange(mechanisms, make, lambda name: lifetimes.get(name, 0), former, lambda: NOW_MS)


def credential(mechanism, user):
    if user != "alice":
        return made_up(mechanism, user, b"secret")
    salt = b"s" * 32
    return credential_of(mechanism, salted_password(mechanism, b"alice-secret", salt, 4096), salt, 4096)


CREDENTIALS = {(name, "alice"): credential(BY_NAME[name], "alice") for name in BY_NAME}


METADATA = frame(metadata.Request(topics=[]), 3, 1)


def answer(data, key, version):
    (correlation_id,) = struct.unpack_from(">i", data)
    assert correlation_id == 7
    head = 4 + (1 if response_header_version(key, version) else 0)
    response, end = decode(by_key(key).response, version, data, head)
    assert end == len(data)
    return response


# -- the ways to a login ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_in_requests(version):
    one = exchange()
    assert one.frame(versions()) == Versions()
    one.versions_sent(0)
    chosen = one.frame(handshake())
    assert isinstance(chosen, Respond) and answer(chosen.data, 17, 1).mechanisms == list(MECHANISMS)
    assert not one.raw
    done = one.frame(authenticate(version=version))
    assert isinstance(done, Done) and (done.user, done.mechanism, done.lifetime_ms) == ("alice", "PLAIN", LIFETIME_MS)
    response = answer(done.data, 36, version)
    assert (response.error_code, response.auth_bytes) == (0, b"")
    assert response.session_lifetime_ms == (LIFETIME_MS if version else 0)


def test_a_login_with_tokens_alone():
    one = exchange()
    assert isinstance(one.frame(handshake(version=0)), Respond) and one.raw
    assert one.frame(GOOD) == Done(b"", "alice", "PLAIN", LIFETIME_MS)


def test_a_client_may_repeat_api_versions_after_an_error_only():
    one = exchange()
    assert one.frame(versions()) == Versions()
    one.versions_sent(ErrorCode.UNSUPPORTED_VERSION)
    assert one.frame(versions()) == Versions()
    one.versions_sent(0)
    assert isinstance(one.frame(versions()), Failed)


# -- failures --------------------------------------------------------------------------------------------------------


def test_an_unknown_mechanism_gets_the_list_of_enabled_ones():
    failed = exchange().frame(handshake("GSSAPI"))
    response = answer(failed.data, 17, 1)
    assert (response.error_code, response.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, list(MECHANISMS))


@pytest.mark.parametrize(
    ("frames", "key", "code"),
    [
        ([METADATA], None, None),
        ([authenticate()], None, None),
        ([handshake(), METADATA], None, None),
        ([handshake(), handshake()], 17, ErrorCode.ILLEGAL_SASL_STATE),
        ([handshake(), versions()], 18, ErrorCode.ILLEGAL_SASL_STATE),
        ([b""], None, None),
        ([b"\0\x11"], None, None),
        ([b"\xff" * 20], None, None),
        ([handshake()[:-1]], None, None),
        ([handshake(), b""], None, None),
        ([handshake(), authenticate()[:-1]], None, None),
        ([handshake(version=0), b""], None, None),
    ],
)
def test_other_frames_end_the_login(frames, key, code):
    one = exchange()
    for data in frames:
        action = one.frame(data)
    assert isinstance(action, Failed) and one.state is State.ENDED
    if key is None:
        assert action.data is None
    else:
        version = 1 if key == 17 else 0
        assert (answer(action.data, key, version).error_code, action.code) == (code, code)


def test_a_wrong_password_gets_kafkas_text_and_a_token_alone_gets_nothing():
    one = exchange()
    one.frame(handshake())
    response = answer(one.frame(authenticate(b"\0alice\0wrong")).data, 36, 2)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == "Authentication failed: Invalid username or password"
    one = exchange()
    one.frame(handshake(version=0))
    assert one.frame(b"\0alice\0wrong").data is None


def test_scram_fails_with_the_same_text_for_everybody():
    texts = set()
    for user in ("alice", "nobody"):
        with pytest.raises(LoginError) as caught:
            log_in(exchange(), Credentials("SCRAM-SHA-256", user, "wrong"))
        texts.add(str(caught.value))
    assert len(texts) == 1 and texts.pop().endswith(
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )


@pytest.mark.parametrize("renewal", [False, True])
@pytest.mark.parametrize(
    ("mechanism", "by_token"), [*((name, False) for name in MECHANISMS), *((name, True) for name in BY_NAME)]
)
def test_only_the_log_learns_whether_the_user_exists(mechanism, by_token, renewal):
    failures = []
    for user in ("id" if by_token else "alice", "nobody"):
        actions = []
        with pytest.raises(LoginError):
            former = Former(user, mechanism) if renewal else None
            log_in(
                exchange(former), Credentials(mechanism, user, "wrong", by_token=by_token), NOW_MS + 1, actions=actions
            )
        assert [type(action) for action in actions[:-1]] == [Respond] * (1 if mechanism == "PLAIN" else 2)
        failures.append(actions[-1])
    known, unknown = failures
    assert known.detail != unknown.detail and "wrong" in known.detail and "there is no such" in unknown.detail
    assert known._replace(detail="", user="") == unknown._replace(detail="", user="")


def test_without_an_answer_of_the_coordinator_the_connection_closes_without_a_response():
    one = exchange()
    one.frame(handshake("SCRAM-SHA-256"))
    assert isinstance(one.frame(authenticate(b"n,,n=alice,r=x")), Ask)
    assert one.unanswered("it is away") == Failed(None, "it is away", "SCRAM-SHA-256", user="alice")


def test_a_failed_login_names_the_user_that_the_client_named():
    one = exchange()
    one.frame(handshake("PLAIN"))
    failed = one.frame(authenticate(b"\0alice\0wrong"))
    assert (failed.user, failed.reason) == ("alice", "Authentication failed: Invalid username or password")


# -- renewals --------------------------------------------------------------------------------------------------------

FORMER = Former("alice", "PLAIN")


def test_a_renewal_begins_with_the_handshake():
    assert isinstance(exchange(FORMER).frame(versions()), Failed)
    one = exchange(FORMER)
    assert isinstance(one.frame(handshake()), Respond)
    assert isinstance(one.frame(authenticate()), Done)


def test_another_mechanism_or_user_cannot_renew():
    one = exchange(FORMER)
    assert isinstance(one.frame(handshake("SCRAM-SHA-256")), Respond)
    failed = one.frame(authenticate(b"n,,n=alice,r=x"))
    assert failed.data is None and "is not supported for re-authentication of mechanism 'PLAIN'" in failed.reason
    one = exchange(Former("bob", "PLAIN"))
    one.frame(handshake())
    response = answer(one.frame(authenticate()).data, 36, 2)
    assert response.error_message == "Cannot change principals during re-authentication from User.bob: User.alice"
    one = exchange(Former("alice", "SCRAM-SHA-256"))
    with pytest.raises(LoginError, match="Authentication failed during re-authentication due to"):
        log_in(one, Credentials("SCRAM-SHA-256", "alice", "wrong"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_nobody_logs_in_under_the_name_of_clients_without_a_login(mechanism):
    def make(name):
        return Scram(BY_NAME[name]) if name in BY_NAME else Plain({"ANONYMOUS": digest_of(b"alice-secret")})

    one = Exchange(MECHANISMS, make, lambda _: 0, None, lambda: NOW_MS)
    credentials = Credentials(mechanism, "ANONYMOUS", "alice-secret")
    with pytest.raises(LoginError, match="The user name ANONYMOUS is that of clients without a login; choose another"):
        log_in(one, credentials, users={(name, "ANONYMOUS"): CREDENTIALS[name, "alice"] for name in BY_NAME})


def test_a_token_of_the_name_of_clients_without_a_login_is_refused():
    with pytest.raises(LoginError, match="The user name ANONYMOUS is that of clients"):
        log_in(
            exchange(), Credentials("SCRAM-SHA-256", "id", "alice-secret", by_token=True), NOW_MS + 9, owner="ANONYMOUS"
        )


# -- with the client -------------------------------------------------------------------------------------------------


def log_in(one, credentials, expires_ms=0, owner="bob", users=CREDENTIALS, actions=None):
    """A login of our client at our server. Returns the last action and the lifetime.

    :param expires_ms: of the token with the id "id", and `owner`. :param actions: receives all actions."""
    client = login(credentials)
    ask = next(client)
    action = None
    while True:
        version = ask.api.max_version
        action = one.frame(frame(ask.request, ask.api.key, version))
        if isinstance(action, Ask):
            name, user, by_token = action.question
            if by_token and user == "id":
                action = one.answered(CREDENTIALS[name, "alice"]._replace(owner=owner, expires_ms=expires_ms))
            else:
                action = one.answered(users.get((name, user)) or credential(BY_NAME[name], user))
        assert action.data is not None, action
        if actions is not None:
            actions.append(action)
        try:
            ask = client.send(answer(action.data, ask.api.key, version))
        except StopIteration as end:
            return action, end.value


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client_logs_in(mechanism):
    action, lifetime_ms = log_in(exchange(), Credentials(mechanism, "alice", "alice-secret"))
    assert isinstance(action, Done) and action.user == "alice"
    assert lifetime_ms == action.lifetime_ms


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize(
    ("of_listener", "left", "expected"), [(0, 5000, 5000), (3000, 5000, 3000), (9000, 5000, 5000), (0, 1, 1)]
)
def test_the_session_of_a_token_ends_with_the_token(name, of_listener, left, expected):
    one = exchange(lifetimes={name: of_listener})
    action, lifetime_ms = log_in(one, Credentials(name, "id", "alice-secret", by_token=True), NOW_MS + left)
    assert action == Done(action.data, "bob", name, expected, by_token=True) and lifetime_ms == expected
    shorter = one.confirmed(NOW_MS + 2)  # the token was shortened during the login
    assert shorter.lifetime_ms == min(2, of_listener or 2)
    assert answer(shorter.data, 36, 2).session_lifetime_ms == shorter.lifetime_ms
    assert isinstance(one.confirmed(NOW_MS), Failed)


@pytest.mark.parametrize("left", [0, -1])
def test_a_token_that_has_expired_is_refused(left):
    with pytest.raises(LoginError, match="due to invalid credentials"):
        log_in(exchange(), Credentials("SCRAM-SHA-256", "id", "alice-secret", by_token=True), NOW_MS + left)


@pytest.mark.parametrize(
    ("credentials", "named"),
    [
        (Credentials("SCRAM-SHA-256", "alice", "wrong"), "alice"),
        (Credentials("SCRAM-SHA-256", "nobody", "wrong"), "nobody"),
        (Credentials("SCRAM-SHA-256", "id", "wrong", by_token=True), "delegation token id"),
        (Credentials("PLAIN", "alice", "wrong"), "alice"),
        (Credentials("PLAIN", "nobody", "wrong"), "nobody"),
    ],
)
def test_a_failed_login_names_the_user_or_token_that_was_tried(credentials, named):
    one, failed = exchange(), []
    whole = one._failure

    def failure(refusal):
        failed.append(whole(refusal))
        return failed[-1]

    one._failure = failure
    with pytest.raises(LoginError):
        log_in(one, credentials, NOW_MS + 9)
    assert [action.user for action in failed] == [named]


def test_a_token_of_another_owner_cannot_renew_a_login():
    one = exchange(Former("alice", "SCRAM-SHA-256"))
    with pytest.raises(LoginError, match="Cannot change principals during re-authentication"):
        log_in(one, Credentials("SCRAM-SHA-256", "id", "alice-secret", by_token=True), NOW_MS + 9)


def test_our_client_reports_the_enabled_mechanisms():
    with pytest.raises(LoginError, match=r"but these: PLAIN$"):
        log_in(exchange(mechanisms=("PLAIN",)), Credentials("SCRAM-SHA-512", "alice", "x"))
    with pytest.raises(ValueError, match="must be one of PLAIN"):
        next(login(Credentials("GSSAPI", "alice", "x")))


def scram_server(server_first, server_last=b"v=AAAA"):
    """Our client with a server that sends these tokens."""
    client = login(Credentials("SCRAM-SHA-256", "alice", "alice-secret"), lambda: "nonce")
    next(client)
    client.send(sasl_handshake.Response(error_code=0, mechanisms=[]))
    client.send(sasl_authenticate.Response(error_code=0, auth_bytes=server_first))
    client.send(sasl_authenticate.Response(error_code=0, auth_bytes=server_last))


@pytest.mark.parametrize(
    ("server_first", "words"),
    [
        (b"r=nonce2,s=AAAA,i=4095", "demands 4095 SCRAM iterations"),
        (b"r=nonce2,s=AAAA,i=99999999", "demands 99999999 SCRAM iterations"),
        (b"r=other,s=AAAA,i=4096", "another nonce"),
        (b"r=nonce,s=AAAA,i=4096", "another nonce"),
        (b"r=nonce2,s=!,i=4096", "malformed"),
        (b"e=other-error", "malformed"),
        (b"", "malformed"),
        (b"r=nonce2,s=AAAA,i=4096", "may be another server"),
    ],
)
def test_our_client_does_not_believe_a_false_server(server_first, words):
    with pytest.raises(LoginError, match=words):
        scram_server(server_first)


def test_the_clients_credentials_are_not_shown():
    one = Credentials("PLAIN", "alice", "alice-secret")
    assert "alice-secret" not in f"{one} {one!r} {[one]}"


# -- any order of frames ---------------------------------------------------------------------------------------------

CORRECT = [handshake(), handshake(version=0), authenticate(), GOOD]
OTHERS = [
    versions(),
    versions(3),
    handshake("SCRAM-SHA-256"),
    handshake("SCRAM-SHA-512", 0),
    handshake("GSSAPI"),
    METADATA,
    b"",
    b"\0",
    authenticate(b"\0alice\0wrong"),
    authenticate(b"n,,n=alice,r=x"),
    authenticate(version=0),
    b"n,,n=alice,r=x",
    frame(metadata.Request(topics=None), 3, 12),
    struct.pack(">hhih", 0, 9, 7, -1),
    struct.pack(">hhih", 1, 13, 7, -1) + b"\0" * 40,
]
frames = st.sampled_from(CORRECT + OTHERS) | st.binary(max_size=40)


@given(st.lists(frames, max_size=8), st.booleans(), st.sampled_from([None, FORMER]))
def test_no_order_of_frames_executes_a_request_before_the_login(sequence, versions_fail, former):
    """A model of the only ways: [ApiVersions], SaslHandshake of an enabled mechanism, and then a proof."""
    one = exchange(former)
    handshaken = False
    for data in sequence:
        before = one.state
        action = one.frame(data)
        assert one.state is before or one.state in TRANSITIONS[before]
        if isinstance(action, Versions):
            assert former is None and not handshaken and data[:2] == b"\0\x12"
            one.versions_sent(ErrorCode.INVALID_REQUEST if versions_fail else 0)
        elif isinstance(action, Ask):
            assert handshaken
            action = one.answered(
                CREDENTIALS[action.question] if action.question in CREDENTIALS else made_up(SHA_256, "x", b"s")
            )
            assert isinstance(action, Respond)
        if isinstance(action, Respond) and not handshaken:
            assert data[:2] == b"\0\x11"
            handshaken = True
        if isinstance(action, Done):
            event("logged in")
            assert handshaken and GOOD in data and action.user == "alice"
            return
        if isinstance(action, Failed):
            event(f"failed in {before}")
            assert one.state is State.ENDED
            return


def test_our_client_shows_no_more_of_a_brokers_message_than_a_line_of_a_log_may_have():
    hostile = "x\n2026-01-01 FORGED\x1b[2J" + "y" * 100_000
    refusing = login(Credentials("PLAIN", "alice", "alice-secret"))
    next(refusing)
    refusing.send(sasl_handshake.Response(mechanisms=["PLAIN"]))
    with pytest.raises(LoginError) as refused:
        refusing.send(sasl_authenticate.Response(error_code=58, error_message=hostile))
    choosing = login(Credentials("PLAIN", "alice", "alice-secret"))
    next(choosing)
    with pytest.raises(LoginError) as not_enabled:
        choosing.send(sasl_handshake.Response(error_code=33, mechanisms=[hostile]))
    for error in (refused, not_enabled):
        text = str(error.value)
        assert "FORGED" in text and text.isprintable() and len(text) < 1000
