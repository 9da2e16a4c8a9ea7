"""A client without a client library: frames as these tests want them, on one blocking connection to a real broker."""

import socket
import struct
import time
from typing import Any

from odradek.protocol import decode, encode_frame
from odradek.protocol.registry import by_key
from odradek.protocol.schemas import fetch, list_offsets, produce
from odradek.protocol.schemas.header import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)
from odradek.storage.batch import Record, build_batch
from odradek.testing import Broker

TIMEOUT_S = 90.0
PRODUCE_VERSION, FETCH_VERSION = 9, 12
LIST_VERSION = 6
CONSUMER, REPLICA = -1, -2


class WireConnection:
    """One connection; every wait on it is bounded by `timeout` seconds (TimeoutError)."""

    def __init__(self, broker: Broker, timeout: float = TIMEOUT_S) -> None:
        self.sock = socket.create_connection((broker.host, broker.port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> "WireConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, api_key: int, version: int, request: Any) -> int:
        """Send a request; its correlation id."""
        self._correlation_id += 1
        self.sock.sendall(request_frame(api_key, version, request, self._correlation_id))
        return self._correlation_id

    def receive(self, api_key: int, version: int, correlation_id: int) -> Any:
        """The next response, which must be the one to `correlation_id`. Raises ConnectionError at the end of stream."""
        frame = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        head, body = decode(ResponseHeader, response_header_version(api_key, version), frame)
        assert head.correlation_id == correlation_id
        response, end = decode(by_key(api_key).response, version, frame, body)
        assert end == len(frame)
        return response

    def ask(self, api_key: int, version: int, request: Any) -> Any:
        """A request and its response."""
        return self.receive(api_key, version, self.send(api_key, version, request))

    def produce(self, topic: str, partition: int, batch: bytes, version: int = PRODUCE_VERSION) -> Any:
        """Append `batch` with acks=all; the partition's part of the response."""
        response = self.ask(produce.API_KEY, version, produce_request(topic, partition, batch))
        return response.responses[0].partition_responses[0]

    def fetch(self, topic: str, partition: int, offset: int, max_wait_ms: int = 0) -> Any:
        """Fetch from `offset`; the partition's part of the response."""
        response = self.ask(fetch.API_KEY, FETCH_VERSION, fetch_request(topic, partition, offset, max_wait_ms))
        return response.responses[0].partitions[0]

    def log_end(self, topic: str, partition: int) -> int:
        """The partition's log end offset, as replicas see it."""
        return self._latest(topic, partition, REPLICA)

    def latest(self, topic: str, partition: int) -> int:
        """The partition's end, as consumers see it."""
        return self._latest(topic, partition, CONSUMER)

    def _latest(self, topic: str, partition: int, replica_id: int) -> int:
        request = list_offsets.Request
        part = request.ListOffsetsPartition(partition_index=partition, timestamp=-1)
        asked = request(replica_id=replica_id, topics=[request.ListOffsetsTopic(name=topic, partitions=[part])])
        answer = self.ask(list_offsets.API_KEY, LIST_VERSION, asked).topics[0].partitions[0]
        assert answer.error_code == 0, answer
        return int(answer.offset)

    def to_end(self) -> bytes:
        """What comes until the broker closes the connection, in order or by a reset."""
        parts = []
        try:
            while data := self.sock.recv(1 << 16):
                parts.append(data)
        except ConnectionResetError:
            pass  # a close with unread bytes in the broker's socket
        return b"".join(parts)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return bytes(data)


def request_frame(api_key: int, version: int, request: Any, correlation_id: int = 1) -> bytes:
    """A request as it goes over the wire, its length first."""
    head = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id="faults"
    )
    return encode_frame(head, request_header_version(api_key, version), request, version)


def produce_request(topic: str, partition: int, batch: bytes, timeout_ms: int = 1) -> Any:
    request = produce.Request
    part = request.PartitionProduceData(index=partition, records=batch)
    return request(
        acks=-1, timeout_ms=timeout_ms, topic_data=[request.TopicProduceData(name=topic, partition_data=[part])]
    )


def fetch_request(topic: str, partition: int, offset: int, max_wait_ms: int = 0) -> Any:
    """One partition, answered when there is a byte or the wait is over; no session."""
    request = fetch.Request
    part = request.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return request(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[request.FetchTopic(topic=topic, partitions=[part])],
    )


def batch_of(*values: bytes) -> bytes:
    """A sound record batch of today."""
    now = int(time.time() * 1000)
    return build_batch([Record(value=value, timestamp=now) for value in values])


def frames_in(data: bytes) -> int:
    """How many frames `data` is; raises ValueError if it is not whole frames."""
    count = at = 0
    while at < len(data):
        if at + 4 > len(data):
            raise ValueError("a frame's length is cut off")
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if size < 4 or at + 4 + size > len(data):
            raise ValueError(f"a frame of {size} bytes, {len(data) - at - 4} are there")
        at += 4 + size
        count += 1
    return count
