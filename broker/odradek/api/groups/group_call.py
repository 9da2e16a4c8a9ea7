"""The context of a group request: the client, and the groups. Used in the coordinator's loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from odradek._ext.shm.topics import Topic, TopicDirectory
from odradek.api.permits import UNRESTRICTED, Permits, PermitsOf, unrestricted
from odradek.api.transactions.transaction_call import NewestConnections
from odradek.config.broker_config import BrokerConfig
from odradek.protocol.errors import ErrorCode
from odradek.security.acl import Operation, ResourceType
from odradek.security.owners import Client
from odradek.stepwise import Later, Steps
from odradek.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.groups.coordinator import GroupCoordinator

log = logging.getLogger("odradek.groups")

CLIENTS_KEPT = 1024
"""Clients that are not made again for each of their commits, which takes a microsecond."""

Answer = TypeVar("Answer")


class TransactionsOfGroups(Protocol):
    """The transaction coordinators, for commits of offsets in transactions."""

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group_partition: int,
        verify_only: bool,
        then: Callable[[ErrorCode], None],
    ) -> None:
        """Add a partition of `__consumer_offsets` to the transaction, or check that it was added.

        :param verify_only: only check. :param then: called once, with the error of the transaction coordinator for the
            producer (PRODUCER_FENCED, TRANSACTION_ABORTABLE ...). NONE: records of this transaction may be appended.
        """


class NoTransactions:
    """Used until `GroupService.transactions` is set: it confirms no transaction."""

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group_partition: int,
        verify_only: bool,
        then: Callable[[ErrorCode], None],
    ) -> None:
        """See `TransactionsOfGroups`."""
        then(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def always_confirmed(_: str) -> Steps:
    """For a broker alone, which no other broker can depose."""
    return ErrorCode.NONE
    yield


@dataclass
class GroupView:
    """The groups of a coordinator and what requests need besides; used only in its loop.

    :param topics: the coordinator's directory of the topics.
    :param tree: committed offsets in the metadata tree, from clients before Kafka 0.9; its functions run in the store thread.
    :param limits: the largest number of elements in a request, by API key.
    :param transactions: the transactions in which clients commit offsets.
    :param newest_commits: the newest connections of producers, for TxnOffsetCommit.
    :param confirm: called with a group id; its steps return NONE once it is certain that no other broker coordinated the
        group before the call.
    :param permits_of: see `PermitsOf`; for requests that are served at once.
    """

    config: BrokerConfig
    groups: GroupCoordinator
    topics: TopicDirectory
    tree: OffsetTree
    limits: Mapping[int, int]
    transactions: TransactionsOfGroups = field(default_factory=NoTransactions)
    newest_commits: NewestConnections = field(default_factory=NewestConnections)
    confirm: Callable[[str], Steps] = always_confirmed
    permits_of: PermitsOf = unrestricted

    @property
    def without_consumer_protocol(self) -> str | None:
        """The reason why consumer groups (KIP-848) are disabled; None if they are enabled."""
        from odradek.groups.consumer_metadata import CONSUMER

        enabled = self.config["group.coordinator.rebalance.protocols"]
        if isinstance(enabled, tuple) and CONSUMER in enabled:
            return None
        return "group.coordinator.rebalance.protocols of this broker does not contain consumer."


@dataclass
class OffsetTree:
    """Offsets under `/consumers/<group>/offsets/<topic>/<partition>` in the metadata tree
    (docs/decisions/0026-offsets-in-the-tree.md).

    :param read: (group, [(topic, partition)]) to {(topic, partition): offset}; missing offsets are omitted.
    :param write: (group, {(topic, partition): offset}); returns topics that do not exist any more, whose offsets are not
        stored.
    :param has_members: returns whether consumers of a group are registered in the tree.
    :param delete: deletes a group with its offsets; returns whether the group existed.
    """

    read: Callable[[str, list[TopicPartition]], Awaitable[dict[TopicPartition, int]]]
    write: Callable[[str, dict[TopicPartition, int]], Awaitable[set[str]]]
    has_members: Callable[[str], Awaitable[bool]]
    delete: Callable[[str], Awaitable[bool]]


@dataclass
class GroupCall:
    """The context of one request.

    :param host: the client's address without its port, as shown for members of groups.
    :param park: see `PlainRequest.park`.
    """

    version: int
    client_id: str | None
    host: str
    principal: str
    view: GroupView
    park: Callable[[], None]
    permits: Permits = UNRESTRICTED

    @property
    def client(self) -> Client:
        """The client of the request."""
        return Client(self.principal, self.host)

    def topic(self, name: str) -> Topic | None:
        """A topic by name."""
        return self.view.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """A topic by id."""
        topic: Topic | None = self.view.topics.by_id.get(bytes(topic_id))
        return topic


class RequestContext(Protocol):
    """The forwarded context of the connection of a request that is served at once."""

    @property
    def connection_id(self) -> int:
        """The connection; a newer one has a larger id."""

    @property
    def peer(self) -> str:
        """The client's address and port."""

    @property
    def client(self) -> str:
        """Address and client id, as shown in log lines."""

    @property
    def log_fields(self) -> dict[str, object]:
        """The connection and the client, as `extra` of a log call."""

    @property
    def client_id(self) -> str | None:
        """The client id in the request's header."""

    @property
    def principal(self) -> str:
        """The principal to which metering attributes the request."""


class PlainRequest(Protocol):
    """A request that is served at once, that is, without a task. It is answered exactly once, now or later."""

    @property
    def payload(self) -> bytes:
        """The request with its header."""

    @property
    def context(self) -> RequestContext:
        """The context of the client's connection."""

    def answer(self, payload: bytes, metadata_version: int = 0, status: int = 0) -> None:
        """Send the response.

        :param payload: the response with its header. :param status: see `odradek.net.forward_frames.Status`.
        """

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the client's connection ends before the request is answered."""

    def park(self) -> None:
        """Release `payload`. The request was read and waits for other clients, possibly for minutes. Its bytes no longer
        count as in flight, which is limited: above the limit the coordinator stops reading. The group keeps what it needs of
        the request."""


def may_read(
    request: PlainRequest, view: GroupView, api_key: int, group_id: str, topics: Iterable[Topic | None] = ()
) -> bool:
    """Whether a request may be served at once: the client may read the group, and these topics exist and it may read them. If
    not, the guard of the API decides what the client receives."""
    permits = view.permits_of(request.context.principal, request.context.peer, api_key)
    return not permits.restricted or (
        permits.grants(Operation.READ, ResourceType.GROUP, group_id)
        and all(
            topic is not None and permits.grants(Operation.READ, ResourceType.TOPIC, topic.name) for topic in topics
        )
    )


FAILED = 1
"""The status of a request that cannot be answered: its connection is closed."""


def answer_encoded(request: PlainRequest, api: str, encode: Callable[..., bytes], *fields: object) -> None:
    """Answer with the response that `encode` makes from the fields. An error fails only this request: a group answers many
    members in a loop, and the other members must get their responses.
    """
    try:
        payload = encode(*fields)
    except ValueError as error:
        log.error(
            "cannot encode the %s response for %s: %s; its connection is closed",
            api, request.context.client, error, extra=request.context.log_fields,
        )  # fmt: skip
        request.answer(b"", 0, FAILED)
    except Exception:
        log.exception(
            "cannot encode the %s response for %s; its connection is closed",
            api, request.context.client, extra=request.context.log_fields,
        )  # fmt: skip
        request.answer(b"", 0, FAILED)
    else:
        request.answer(payload)


def host_of(peer: str) -> str:
    """The address without its port, for "[::1]:5" and "127.0.0.1:5"."""
    return peer.rpartition(":")[0].strip("[]")


def client_of(context: RequestContext) -> Client:
    """The client of a request that is served at once."""
    return _client(context.principal, context.peer)


@lru_cache(CLIENTS_KEPT)
def _client(principal: str, peer: str) -> Client:
    return Client(principal, host_of(peer))


async def answered(verb: Callable[[Callable[[Answer], None]], Any]) -> Answer:
    """Call a method of the groups with a callback, and wait for the value with which the callback is called.

    If the client disconnects, the wait is cancelled, but not the method.
    """
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def then(answer: Answer) -> None:
        if not future.done():
            future.set_result(answer)

    verb(then)
    return await future


def result_of(work: Awaitable[Answer]) -> Generator[Later, None, Answer]:
    """Wait for work of another thread, or of several steps of the loop; it is cancelled if the client disconnects."""
    future, later = asyncio.ensure_future(work), Later()
    future.add_done_callback(lambda _: later.set())
    try:
        yield later
    finally:
        if future.cancel():  # the client has disconnected
            future.add_done_callback(_log_failure)
    return future.result()


def _log_failure(future: asyncio.Future[Any]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        log.error("a request whose client has disconnected failed", exc_info=error)
