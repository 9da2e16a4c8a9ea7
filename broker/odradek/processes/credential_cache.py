"""The SCRAM credentials of users that a worker keeps, and its questions to the coordinator for others.

A worker owns one `CredentialCache` and uses it only in its loop. A credential is kept until another one changes (the version
in `odradek.shm.credentials_version` moves) or `MOST_KEPT` others were used since. Made-up credentials are kept apart, so that
logins with invented names displace nothing.

An answer from memory would be faster than one of the coordinator, and so show which users have logged in before. Therefore it
is held for as long as one of the last questions took, chosen at random.

Credentials of delegation tokens are not kept: the coordinator has them in memory, and a renewed token expires later.
"""

import asyncio
import logging
import random
from collections import OrderedDict, deque
from collections.abc import Callable

from odradek.net.forward import ConnectionLost, ForwardClient, ForwardError
from odradek.net.forward_frames import (
    CredentialReply,
    ForwardContext,
    ForwardReply,
    Kind,
    MalformedFrame,
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

Then = Callable[[CredentialReply | str], None]
"""Receives the credential, or the reason why there is none."""


class CredentialCache:
    """See the module.

    :param version: of the credentials. :param tokens: the version of the delegation tokens.
    :param settle: sends responses that were completed outside of an answer of the coordinator.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        forward: ForwardClient,
        version: CredentialsVersion,
        tokens: CredentialsVersion,
        settle: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._forward = forward
        self._version = version
        self._tokens = tokens
        self._settle = settle
        self._kept: dict[bool, OrderedDict[CredentialQuestion, CredentialReply]] = {
            known: OrderedDict() for known in (True, False)
        }
        self._durations: deque[float] = deque(maxlen=DURATIONS)  # of the last questions, in seconds
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

    def _from_memory(self, question: CredentialQuestion) -> CredentialReply | None:
        self.take_over()
        for kept in self._kept.values():
            if question in kept:
                kept.move_to_end(question)
                return kept[question]
        return None

    def find(self, question: CredentialQuestion, context: ForwardContext, then: Then) -> None:
        """Find a credential; `then` is called once in the loop, never inside this call, unless the connection of the context is
        closed before."""
        reply = None if question.by_token else self._from_memory(question)
        if reply is None:
            self.ask(question, context, then)
            return

        def answer() -> None:
            then(reply)
            self._settle()

        self._loop.call_later(random.choice(self._durations), answer)  # not a secret: noise

    def ask(self, question: CredentialQuestion, context: ForwardContext, then: Then) -> None:
        """Ask the coordinator, even if the credential is kept; see `find`.

        If the coordinator ends before it answers, its successor is asked: nothing is changed by a question.
        """
        began = self._loop.time()
        deadline = began + PATIENCE_S

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
                if not question.by_token:
                    self._durations.append(min(self._loop.time() - began, LONGEST_HOLD_S))
                then(self._received(question, reply))

        def on_refusal(reason: str) -> None:
            then(reason)
            self._settle()

        send()

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
