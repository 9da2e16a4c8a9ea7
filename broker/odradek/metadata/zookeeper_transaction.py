"""The transactions of `ZookeeperStore`, and the limits of its requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol.states import ZnodeStat

from odradek.metadata.store import (
    ANY_VERSION,
    REQUEST_BYTES,
    NoSession,
    NotEmpty,
    Stat,
    StoreUnavailable,
    TooLarge,
    check_path,
)
from odradek.metadata.zookeeper_errors import NOT_TRIED, error_of

if TYPE_CHECKING:
    from odradek.metadata.zookeeper import ZookeeperStore

OPERATION_BYTES = 128
"""More than an operation needs in a request in addition to its path and its data."""

Request = Callable[[KazooClient], Any]
"""Makes a request; returns kazoo's object for the response."""


def stat_of(stat: ZnodeStat) -> Stat:
    """The Stat of a node."""
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.numChildren, stat.ctime)


class ZookeeperTransaction:
    """See `Transaction`."""

    def __init__(self, store: ZookeeperStore, change: Callable[[Request, str], Any]) -> None:
        self._store = store
        self._change = change
        self._operations: list[tuple[str, str, dict[str, Any]]] = []
        self._bytes = 0

    def _add(self, verb: str, path: str, data: bytes = b"", **arguments: Any) -> ZookeeperTransaction:
        self._operations.append((verb, check_path(path), arguments))
        self._bytes += len(path) + len(data) + OPERATION_BYTES
        return self

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> ZookeeperTransaction:
        """See `Transaction`."""
        acl = self._store.acl(path)
        return self._add("create", path, data, value=data, acl=acl, ephemeral=ephemeral, sequence=sequential)

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> ZookeeperTransaction:
        """See `Transaction`."""
        return self._add("set_data", path, data, value=data, version=version)

    def delete(self, path: str, version: int = ANY_VERSION) -> ZookeeperTransaction:
        """See `Transaction`."""
        return self._add("delete", path, version=version)

    def check(self, path: str, version: int) -> ZookeeperTransaction:
        """See `Transaction`."""
        return self._add("check", path, version=version)

    def commit(self) -> list[str | Stat | None]:
        """See `Transaction`. Raises OutcomeUnknown if the transaction may have been executed; TooLarge.

        kazoo does not raise the error of a refused transaction: its results contain it.
        """
        if not self._operations:
            return []
        check_size(self._largest()[1], self._bytes)
        for verb, path, arguments in self._operations:
            if arguments.get("ephemeral") and self._store.session is None:
                raise NoSession(f"an ephemeral node needs a session: {path}")
            if path == "/" and verb == "delete":
                raise NotEmpty(path)
        results = self._change(self._request, self._operations[0][1])
        for (verb, path, _), result in zip(self._operations, results, strict=True):
            if isinstance(result, KazooException) and not isinstance(result, NOT_TRIED):
                raise error_of(result, path, self._store.options.hosts, verb == "create")
        if any(isinstance(result, KazooException) for result in results):
            raise StoreUnavailable(f"{self._operations[0][1]}: ZooKeeper refused the transaction without a reason")
        return [_result_of(result) for result in results]

    def _largest(self) -> tuple[str, str, dict[str, Any]]:
        """The operation with the most data."""
        return max(self._operations, key=lambda operation: len(operation[2].get("value", b"")))

    def _request(self, client: KazooClient) -> Any:
        request = client.transaction()
        for verb, path, arguments in self._operations:
            getattr(request, verb)(path, **arguments)
        return request.commit_async()


def _result_of(result: object) -> str | Stat | None:
    """The result of one operation of a transaction."""
    if isinstance(result, ZnodeStat):
        return stat_of(result)
    return result if isinstance(result, str) else None


def check_size(path: str, size: int) -> None:
    """Raise TooLarge for a change that ZooKeeper does not accept in one request. :param size: of the request, in bytes."""
    if size > REQUEST_BYTES:
        raise TooLarge(f"a change of {path} needs {size} bytes; ZooKeeper accepts {REQUEST_BYTES} in one request")
