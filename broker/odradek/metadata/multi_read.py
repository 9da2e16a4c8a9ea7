"""Reads of many nodes in one request to ZooKeeper (multiRead, since ZooKeeper 3.6). Used by `ZookeeperStore` only.

kazoo lacks this request. A request of kazoo has a `type`, `serialize`, and `deserialize`, which kazoo calls in its connection
thread. The request and the response of a multiRead are built like those of a transaction: a header for each operation, and one
that ends the list.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, KazooException
from kazoo.protocol.serialization import (
    GetChildren,
    GetData,
    MultiHeader,
    int_struct,
    multiheader_struct,
    read_buffer,
    read_string,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat

PATHS_A_REQUEST = 200
"""The maximum number of nodes in a request."""
MULTI_READ = 22
ERROR = -1
END: bytes = multiheader_struct.pack(-1, True, -1)

Node = tuple[bytes | None, ZnodeStat]
Kind = type[GetData] | type[GetChildren]


class MultiRead(NamedTuple):
    """A request of ZooKeeper's type multiRead, which reads the data, or the children, of several nodes at once.

    :ivar kind: GetData or GetChildren. :ivar paths: the nodes, with the chroot.
    """

    kind: Kind
    paths: Sequence[str]

    @property
    def type(self) -> int:
        """ZooKeeper's number of the operation."""
        return MULTI_READ

    def serialize(self) -> bytes:
        """The request."""
        header: bytes = MultiHeader(self.kind.type, False, -1).serialize()
        requests: list[bytes] = [self.kind(path, None).serialize() for path in self.paths]
        return b"".join(header + request for request in requests) + END

    def deserialize(self, response: bytes, offset: int) -> list[Node | list[str] | KazooException]:
        """For each path the data and the ZnodeStat, or the names of the children, or the reason why it cannot be read."""
        read: Callable[[bytes, int], tuple[Any, int]] = _node if self.kind is GetData else _children
        results: list[Any] = []
        while True:
            kind, done, _ = multiheader_struct.unpack_from(response, offset)
            offset += multiheader_struct.size
            if done:
                break
            result, offset = (_error if kind == ERROR else read)(response, offset)
            results.append(result)
        if len(results) != len(self.paths):
            raise ValueError(f"ZooKeeper returned {len(results)} nodes for {len(self.paths)} paths")
        return results


def _error(response: bytes, offset: int) -> tuple[KazooException, int]:
    (code,) = int_struct.unpack_from(response, offset)
    return EXCEPTIONS[code](), offset + int_struct.size


def _node(response: bytes, offset: int) -> tuple[Node, int]:
    data, offset = read_buffer(response, offset)
    stat = ZnodeStat._make(stat_struct.unpack_from(response, offset))
    return (data, stat), offset + stat_struct.size


def _children(response: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = int_struct.unpack_from(response, offset)
    offset += int_struct.size
    names = []
    for _ in range(count):
        name, offset = read_string(response, offset)
        names.append(name)
    return names, offset


def read_nodes(client: KazooClient, kind: Kind, paths: Sequence[str]) -> Any:
    """Send a multiRead; returns kazoo's object for the response, which is that of `MultiRead.deserialize`."""
    root = client.chroot
    pending = client.handler.async_result()
    client._call(MultiRead(kind, [root + path if path != "/" else root or path for path in paths]), pending)
    return pending


def portions(paths: Sequence[str]) -> list[Sequence[str]]:
    """Paths in portions of one request each."""
    return [paths[start : start + PATHS_A_REQUEST] for start in range(0, len(paths), PATHS_A_REQUEST)]
