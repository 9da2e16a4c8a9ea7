"""The keys for tokens in a worker: when it uses newer ones, and when it asks the coordinator for some."""

import pytest

from odradek.net.forward import ConnectionLost, DeadlinePassed, QueueFull
from odradek.net.forward_frames import (
    ForwardContext,
    ForwardReply,
    Kind,
    MalformedFrame,
    Status,
    decode_keys_question,
    encode_keys_question,
)
from odradek.processes.worker.token_keys import ASKED_APART_S, TokenKeys
from odradek.security.sasl.jwks import parse_document
from odradek.security.sasl.mechanism import Refused
from odradek.security.sasl.oauth_settings import KeySource, OAuthSettings
from odradek.security.sasl.oauthbearer import UnknownKey
from odradek.shm.published_jwks import Provider, PublishedJwks
from tests.identity_provider import default_jwks, jwks, private_key, public_jwk, token
from tests.processes.worker.test_credential_cache import Loop

CONTEXT = ForwardContext(1, 0, "127.0.0.1:1")
SETTINGS = OAuthSettings(KeySource("https://idp/jwks", 1, 1, 1))
EC = jwks(public_jwk(private_key("ES256"), kid="e"))


class Forward:
    """Questions to the coordinator."""

    def __init__(self):
        self.questions = []
        self.full = False

    def send(self, payload, context, deadline, callback, kind):
        if self.full:
            raise QueueFull("full")
        assert kind == Kind.KEYS and context == CONTEXT
        self.questions.append((decode_keys_question(payload), callback))

    def answer(self, reply=None):
        self.questions.pop(0)[1](ForwardReply(Status.OK, 0) if reply is None else reply)


class Worker:
    def __init__(self):
        self.loop, self.forward, self.published = Loop(), Forward(), PublishedJwks()
        self.settled = self.resumed = 0
        self.keys = TokenKeys(self.loop, self.forward, self.published, self.settle)
        self.keys.configure({"OA": SETTINGS})

    def settle(self):
        self.settled += 1

    def resume(self):
        self.resumed += 1

    def publish(self, document=None, version=1, error="", listeners=("OA",)):
        keys = () if document is None else tuple(parse_document(document).keys)
        self.published.publish_providers([Provider(listeners, "https://idp/jwks", keys, version, error=error)])

    def refresh(self):
        self.keys.refresh("OA", CONTEXT, self.resume)

    def verify(self, made, listener="OA"):
        return self.keys.verify(listener, made.encode()).user


@pytest.fixture
def worker():
    return Worker()


def test_newer_keys_are_used_for_the_next_token_without_a_wake_up(worker):
    with pytest.raises(UnknownKey, match="not been read yet"):
        worker.verify(token())
    worker.publish(None, 0, "it is down")
    with pytest.raises(UnknownKey, match="never read: it is down"):
        worker.verify(token())
    worker.publish(default_jwks())
    old = token()
    assert worker.verify(old) == "alice"
    worker.publish(EC, 2)
    with pytest.raises(UnknownKey):
        worker.verify(old)  # although it is remembered
    assert worker.verify(token(algorithm="ES256", kid="e")) == "alice"


def test_a_failed_read_keeps_keys_and_remembered_tokens(worker, monkeypatch):
    worker.publish(default_jwks())
    made = token()
    worker.verify(made)
    verifier = worker.keys._listeners["OA"].verifier
    monkeypatch.setattr(verifier, "_check", lambda _: pytest.fail("the signature was checked again"))
    worker.publish(default_jwks(), 1, "it is down")
    assert worker.verify(made) == "alice"


def test_other_settings_forget_what_was_remembered_and_the_same_ones_do_not(worker):
    worker.publish(default_jwks())
    verifier = worker.keys._listeners["OA"].verifier
    worker.keys.configure({"OA": SETTINGS})
    assert worker.keys._listeners["OA"].verifier is verifier
    worker.keys.configure({"OA": SETTINGS._replace(issuer="i")})
    with pytest.raises(Refused, match="no claim iss"):
        worker.verify(token())
    worker.keys.configure({})
    with pytest.raises(Refused, match="does not offer OAUTHBEARER any more"):
        worker.verify(token())


def test_listeners_have_the_keys_of_their_provider(worker):
    worker.keys.configure({"OA": SETTINGS, "OB": SETTINGS, "OC": SETTINGS})
    worker.publish(default_jwks(), listeners=("OA", "OC"))
    assert worker.verify(token(), "OC") == "alice"
    with pytest.raises(UnknownKey):
        worker.verify(token(), "OB")


def test_a_question_names_the_keys_that_the_worker_has(worker):
    worker.publish(default_jwks())
    with pytest.raises(UnknownKey):
        worker.verify(token(kid="x"))
    worker.publish(EC, 2)
    worker.refresh()
    assert worker.forward.questions[0][0] == ("OA", 1)
    assert worker.resumed == 0
    worker.forward.answer()
    assert worker.resumed == 1


def test_after_an_answer_no_question_follows_for_a_second(worker):
    worker.refresh()
    worker.forward.answer()
    for _ in range(10):
        worker.refresh()
        assert not worker.forward.questions
    assert worker.resumed == 1  # never inside the call
    worker.loop.run()
    assert (worker.resumed, worker.settled) == (11, 10)
    worker.loop.now += ASKED_APART_S
    worker.refresh()
    assert len(worker.forward.questions) == 1


def test_after_newer_keys_a_question_follows_at_once(worker):
    worker.refresh()
    worker.publish(default_jwks())
    worker.forward.answer()
    with pytest.raises(UnknownKey):
        worker.verify(token(kid="x"))
    worker.refresh()
    assert worker.forward.questions[0][0] == ("OA", 1)


def test_a_lost_question_is_sent_again_and_one_without_an_answer_ends(worker):
    worker.refresh()
    worker.forward.answer(ConnectionLost("the coordinator ended"))
    assert worker.resumed == 0 and len(worker.forward.questions) == 1
    worker.forward.answer(DeadlinePassed("too late"))
    assert worker.resumed == 1


def test_a_full_queue_lets_the_login_go_on_with_the_known_keys(worker):
    worker.forward.full = True
    worker.refresh()
    assert worker.resumed == 0
    worker.loop.run()
    assert (worker.resumed, worker.settled) == (1, 1)


def test_a_listener_that_was_disabled_meanwhile_goes_on(worker):
    worker.refresh()
    worker.keys.configure({})
    worker.forward.answer()
    worker.refresh()
    worker.loop.run()
    assert worker.resumed == 2


def test_the_frames_of_questions():
    assert decode_keys_question(encode_keys_question("Ö", 1 << 40)) == ("Ö", 1 << 40)
    for payload in (b"", bytes(8)):
        with pytest.raises(MalformedFrame):
            decode_keys_question(payload)
