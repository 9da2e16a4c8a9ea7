"""The SCRAM credentials of users that a worker keeps, and its questions to the coordinator for others.

A worker owns one `CredentialCache` and uses it only in its loop. A credential is kept until another one changes (the version
in `odradek.shm.credentials_version` moves) or `MOST_KEPT` others were used since. Made-up credentials are kept apart, so that
logins with invented names displace nothing.

An answer from memory would be faster than an answer of the coordinator, and would show which users have logged in before.
Therefore the worker delays each answer from memory by the time that the coordinator needed for one of the last questions, which
is chosen at random. This time begins at the end of the loop's turn, in which questions are sent, and ends when the coordinator
has answered. The rest of a login takes as long in both cases. The times must be those of the present load: if no question was
sent for `QUESTIONS_APART_S`, the worker sends one beside an answer from memory, and the login does not wait for it.

Credentials of delegation tokens are not kept: the coordinator has them in memory, and a renewed token expires later.
"""

import asyncio
import logging
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

from odradek._ext.net.forward_frames import MalformedFrame
from odradek.net.forward import ConnectionLost, ForwardClient, ForwardError
from odradek.net.forward_frames import (
    CredentialReply,
    ForwardContext,
    ForwardReply,
    Kind,
    Status,
    decode_credential,
    encode_credential_question,
)
from odradek.security.sasl.mechanism import CredentialQuestion
from odradek.shm.credentials_version import CredentialsVersion

log = logging.getLogger("odradek.requests")

MOST_KEPT = 1000
PATIENCE_S = 8.0
"""The time in seconds that a login waits for the coordinator: less than odradek.authentication.timeout.ms by default."""

DURATIONS = 64
LONGEST_HOLD_S = 0.02
SHORTEST_HOLD_S = 0.0005
"""A shorter hold ends with the loop's turn: timers of the loop have a resolution of a millisecond."""
QUESTIONS_APART_S = 0.1

Then = Callable[[CredentialReply | str], None]
"""Receives the credential, or the reason why there is none."""


class Kept(NamedTuple):
    """A credential from memory, and the time in seconds for which it must be held."""

    reply: CredentialReply
    hold_s: float


class CredentialCache:
    """See the module.

    :param version: of the credentials. :param tokens: the version of the delegation tokens.
    :param settle: sends responses that were completed outside of an answer of the coordinator.
    :param clock: that of `CredentialReply.answered_s`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        forward: ForwardClient,
        version: CredentialsVersion,
        tokens: CredentialsVersion,
        settle: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._forward = forward
        self._version = version
        self._tokens = tokens
        self._settle = settle
        self._clock = clock
        self._kept: dict[bool, OrderedDict[CredentialQuestion, CredentialReply]] = {
            known: OrderedDict() for known in (True, False)
        }
        self._durations: deque[float] = deque(maxlen=DURATIONS)  # of the last questions, in seconds
        self._next_turn: list[
            tuple[CredentialReply, Then]
        ] = []  # answers from memory that are held until the turn ends
        self._asked_at = -QUESTIONS_APART_S  # when the last question was sent, in the loop's time
        self._taken = version.take_over()

    def take_over(self) -> None:
        """Drop all credentials if one has changed, and confirm that. Logins under way compare their version when they end."""
        self._tokens.take_over()
        if self._version.version != self._taken:
            for kept in self._kept.values():
                kept.clear()
            self._taken = self._version.take_over()

    def newest_version(self, question: CredentialQuestion) -> int:
        """The newest version of the credentials, or of the tokens if the question is for one."""
        return self._tokens.version if question.by_token else self._version.version

    def recall(self, question: CredentialQuestion) -> Kept | None:
        """The credential, if it is kept. The caller uses it after `Kept.hold_s`."""
        if question.by_token:
            return None
        if self._version.version != self._taken:
            self.take_over()
        for kept in self._kept.values():
            reply = kept.get(question)
            if reply is not None:
                kept.move_to_end(question)
                return Kept(reply, random.choice(self._durations))  # not a secret: noise
        return None

    def hold(self, kept: Kept, then: Then) -> None:
        """Call `then` in the loop when the credential from memory may be used; never inside this call."""
        if kept.hold_s < SHORTEST_HOLD_S:
            if not self._next_turn:
                self._loop.call_soon(self._answer_held)
            self._next_turn.append((kept.reply, then))
            return

        def answer() -> None:
            then(kept.reply)
            self._settle()

        self._loop.call_later(kept.hold_s, answer)

    def _answer_held(self) -> None:
        held, self._next_turn = self._next_turn, []
        for reply, then in held:
            then(reply)
        self._settle()

    @property
    def overdue(self) -> bool:
        """Whether the times of questions are old: then `measure` must be called."""
        return self._clock() - self._asked_at >= QUESTIONS_APART_S

    def measure(self, question: CredentialQuestion, context: ForwardContext) -> None:
        """Ask a question only for the time that it takes."""
        self.ask(question, context, _ignore)

    def ask(self, question: CredentialQuestion, context: ForwardContext, then: Then) -> None:
        """Ask the coordinator for a credential, also if it is kept. `then` is called once in the loop, never inside this call,
        unless the connection of the context is closed before.

        If the coordinator ends before it answers, its successor is asked: nothing is changed by a question.
        """
        self._asked_at = sent = self._clock()
        deadline = self._loop.time() + PATIENCE_S

        def turn_ended() -> None:
            nonlocal sent
            sent = self._clock()

        def send() -> None:
            try:
                payload = encode_credential_question(*question)
                self._forward.send(payload, context, deadline, on_reply, Kind.CREDENTIAL)
            except (ForwardError, ValueError) as error:
                self._loop.call_soon(on_refusal, str(error))

        def on_reply(reply: ForwardReply | ForwardError) -> None:
            if isinstance(reply, ConnectionLost):
                send()
            else:
                found = self._received(question, reply)
                if not question.by_token:
                    answered = self._clock() if isinstance(found, str) else found.answered_s
                    self._durations.append(min(max(0.0, answered - sent), LONGEST_HOLD_S))
                then(found)

        def on_refusal(reason: str) -> None:
            then(reason)
            self._settle()

        send()
        self._loop.call_soon(turn_ended)

    def _received(self, question: CredentialQuestion, reply: ForwardReply | ForwardError) -> CredentialReply | str:
        if isinstance(reply, ForwardError):
            return str(reply)
        if reply.status != Status.OK:
            return f"the coordinator could not read the credential ({reply.status.name.lower()})"
        try:
            found = decode_credential(reply.payload)
        except MalformedFrame as error:
            log.error("the coordinator sent a malformed credential: %s; the login fails", error)
            return "the coordinator sent a malformed credential"
        self.take_over()
        if found.version >= self._taken and not question.by_token:
            kept = self._kept[found.credential.known]
            kept[question] = found
            if len(kept) > MOST_KEPT:
                kept.popitem(last=False)
        return found


def _ignore(reply: CredentialReply | str) -> None:
    """What `measure` does with an answer: the time has been noted."""
