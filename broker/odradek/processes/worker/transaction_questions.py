"""Asks the coordinator process, for the Produce requests of a worker, whether partitions belong to transactions.

A worker owns one `TransactionQuestions` and uses it only in its loop.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from odradek._ext.net.forward_frames import MalformedFrame
from odradek._ext.net.transaction_questions import decode_codes, encode_questions
from odradek.net.forward import ForwardClient, ForwardError, context_of
from odradek.net.forward_frames import ForwardReply, Kind, Status
from odradek.topic_partition import TopicPartition

Question = tuple[str, int, int, bool, list[TopicPartition]]
"""Transactional id, producer id, producer epoch, whether to verify only, and the partitions."""

log = logging.getLogger("odradek.requests")


class TransactionQuestions:
    """The `ask` callable of `ProduceHandler`.

    :param settle: sends the responses that were completed outside of an answer of the coordinator.
    :param failed: (pending, error): ends a request whose execution raised an exception.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        forward: ForwardClient,
        settle: Callable[[], None],
        failed: Callable[[Any, BaseException], None],
    ) -> None:
        self._loop = loop
        self._forward = forward
        self._settle = settle
        self._failed = failed

    def ask(self, pending: Any, questions: list[Question], deadline_ms: int) -> None:
        """Ask for the partitions of `questions`; later call `pending.verified` with the error codes, or with None.

        :param pending: a `DelayedProduce`. If its client disconnects, there is no answer.
        :param deadline_ms: CLOCK_MONOTONIC.
        """
        number = pending.questions
        count = sum(len(question[-1]) for question in questions)
        connection = pending.connection

        def on_reply(reply: ForwardReply | ForwardError) -> None:
            try:
                pending.verified(number, _codes(reply, count))
            except Exception as error:
                self._failed(pending, error)

        def on_full_queue(error: ForwardError) -> None:
            on_reply(error)
            self._settle()

        try:
            self._forward.send(
                encode_questions(questions),
                context_of(connection, connection.client_id),
                deadline_ms / 1000,
                on_reply,
                Kind.ADD_PARTITIONS,
            )
        except ForwardError as error:
            self._loop.call_soon(on_full_queue, error)


def _codes(reply: ForwardReply | ForwardError, count: int) -> tuple[int, ...] | None:
    """The error codes of an answer for `count` partitions; None if it has none."""
    if isinstance(reply, ForwardError):
        return None
    if reply.status != Status.OK:
        log.error(
            "the coordinator could not answer a question about a transaction: %s; refusing the batches",
            reply.status.name.lower(),
        )
        return None
    try:
        codes: tuple[int, ...] = decode_codes(reply.payload, count)
        return codes
    except MalformedFrame as error:
        log.error("the coordinator sent a malformed answer about a transaction: %s; refusing the batches", error)
        return None
