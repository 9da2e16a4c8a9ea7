"""Performs the effects of the machines: the only place where the controller writes to the store and to the channels.

Runs in the coordinator's store thread. Every write is one transaction with a check of the version of ``/controller_epoch``,
so that a controller with a successor changes nothing.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from odradek.controller.cluster.context import LiveBroker
from odradek.controller.cluster.effects import (
    Children,
    CloseChannel,
    Create,
    Delete,
    Effect,
    Group,
    GroupResult,
    Later,
    OpenChannel,
    Outgoing,
    Read,
    Send,
    Set,
    Steps,
    Write,
)
from odradek.metadata import znodes
from odradek.metadata.store import (
    CHILDREN,
    DELETED,
    Event,
    NodeError,
    NoNode,
    NotSent,
    Refused,
    Stat,
    Store,
    Transaction,
    Watch,
)

log = logging.getLogger("odradek.controller")

Result = TypeVar("Result")

OPERATIONS_A_TRANSACTION = 500
BYTES_A_TRANSACTION = 512 << 10
"""Below the size of a ZooKeeper request (1 MiB); a single group may exceed it."""
OVERHEAD_BYTES = 40  # of an operation, besides its path and data


class ControllerMoved(Exception):
    """Another controller was elected: nothing was written."""


class Channels(Protocol):
    """Connections from the controller to brokers; all calls come from the store thread.

    Each broker has at most one channel, which sends its requests in order, one at a time, and repeats a request after a lost
    connection until the channel is closed.
    """

    def open(self, broker: LiveBroker) -> None:
        """Begin a channel to a broker, also to this one; an older channel to the same id is closed first."""

    def close(self, broker_id: int) -> None:
        """End a channel and drop its requests; their ``then`` are not called."""

    def send(self, broker_id: int, api_key: int, request: Any, then: Callable[[Any], None]) -> None:
        """Queue a request; ``then`` is called with the response, in any thread. Without a channel the request is dropped."""


class Executor:
    """Executes machines for one reign.

    :param epoch_version: the version of ``/controller_epoch`` that fences the writes.
    :param on_event: called for watches, in any thread. :param on_answer: called for responses, in any thread.
    :param on_later: receives the machines of `Later`.
    :ivar refused: the store refused something for a reason that its operator can remove: everything is to be read again later.
    """

    def __init__(
        self,
        store: Store,
        channels: Channels,
        epoch_version: int,
        on_event: Callable[[Event], None],
        on_answer: Callable[[Outgoing, Any], None],
        on_later: Callable[[Steps[Any]], None],
    ) -> None:
        self._store = store
        self._channels = channels
        self._epoch_version = epoch_version
        self._on_event = on_event
        self._on_answer = on_answer
        self._on_later = on_later
        self._armed: set[tuple[bool, str]] = set()  # (whether children are watched, path)
        self._open: set[int] = set()
        self.refused = False

    def run(self, steps: Steps[Result]) -> Result:
        """Execute a machine to its end and return its result.

        Raises ControllerMoved, StoreError, and what the machine raises; the machine is closed then.
        """
        answer: Any = None
        while True:
            try:
                effect = steps.send(answer)
            except StopIteration as end:
                result: Result = end.value
                return result
            try:
                answer = self.perform(effect)
            except BaseException:
                steps.close()
                raise

    def perform(self, effect: Effect) -> Any:
        """Perform an effect and return its result. Raises ControllerMoved, StoreError."""
        match effect:
            case Write():
                return self._write(effect.groups)
            case Read():
                return self._read(effect)
            case Children():
                return self._children(effect)
            case Send():
                for outgoing in effect.requests:
                    self._send(outgoing)
            case Later():
                self._on_later(effect.steps)
            case OpenChannel():
                self._open.add(effect.broker.id)
                self._channels.open(effect.broker)
            case CloseChannel():
                self._open.discard(effect.broker_id)
                self._channels.close(effect.broker_id)
        return None

    def close(self) -> None:
        """End all channels; the reign is over."""
        for broker_id in sorted(self._open):
            self._channels.close(broker_id)
        self._open.clear()

    def _send(self, outgoing: Outgoing) -> None:
        def then(response: Any) -> None:
            self._on_answer(outgoing, response)

        self._channels.send(outgoing.broker_id, outgoing.api_key, outgoing.request, then)

    # -- reading --------------------------------------------------------------------------------------------------

    def _watch(self, event: Event) -> None:
        self._armed.discard((event.kind == CHILDREN, event.path))
        if event.kind == DELETED:
            self._armed.discard((True, event.path))
        self._on_event(event)

    def _arm(self, children: bool, path: str) -> bool:
        """Whether a watch must be set; False if it is already set, and not yet called."""
        if (children, path) in self._armed:
            return False
        self._armed.add((children, path))
        return True

    def _read(self, read: Read) -> list[tuple[bytes, Stat] | None]:
        paths = list(read.paths)
        if not read.watched:
            return self._get_many(paths)
        new = [path for path in paths if self._arm(False, path)]
        nodes = dict(zip(new, self._get_many(new, self._watch), strict=True)) if new else {}
        known = [path for path in paths if path not in nodes]
        if known:
            nodes.update(zip(known, self._get_many(known), strict=True))
        for path in new:
            if nodes[path] is not None:
                continue
            if not read.awaited:
                self._armed.discard((False, path))
            elif self._store.exists(path, self._watch) is not None:  # created since
                (nodes[path],) = self._store.get_many([path])
        return [nodes[path] for path in paths]

    def _get_many(self, paths: list[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        """The nodes; None for those that the store does not let this broker read, each of which is logged."""
        try:
            return self._store.get_many(paths, watch)
        except Refused as error:
            if len(paths) != 1:
                return [node for path in paths for node in self._get_many([path], watch)]
            self._note_refusal(error)
            return [None]

    def _note_refusal(self, error: Refused) -> None:
        if not isinstance(error, NodeError | NotSent):
            self.refused = True
            log.error("the controller cannot read a node and continues without it: %s", error)

    def _children(self, children: Children) -> list[str]:
        watch = self._watch if children.watched and self._arm(True, children.path) else None
        try:
            return self._store.children(children.path, watch)
        except NoNode:
            self._armed.discard((True, children.path))
            return []

    # -- writing --------------------------------------------------------------------------------------------------

    def _write(self, groups: Sequence[Group]) -> list[GroupResult]:
        results: list[GroupResult] = []
        for portion in portions(groups):
            try:
                results += self._commit(portion)
            except Refused as error:
                if len(portion) == 1:
                    self._note_refusal(error)
                    results.append(error)
                else:
                    results += [self._commit_alone(group) for group in portion]
        return results

    def _commit_alone(self, group: Group) -> GroupResult:
        try:
            (result,) = self._commit([group])
        except Refused as error:
            self._note_refusal(error)
            return error
        return result

    def _commit(self, groups: Sequence[Group]) -> list[GroupResult]:
        """Execute groups in one transaction. Raises Refused if a group fails, ControllerMoved, StoreError."""
        transaction = self._store.transaction().check(znodes.CONTROLLER_EPOCH, self._epoch_version)
        for group in groups:
            for operation in group:
                _add(transaction, operation)
        try:
            results = transaction.commit()
        except NodeError as error:
            if error.path == znodes.CONTROLLER_EPOCH:
                raise ControllerMoved("another controller was elected") from error
            raise
        by_group: list[GroupResult] = []
        place = 1
        for group in groups:
            by_group.append(results[place : place + len(group)])
            place += len(group)
        return by_group


def _add(transaction: Transaction, operation: Create | Set | Delete) -> None:
    match operation:
        case Create():
            transaction.create(operation.path, operation.data)
        case Set():
            transaction.set(operation.path, operation.data, operation.version)
        case Delete():
            transaction.delete(operation.path, operation.version)


def portions(groups: Sequence[Group]) -> Iterator[list[Group]]:
    """Groups in portions that fit into a transaction each."""
    portion: list[Group] = []
    operations = size = 0
    for group in groups:
        group_bytes = sum(
            OVERHEAD_BYTES + len(operation.path) + (0 if isinstance(operation, Delete) else len(operation.data))
            for operation in group
        )
        if portion and (operations + len(group) > OPERATIONS_A_TRANSACTION or size + group_bytes > BYTES_A_TRANSACTION):
            yield portion
            portion, operations, size = [], 0, 0
        portion.append(group)
        operations += len(group)
        size += group_bytes
    if portion:
        yield portion
