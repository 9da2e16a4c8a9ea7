"""`ScramLogin` gives the responses of `Exchange`, or none; with none, an `Exchange` that receives its frames goes on."""

from base64 import b64encode

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from odradek._ext.protocol.scram_login import ScramListener, ScramLogin, ScramResult
from odradek.security.sasl.exchange import Ask, Done, Exchange, Failed, Respond, State, Versions
from odradek.security.sasl.mechanism import CredentialQuestion
from odradek.security.sasl.plain import Plain
from odradek.security.sasl.scram import Scram
from odradek.security.sasl.scram_credential import BY_NAME, SHA_256, credential_of, made_up, salted_password
from tests.sasl import authenticate_frame as authenticate
from tests.sasl import handshake_frame as handshake
from tests.sasl import versions_frame as versions
from tests.security.test_exchange import METADATA
from tests.security.test_scram import proof_of

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
NONCE, SALT, LIFETIME_MS = "c2VydmVy", b"salt of sixteen.", 60_000
LISTENER = ScramListener(
    MECHANISMS,
    {name: BY_NAME[name].hash for name in BY_NAME},
    {name: BY_NAME[name].hash_name for name in BY_NAME},
    "ANONYMOUS",
)
PASSWORDS = {
    name: credential_of(one, salted_password(one, b"pencil", SALT, 4096), SALT, 4096) for name, one in BY_NAME.items()
}


def reference():
    def make(name):
        return Scram(BY_NAME[name], lambda: NONCE) if name in BY_NAME else Plain({})

    return Exchange(MECHANISMS, make, lambda name: LIFETIME_MS if name in BY_NAME else 0, None, lambda: 0)


def credential(mechanism, user):
    return PASSWORDS[mechanism] if user in ("alice", "ANONYMOUS") else made_up(BY_NAME[mechanism], user, b"secret")


def last_message(mechanism, user="alice", password=b"pencil", client="client", separator="", binding="biws"):
    nonce = f"{client}{NONCE}"
    known = credential(mechanism, user)
    server_first = f"r={nonce},s={b64encode(known.salt).decode()},i={known.iterations}"
    without_proof = f"c={binding},r={separator}{nonce}"
    proof = proof_of(BY_NAME[mechanism], password, f"n={user},r={client}", server_first, without_proof, SALT)
    return f"{without_proof},p={proof}".encode()


def both(frames):
    """Give frames to an Exchange and to a ScramLogin. Returns the last action, and how many frames ScramLogin processed."""
    exchange, scram, action = reference(), ScramLogin(LISTENER), None
    for frame in frames:
        action = exchange.frame(frame)
        result = None if scram is None else scram.frame(frame, LIFETIME_MS)
        if isinstance(action, Versions):
            exchange.versions_sent(0)
        if scram is None:
            pass
        elif result is None:
            processed, scram = scram.frames, None
        elif result == ScramResult.SCRAM_VERSIONS:
            assert isinstance(action, Versions)
            scram.versions_sent()
        elif result == ScramResult.SCRAM_QUESTION:
            assert action == Ask(CredentialQuestion(scram.mechanism, scram.user))
        else:
            assert isinstance(action, Done if scram.done else Respond) and result == action.data
            assert not scram.done or (action.user, action.mechanism) == (scram.user, scram.mechanism)
        if isinstance(action, Ask):
            found = credential(action.question.mechanism, action.question.user)
            action = exchange.answered(found)
            if scram is not None:
                assert scram.answered(found, NONCE) == action.data and not action.refusal
        if exchange.state is State.ENDED:
            break
    return action, len(processed if scram is None else scram.frames)


@pytest.mark.parametrize("mechanism", BY_NAME)
@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("first", [[], [versions(3)]])
def test_the_usual_login_is_processed_to_its_end(mechanism, version, first):
    tokens = b"n,,n=alice,r=client", last_message(mechanism)
    frames = [*first, handshake(mechanism), *(authenticate(token, version) for token in tokens)]
    action, processed = both(frames)
    assert isinstance(action, Done) and processed == len(frames)
    assert (action.user, action.lifetime_ms) == ("alice", LIFETIME_MS)


@pytest.mark.parametrize(
    ("tokens", "processed"),
    [
        ([b"n,,n=alice,r=client", last_message("SCRAM-SHA-256", password=b"wrong")], 2),
        ([b"n,,n=nobody,r=client", last_message("SCRAM-SHA-256", user="nobody")], 2),
        ([b"n,,n=ANONYMOUS,r=client", last_message("SCRAM-SHA-256", user="ANONYMOUS")], 1),
        ([b"n,,n=alice,r=client", b"c=biws,r=client,p=AAAA"], 2),
        ([b"n,,n=alice,r=client", last_message("SCRAM-SHA-256")[:-1]], 2),
        ([b"n,,n=alice,r=client", last_message("SCRAM-SHA-256", binding="eSws")], 2),
        ([b"n,,n=alice,r=client,tokenauth=true", b""], 1),
        ([b"n,a=bob,n=alice,r=client", last_message("SCRAM-SHA-256")], 1),
        ([b"n,,n=al=2Cice,r=client", b""], 1),
        ([b"n,,n=\xff,r=client", b""], 1),
        ([b"n,,n=alice,r=cli ent", b""], 1),
        ([b"n,,n=,r=client", b""], 1),
        ([b"n,,n=alice,r=", b""], 1),
        ([b"", b""], 1),
        ([b"n,,n=alice,r=" + b"c" * 2000, b""], 1),
    ],
)
def test_other_logins_are_left_to_the_exchange(tokens, processed):
    action, count = both([handshake("SCRAM-SHA-256"), *map(authenticate, tokens)])
    assert isinstance(action, Failed) and count == processed


def test_the_repeated_nonce_of_old_librdkafka_is_left_to_the_exchange():
    frames = [
        handshake("SCRAM-SHA-512"),
        *map(authenticate, (b"n,,n=alice,r=client", last_message("SCRAM-SHA-512", separator="client"))),
    ]
    action, processed = both(frames)
    assert isinstance(action, Done) and processed == 2


@pytest.mark.parametrize(
    "frames", [[handshake("PLAIN")], [handshake("SCRAM-SHA-256", 0)], [handshake("GSSAPI")], [METADATA], [b""]]
)
def test_other_mechanisms_and_requests_are_left_to_the_exchange(frames):
    assert both(frames)[1] == 0


def test_a_failed_api_versions_may_be_repeated():
    scram = ScramLogin(LISTENER)
    assert scram.frame(versions()) == ScramResult.SCRAM_VERSIONS
    assert scram.frame(versions()) is None and scram.frame(handshake("SCRAM-SHA-256")) is None


def test_a_token_credential_is_left_to_the_exchange():
    scram = ScramLogin(LISTENER)
    scram.frame(handshake("SCRAM-SHA-256"))
    scram.frame(authenticate(b"n,,n=alice,r=client"))
    scram.answered(PASSWORDS["SCRAM-SHA-256"]._replace(expires_ms=1), NONCE)
    assert scram.frame(authenticate(last_message("SCRAM-SHA-256"))) is None and not scram.done


FRAMES = st.sampled_from(
    [
        versions(),
        versions(3),
        *(handshake(name, version) for name in MECHANISMS for version in (0, 1)),
        *(
            authenticate(token, version)
            for version in (0, 1, 2)
            for token in (b"n,,n=alice,r=client", b"n,,n=bob,r=client", last_message("SCRAM-SHA-256"))
        ),
        METADATA,
    ]
)


@st.composite
def damaged(draw):
    frame = draw(FRAMES)
    at = draw(st.integers(0, len(frame) - 1))
    kind = draw(st.sampled_from(["whole", "cut", "byte", "longer"]))
    if kind == "cut":
        return frame[:at]
    if kind == "byte":
        return frame[:at] + bytes([draw(st.integers(0, 255))]) + frame[at + 1 :]
    return frame + b"\0" if kind == "longer" else frame


USUAL = [handshake("SCRAM-SHA-256"), authenticate(b"n,,n=alice,r=client"), authenticate(last_message("SCRAM-SHA-256"))]


@given(st.integers(0, 2), st.lists(damaged(), min_size=1, max_size=4))
def test_no_frames_make_them_differ(usual, frames):
    action, processed = both([*USUAL[:usual], *frames])
    event(f"{type(action).__name__} after {processed} processed")


def test_the_exchange_goes_on_after_the_frames_of_the_usual_way():
    """What `Logins` does with a proof that is not right."""
    scram = ScramLogin(LISTENER)
    for frame in (versions(3), *USUAL[:2]):
        if scram.frame(frame) == ScramResult.SCRAM_VERSIONS:
            scram.versions_sent()
    scram.answered(PASSWORDS["SCRAM-SHA-256"])
    exchange = Exchange(MECHANISMS, lambda _: Scram(SHA_256, lambda: scram.nonce), lambda _: 0, None, lambda: 0)
    for frame in scram.frames:
        action = exchange.frame(frame)
        if isinstance(action, Versions):
            exchange.versions_sent(0)
    assert isinstance(action, Ask)
    assert isinstance(exchange.answered(PASSWORDS["SCRAM-SHA-256"]), Respond) and exchange.state is State.TOKEN
