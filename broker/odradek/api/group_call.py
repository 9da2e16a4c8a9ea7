"""What a handler of a group request is given beside the request: who asks, and the groups. In the coordinator's loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from odradek._ext.shm.topics import Topic, TopicDirectory
from odradek.api.stepwise import Pace
from odradek.config.broker_config import BrokerConfig
from odradek.groups.consumer_metadata import CONSUMER
from odradek.groups.coordinator import GroupCoordinator

log = logging.getLogger("odradek.groups")


Answer = TypeVar("Answer")
Element = TypeVar("Element")


class Pause:
    """Lets the loop serve others now and then amid the long work of a coroutine.

    :param enough: how much may be done in one go.
    """

    def __init__(self, enough: int = 500) -> None:
        self._pace = Pace(enough)

    async def after(self, done: int = 1) -> None:
        """Count what was done, and let others have their turn once it is enough."""
        if self._pace.over(done):
            await asyncio.sleep(0)

    async def between(self, elements: Iterable[Element]) -> AsyncIterator[Element]:
        """The elements, with such pauses between them."""
        for element in elements:
            if self._pace.over():
                await asyncio.sleep(0)
            yield element


@dataclass
class GroupView:
    """One a coordinator, used in its loop alone.

    :param topics: the coordinator's mirror of the topics.
    :param wait_for_offsets_topic: returns once the group's partition of `__consumer_offsets` is there; it is made if need be.
    :param tree: committed offsets of before 0.9, in the metadata tree; its calls are made in the controller thread.
    :param limits: how many elements a request may have, by API key.
    """

    config: BrokerConfig
    groups: GroupCoordinator
    topics: TopicDirectory
    tree: OffsetTree
    limits: Mapping[int, int]

    @property
    def without_consumer_protocol(self) -> str | None:
        """Why there are no groups of KIP-848; None if there are."""
        enabled = self.config["group.coordinator.rebalance.protocols"]
        if isinstance(enabled, tuple) and CONSUMER in enabled:
            return None
        return "group.coordinator.rebalance.protocols of this broker does not contain consumer."


@dataclass
class OffsetTree:
    """Offsets under `/consumers/<group>/offsets/<topic>/<partition>` in the metadata tree, as the documents say.

    :param read: (group, [(topic, partition)]) to {(topic, partition): offset}; what is not there is left out.
    :param write: (group, {(topic, partition): offset}); returns topics that do not exist any more, for which nothing is kept.
    :param has_members: whether consumers of a group are registered in the tree.
    :param delete: deletes a group with its offsets; returns whether there was one.
    """

    read: Callable[[str, list[tuple[str, int]]], Awaitable[dict[tuple[str, int], int]]]
    write: Callable[[str, dict[tuple[str, int], int]], Awaitable[set[str]]]
    has_members: Callable[[str], Awaitable[bool]]
    delete: Callable[[str], Awaitable[bool]]


@dataclass
class GroupCall:
    """One a request.

    :param host: address of the client without its port, as groups tell it of their members.
    :param park: see `PlainRequest.park`.
    """

    version: int
    client_id: str | None
    host: str
    principal: str
    view: GroupView
    park: Callable[[], None]

    def topic(self, name: str) -> Topic | None:
        """A topic by name."""
        return self.view.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """A topic by id."""
        found: Topic | None = self.view.topics.by_id.get(bytes(topic_id))
        return found


class RequestContext(Protocol):
    """Whose request it is that is served at once: the forwarded context of its connection."""

    @property
    def peer(self) -> str:
        """Address and port."""

    @property
    def client(self) -> str:
        """Address and client id, as log lines name it."""

    @property
    def client_id(self) -> str | None:
        """As its header says."""

    @property
    def principal(self) -> str:
        """Who it is for metering."""


class PlainRequest(Protocol):
    """A request that is served at once. It is answered exactly once, now or later."""

    @property
    def payload(self) -> bytes:
        """With its header."""

    @property
    def context(self) -> RequestContext:
        """Who asks."""

    def answer(self, payload: bytes, metadata_version: int = 0, status: int = 0) -> None:
        """:param payload: the response with its header. :param status: see `odradek.net.forward_frames.Status`."""

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the client's connection ends before the request is answered."""

    def park(self) -> None:
        """It was read and waits for what other clients do, for minutes perhaps: `payload` goes, and with it its share of the
        bytes of requests under way, beyond which the coordinator reads no more. What is kept of it is the group's."""


FAILED = 1
"""The status of a request that cannot be answered: its connection is closed."""


def answer_encoded(request: PlainRequest, api: str, encode: Callable[..., bytes], *fields: object) -> None:
    """Answer with what `encode` makes of the fields. Whatever goes wrong fails this request alone: a group answers many members
    in a loop, and the others must get their answers.
    """
    try:
        payload = encode(*fields)
    except ValueError as error:
        log.error(
            "cannot encode the %s response for %s: %s; its connection is closed", api, request.context.client, error
        )
        request.answer(b"", 0, FAILED)
    except Exception:
        log.exception("cannot encode the %s response for %s; its connection is closed", api, request.context.client)
        request.answer(b"", 0, FAILED)
    else:
        request.answer(payload)


def host_of(peer: str) -> str:
    """The address without its port: "[::1]:5" and "127.0.0.1:5"."""
    return peer.rpartition(":")[0].strip("[]")


async def answered(verb: Callable[[Callable[[Answer], None]], Any]) -> Answer:
    """Call a verb of the groups with a callback and wait for what it is called with.

    A client that goes away cancels the waiting, not the verb.
    """
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def then(answer: Answer) -> None:
        if not future.done():
            future.set_result(answer)

    verb(then)
    del verb  # and what it was called with
    return await future
