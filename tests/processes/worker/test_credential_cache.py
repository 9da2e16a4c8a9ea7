"""The credentials that a worker keeps: what it asks for, what it drops, and how long answers from memory take."""

import pytest

from odradek.net.forward import ConnectionLost, DeadlinePassed, QueueFull
from odradek.net.forward_frames import (
    CredentialReply,
    ForwardContext,
    ForwardReply,
    Kind,
    MalformedFrame,
    Status,
    decode_credential,
    decode_credential_question,
    encode_credential,
    encode_credential_question,
)
from odradek.processes.worker import credential_cache
from odradek.processes.worker.credential_cache import MOST_KEPT, CredentialCache
from odradek.security.sasl.mechanism import CredentialQuestion
from odradek.security.sasl.scram_credential import ScramCredential
from odradek.shm.credentials_version import CredentialsVersion

CONTEXT = ForwardContext(1, 0, "127.0.0.1:1")


def credential(name="alice", known=True):
    return ScramCredential(name.encode(), b"stored", b"server", 4096, known)


class Loop:
    """Time and timers."""

    def __init__(self):
        self.now = 100.0
        self.timers = []

    def time(self):
        return self.now

    def call_later(self, delay, callback, *arguments):
        self.timers.append((self.now + delay, callback, arguments))

    def call_soon(self, callback, *arguments):
        self.call_later(0.0, callback, *arguments)

    def run(self):
        """Run all timers; returns the longest delay."""
        delays = [0.0]
        while self.timers:
            when, callback, arguments = self.timers.pop(0)
            delays.append(when - self.now)
            callback(*arguments)
        return max(delays)


class Forward:
    """Questions to the coordinator, which `answer` answers."""

    def __init__(self, clock):
        self.clock = clock
        self.questions = []
        self.full = False

    def send(self, payload, context, deadline, callback, kind):
        if self.full:
            raise QueueFull("full")
        assert kind == Kind.CREDENTIAL
        self.questions.append((decode_credential_question(payload), callback))

    def answer(self, version, known=True):
        (_, user, _), callback = self.questions.pop(0)
        reply = CredentialReply(version, credential(user, known), self.clock())
        callback(ForwardReply(Status.OK, 0, encode_credential(reply)))


class Worker:
    def __init__(self):
        self.loop, self.version = Loop(), CredentialsVersion()
        self.forward = Forward(self.loop.time)
        self.settled = 0
        self.tokens = CredentialsVersion()
        self.cache = CredentialCache(self.loop, self.forward, self.version, self.tokens, self.settle, self.loop.time)
        self.found = []

    def settle(self):
        self.settled += 1

    def look_for(self, question):
        """What a login does with a question."""
        kept = self.cache.recall(question)
        if kept is None:
            self.cache.ask(question, CONTEXT, self.found.append)
        else:
            self.cache.hold(kept, self.found.append)

    def find(self, user, answer=True, known=True):
        """Find a credential; returns whether the coordinator was asked."""
        self.look_for(CredentialQuestion("SCRAM-SHA-256", user))
        asked = bool(self.forward.questions)
        if asked and answer:
            self.forward.answer(self.version.version, known)
        self.loop.run()
        return asked


@pytest.fixture
def worker():
    return Worker()


def test_a_credential_is_asked_for_once_until_any_credential_changes(worker):
    assert worker.find("alice") and not worker.find("alice")
    assert [reply.credential for reply in worker.found] == [credential()] * 2
    version = worker.version.announce()
    assert worker.version.wait_until_taken(version, [0], 0) == [0]
    worker.cache.take_over()
    assert worker.version.wait_until_taken(version, [0], 0) == []
    assert worker.find("alice")


def test_a_change_is_noticed_without_a_wake_up(worker):
    worker.find("alice")
    worker.version.announce()
    assert worker.find("alice")


def test_an_answer_that_was_read_before_a_change_is_not_kept(worker):
    worker.find("alice", answer=False)
    worker.version.announce()
    worker.forward.answer(version=0)
    assert worker.found[-1].version == 0  # its user compares the version again before the login succeeds
    assert worker.find("alice")


def test_the_least_recently_used_credential_gives_way_and_invented_names_displace_none(worker):
    worker.find("alice")
    for number in range(MOST_KEPT + 1):
        worker.find(f"nobody-{number}", known=False)
    assert not worker.find("alice") and not worker.find(f"nobody-{MOST_KEPT}") and worker.find("nobody-0", known=False)
    for number in range(MOST_KEPT):
        worker.find(f"user-{number}")
        assert number == MOST_KEPT - 1 or not worker.find("user-0")
    assert worker.find("alice")


@pytest.mark.parametrize("known", [True, False])
def test_an_answer_from_memory_takes_as_long_as_a_question(worker, known):
    for number, seconds in enumerate((0.001, 0.002, 5.0)):
        worker.look_for(CredentialQuestion("SCRAM-SHA-256", f"user-{number}"))
        worker.loop.run()
        worker.loop.now += seconds
        worker.forward.answer(0, known)
    holds = set()
    for _ in range(100):
        worker.look_for(CredentialQuestion("SCRAM-SHA-256", "user-0"))
        holds.add(round(worker.loop.run(), 6))
    assert holds == {0.001, 0.002, credential_cache.LONGEST_HOLD_S}
    assert worker.settled == 100


def test_answers_that_are_held_until_the_turn_ends_are_settled_together(worker):
    worker.find("alice")
    for _ in range(3):
        worker.look_for(CredentialQuestion("SCRAM-SHA-256", "alice"))
    assert len(worker.found) == 1
    assert worker.loop.run() == 0
    assert len(worker.found) == 4 and worker.settled == 1


def test_the_time_of_a_question_is_counted_from_the_end_of_the_turn_that_sent_it(worker):
    question = CredentialQuestion("SCRAM-SHA-256", "alice")
    worker.look_for(question)
    worker.loop.now += 5.0  # the rest of the turn
    worker.loop.run()
    worker.loop.now += 0.002
    worker.forward.answer(0)
    assert round(worker.cache.recall(question).hold_s, 6) == 0.002


def test_the_times_of_questions_are_measured_again_although_every_credential_is_kept(worker):
    """One slow answer of a coordinator that was just started must not delay the logins of all users for ever."""
    question = CredentialQuestion("SCRAM-SHA-256", "alice")
    worker.find("alice", answer=False)
    worker.loop.now += 5.0
    worker.forward.answer(0)
    for _ in range(credential_cache.DURATIONS):
        assert worker.cache.overdue
        worker.cache.measure(question, CONTEXT)
        worker.loop.run()
        assert not worker.cache.overdue
        worker.loop.now += 0.001
        worker.forward.answer(0)
        worker.loop.now += credential_cache.QUESTIONS_APART_S
    assert {round(worker.cache.recall(question).hold_s, 6) for _ in range(100)} == {0.001}
    assert len(worker.found) == 1


def test_nothing_accumulates_with_the_logins(worker):
    worker.find("alice")
    question = CredentialQuestion("SCRAM-SHA-256", "alice")
    for _ in range(1000):
        worker.look_for(question)
        worker.cache.measure(question, CONTEXT)
        worker.loop.run()
        worker.loop.now += credential_cache.QUESTIONS_APART_S
        worker.forward.answer(0)
    lengths = {name: len(value) for name, value in vars(worker.cache).items() if hasattr(value, "__len__")}
    assert lengths == {"_kept": 2, "_durations": credential_cache.DURATIONS, "_next_turn": 0}
    assert [len(kept) for kept in worker.cache._kept.values()] == [1, 0] and len(worker.found) == 1001


def test_a_measurement_that_fails_changes_nothing(worker):
    worker.find("alice")
    question = CredentialQuestion("SCRAM-SHA-256", "alice")
    worker.cache.measure(question, CONTEXT)
    worker.forward.questions.pop(0)[1](DeadlinePassed(True))
    worker.forward.full = True
    worker.cache.measure(question, CONTEXT)
    worker.loop.run()
    assert not worker.find("alice") and len(worker.found) == 2


def test_the_successor_of_a_coordinator_that_ended_is_asked(worker):
    worker.find("alice", answer=False)
    for _ in range(3):
        _, callback = worker.forward.questions.pop(0)
        callback(ConnectionLost("ended"))
    worker.forward.answer(0)
    assert [reply.credential for reply in worker.found] == [credential()]


def test_tokens_are_asked_for_at_each_login_and_displace_nothing(worker):
    worker.find("alice")
    question = CredentialQuestion("SCRAM-SHA-256", "alice", by_token=True)
    for _ in range(2):
        worker.look_for(question)
        assert len(worker.forward.questions) == 1
        worker.forward.answer(0)
    assert not worker.find("alice")
    version = worker.tokens.announce()
    assert worker.cache.newest_version(question) == version
    assert worker.cache.newest_version(question._replace(by_token=False)) == 0
    worker.cache.take_over()
    assert worker.tokens.wait_until_taken(version, [0], 0) == [] and not worker.find("alice")


def test_failures_are_told_and_not_kept(worker):
    worker.find("alice", answer=False)
    worker.forward.questions.pop(0)[1](DeadlinePassed(True))
    worker.find("alice", answer=False)
    worker.forward.questions.pop(0)[1](ForwardReply(Status.FAILED, 0))
    worker.find("alice", answer=False)
    worker.forward.questions.pop(0)[1](ForwardReply(Status.OK, 0, b"x"))
    worker.forward.full = True
    worker.find("alice", answer=False)
    worker.find("x" * 70_000, answer=False)
    assert len(worker.found) == 5 and all(isinstance(reason, str) for reason in worker.found)
    worker.forward.full = False
    assert worker.find("alice")


def test_questions_and_answers_survive_their_encoding():
    reply = CredentialReply(7, credential("é", known=False), 12.5)
    assert decode_credential(encode_credential(reply)) == reply
    of_token = reply._replace(credential=credential()._replace(owner="ö", expires_ms=2**62))
    assert decode_credential(encode_credential(of_token)) == of_token
    for by_token in (True, False):
        question = ("SCRAM-SHA-512", "a,b=é", by_token)
        assert decode_credential_question(encode_credential_question(*question)) == question
    data = encode_credential(reply)
    for wrong in (b"", data[:-1], data + b"x", data[:5]):
        with pytest.raises(MalformedFrame):
            decode_credential(wrong)
    with pytest.raises(MalformedFrame):
        decode_credential_question(encode_credential_question("SCRAM-SHA-512", "") + b"")
    assert "stored" not in f"{reply} {reply!r}"
