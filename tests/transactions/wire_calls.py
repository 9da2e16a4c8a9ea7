"""Requests to whichever broker leads or coordinates, repeated until there is an answer, for transactional clients of
tests.

A client gives up a request that is not answered in time, and sends it again on a new connection, as librdkafka and
Kafka's Java client do: whether the server executed the first one is then unknown. Each object belongs to one thread.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import api_versions, find_coordinator, metadata
from tests.transactions.checker.history import Place
from tests.wire import Wire

GROUP, TRANSACTION = 0, 1
TRANSACTION_VERSION = "transaction.version"
BETWEEN_ATTEMPTS_S = 0.02

Address = tuple[str, int]

UNDECIDED = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NETWORK_EXCEPTION,
    }
)  # fmt: skip
"""Errors after which the request may still have its effect, or may have had it."""
MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER})
"""Errors after which the leader or the coordinator is looked up again."""


class LostError(Exception):
    """A request was sent and not answered: it was executed, will be executed, or was lost."""


class NotSentError(Exception):
    """No connection could be opened, so no request was sent."""


class TooLateError(Exception):
    """There was no final answer within the client's patience. ``undecided``: whether the request may have had an
    effect.
    """

    def __init__(self, text: str, undecided: bool) -> None:
        super().__init__(text)
        self.undecided = undecided


class RefusedError(Exception):
    """The server refused a request finally. ``undecided``: whether an earlier attempt may have had an effect."""

    def __init__(self, code: int, what: str, undecided: bool = False) -> None:
        super().__init__(f"{what}: {ErrorCode(code).name}{' after an attempt without an answer' if undecided else ''}")
        self.code = ErrorCode(code)
        self.undecided = undecided


class Timing(NamedTuple):
    """``answer_s``: how long a client waits for an answer before it sends the request again; ``patience_s``: how long
    it repeats it.
    """

    answer_s: float = 2.0
    patience_s: float = 60.0


class Connections:
    """One connection to each broker, opened when it is needed.

    :param handshake: whether the client asks for the versions of the APIs first, and waits for the answer, as all
        clients do that are not told the broker's version.
    """

    def __init__(self, answer_s: float, handshake: bool = True) -> None:
        self._answer_s = answer_s
        self._handshake = handshake
        self._open: dict[Address, Wire] = {}

    def ask(self, address: Address, request: Any, api_key: int, version: int) -> Any:
        """Send a request and receive its answer. Raises NotSentError or LostError, which closes the connection."""
        wire = self._connection(address)
        try:
            return wire.ask(request, api_key, version)
        except (OSError, EOFError) as error:
            self.abandon(address)
            raise LostError(str(error)) from error

    def send(self, address: Address, request: Any, api_key: int, version: int) -> Wire:
        """Send a request without waiting; the connection on which the answer comes. Raises NotSentError or LostError."""
        wire = self._connection(address)
        try:
            wire.send(request, api_key, version)
        except OSError as error:
            self.abandon(address)
            raise LostError(str(error)) from error
        return wire

    def _connection(self, address: Address) -> Wire:
        if address not in self._open:
            try:
                wire = Wire.over(socket.create_connection(address, timeout=self._answer_s))
                wire.socket.settimeout(self._answer_s)
                wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._handshake:
                    wire.ask(api_versions.Request(client_software_name="t", client_software_version="1"), 18, 3)
            except (OSError, EOFError) as error:
                raise NotSentError(str(error)) from error
            self._open[address] = wire
        return self._open[address]

    def abandon(self, address: Address) -> None:
        """Close the connection to a broker, with whatever is in flight on it."""
        if (wire := self._open.pop(address, None)) is not None:
            with suppress(OSError):
                wire.socket.close()

    def close(self) -> None:
        for address in list(self._open):
            self.abandon(address)


@dataclass
class Routes:
    """Which broker leads a partition or coordinates a transactional id or a group, as the brokers say.

    :param fixed: whether the first server is the only one, whatever address it tells.
    """

    servers: list[Address]
    answer_s: float
    fixed: bool = False
    _leaders: dict[Place, Address] = field(default_factory=dict)
    _coordinators: dict[tuple[int, str], Address] = field(default_factory=dict)
    _connections: Connections = field(init=False)

    def __post_init__(self) -> None:
        self._connections = Connections(self.answer_s)

    def leader(self, place: Place) -> Address:
        """The leader of a partition. Raises NotSentError if no broker tells one."""
        if self.fixed:
            return self.servers[0]
        if place not in self._leaders:
            names = [metadata.Request.MetadataRequestTopic(name=place.topic)]
            answer = self._ask(metadata.Request(topics=names, allow_auto_topic_creation=False), metadata.API_KEY, 12)
            brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
            for topic in answer.topics:
                for partition in topic.partitions:
                    if partition.leader_id in brokers:
                        self._leaders[Place(topic.name, partition.partition_index)] = brokers[partition.leader_id]
        if place not in self._leaders:
            raise NotSentError(f"{place} has no leader")
        return self._leaders[place]

    def coordinator(self, key_type: int, key: str) -> Address:
        """The coordinator of a group or a transactional id. Raises NotSentError if no broker tells one."""
        if (key_type, key) not in self._coordinators:
            request = find_coordinator.Request(key_type=key_type, coordinator_keys=[key])
            (found,) = self._ask(request, find_coordinator.API_KEY, 4).coordinators
            if found.error_code:
                raise NotSentError(f"the coordinator of {key}: {ErrorCode(found.error_code).name}")
            self._coordinators[key_type, key] = self.servers[0] if self.fixed else (found.host, found.port)
        return self._coordinators[key_type, key]

    def _ask(self, request: Any, api_key: int, version: int) -> Any:
        for server in self.servers:
            try:
                return self._connections.ask(server, request, api_key, version)
            except (LostError, NotSentError):
                self.servers = [*self.servers[1:], self.servers[0]]
        raise NotSentError("no broker answers")

    def forget(self) -> None:
        """Look everything up again."""
        self._leaders.clear()
        self._coordinators.clear()

    def close(self) -> None:
        self._connections.close()


class Calls:
    """Repeats requests until there is a final answer."""

    def __init__(self, routes: Routes, timing: Timing) -> None:
        self.routes = routes
        self.timing = timing

    def until_final(
        self,
        what: str,
        address: Callable[[], Address],
        connections: Connections,
        make: tuple[Any, int, int],
        codes_of: Callable[[Any], Iterable[int]],
        accepted: Iterable[int] = (),
        repeated: Iterable[int] = (),
    ) -> Any:
        """Send a request until it is answered without an error that a repetition can mend; the answer.

        :param make: the request, its API key and version.
        :param codes_of: the error codes in an answer.
        :param accepted: errors that are as good as none.
        :param repeated: errors that are to be tried again, beside the retriable ones and CONCURRENT_TRANSACTIONS.
        Raises RefusedError or TooLateError.
        """
        deadline = time.monotonic() + self.timing.patience_s
        undecided = False
        last = ""
        while True:
            try:
                answer = connections.ask(address(), *make)
            except NotSentError as error:
                last = str(error)
                self.routes.forget()
            except LostError as error:
                last = str(error)
                undecided = True
                self.routes.forget()
            else:
                codes = [code for code in codes_of(answer) if code and code not in accepted]
                if not codes:
                    return answer
                again = [code for code in codes if _may_be_repeated(code) or code in repeated]
                if len(again) < len(codes):
                    raise RefusedError(next(code for code in codes if code not in again), what, undecided)
                undecided |= not UNDECIDED.isdisjoint(codes)
                if not MOVED.isdisjoint(codes):
                    self.routes.forget()
                last = ErrorCode(codes[0]).name
            if time.monotonic() > deadline:
                raise TooLateError(f"{what}: {last}", undecided)
            time.sleep(BETWEEN_ATTEMPTS_S)


def _may_be_repeated(code: int) -> bool:
    return ErrorCode(code).retriable or code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_SERVER_ERROR)


def transaction_version(address: Address, timeout_s: float = 30.0) -> int:
    """The finalized level of ``transaction.version`` that a broker announces; 0 if it announces none."""
    with Wire.over(socket.create_connection(address, timeout=timeout_s)) as wire:
        answer = wire.ask(api_versions.Request(client_software_name="t", client_software_version="1"), 18, 4)
    levels: Mapping[str, int] = {one.name: one.max_version_level for one in answer.finalized_features}
    return levels.get(TRANSACTION_VERSION, 0)
