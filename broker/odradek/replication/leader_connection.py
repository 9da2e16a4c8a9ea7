"""A blocking connection of a replica fetcher to the leader, for the requests that are not on the data path.

Owned by one thread of the replicator. Plain text only.
"""

import socket
import struct
from typing import Any

from odradek import __version__
from odradek._ext.protocol.messages import ProtocolError
from odradek.protocol import decode, encode_frame
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ApiSchema
from odradek.protocol.schemas import api_versions, fetch, list_offsets
from odradek.protocol.schemas.header import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)

Address = tuple[str, int]

LATEST, EARLIEST_LOCAL, EARLIEST = -1, -4, -2
FIRST_WITH_EPOCH = 4
FIRST_WITH_LOCAL_START = 8
NEWEST_LIST_OFFSETS = 9
SOFTWARE = "odradek"
_VERSIONS_VERSION = 3
_MAX_RESPONSE_BYTES = 1 << 20
_SIZE = struct.Struct(">i")
_ERROR = struct.Struct(">h")


class LeaderError(Exception):
    """The leader did not answer, or answered with something that cannot be used."""


class LeaderConnection:
    """Connects, and asks for the versions that the leader serves.

    :param timeout_s: for connecting, and for each response. :param receive_buffer: SO_RCVBUF in bytes; -1: the system decides.
    :raises LeaderError: no connection, or no usable response.
    """

    def __init__(self, address: Address, client_id: str, timeout_s: float, receive_buffer: int = -1) -> None:
        self._client_id = client_id
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection(address, timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if receive_buffer > 0:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        except OSError as error:
            raise LeaderError(f"cannot connect: {error.strerror or error}") from error
        try:
            self._ranges = self._ask_versions()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; may be called more than once."""
        self._socket.close()

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self._socket.fileno()

    def newest(self, api: ApiSchema) -> int:
        """The newest version of an API that the leader serves; -1 if it does not serve the API."""
        return self._ranges.get(api.key, (0, -1))[1]

    @property
    def fetch_version(self) -> int:
        """The newest version of Fetch that the leader serves; -1 if it serves none."""
        return self.newest(fetch.SCHEMA)

    def offset_of(
        self, topic: str, partition: int, leader_epoch: int, replica_id: int, *, latest: bool
    ) -> tuple[int, int]:
        """(error code, offset): the leader's log end offset, or its log start offset.

        :raises LeaderError: no usable response.
        """
        version = min(self.newest(list_offsets.SCHEMA), NEWEST_LIST_OFFSETS)
        if version < FIRST_WITH_EPOCH:
            raise LeaderError(f"it serves ListOffsets only up to version {version}")
        earliest = EARLIEST_LOCAL if version >= FIRST_WITH_LOCAL_START else EARLIEST
        wanted = list_offsets.Request.ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=leader_epoch, timestamp=LATEST if latest else earliest
        )
        request = list_offsets.Request(
            replica_id=replica_id, topics=[list_offsets.Request.ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        response = self._ask(list_offsets.SCHEMA, request, version)
        for row in response.topics:
            for found in row.partitions:
                if (row.name, found.partition_index) == (topic, partition):
                    return found.error_code, found.offset
        raise LeaderError("its response to ListOffsets does not contain the partition")

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        message = api_versions.Request(client_software_name=SOFTWARE, client_software_version=__version__)
        response = self._ask(api_versions.SCHEMA, message, _VERSIONS_VERSION)
        if response.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            raise LeaderError(f"it refused ApiVersions with error code {response.error_code}")
        return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}

    def _ask(self, api: ApiSchema, message: Any, version: int) -> Any:
        """Send a request and wait for the response."""
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=api.key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        )
        try:
            self._socket.sendall(encode_frame(header, request_header_version(api.key, version), message, version))
            (size,) = _SIZE.unpack(self._receive(_SIZE.size))
            if not _SIZE.size <= size <= _MAX_RESPONSE_BYTES:
                raise LeaderError(f"it sent a response of {size} bytes to {api.name}")
            frame = self._receive(size)
        except OSError as error:
            raise LeaderError(f"no response to {api.name}: {error.strerror or error}") from error
        try:
            return self._decode(api, version, frame)
        except ProtocolError as error:
            raise LeaderError(f"it sent a malformed response to {api.name}: {error}") from error

    def _decode(self, api: ApiSchema, version: int, frame: bytes) -> Any:
        header, start = decode(ResponseHeader, response_header_version(api.key, version), frame)
        if header.correlation_id != self._correlation_id:
            raise LeaderError(f"it sent a response with another correlation id to {api.name}")
        if api is api_versions.SCHEMA and frame[start : start + 2] == _ERROR.pack(ErrorCode.UNSUPPORTED_VERSION):
            version = 0
        return decode(api.response, version, frame, start)[0]

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise LeaderError("it closed the connection")
            data += part
        return bytes(data)
