"""A small blocking client that uses this project's schemas, with one or many requests in flight.

Runs in the test's process. It implements no batching, no retries and no leaders: it sends exactly what the test specifies.
"""

import itertools
import socket
import struct
import time
from typing import Any

from crc32c import crc32c

from odradek.protocol import decode, encode_frame
from odradek.protocol.registry import by_key
from odradek.protocol.schemas import create_topics, delete_topics, fetch, list_offsets, metadata, produce
from odradek.protocol.schemas.header import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)
from odradek.storage.batch import Record, build_batch, read_batches

TIMEOUT_S = 90.0
UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER = 3, 6
PRODUCE_VERSION, FETCH_VERSION = 9, 12
CONSUMER, REPLICA = -1, -2
NOBODY = bytes(15) + b"\x01"
"""A topic id that no topic has."""


class Wire:
    """One connection to a broker. Raises OSError when nothing comes for `TIMEOUT_S`, EOFError when the broker closed it."""

    client_id: str | None = "wire"  # of the requests that follow

    def __init__(self, host: str, port: int) -> None:
        self._take(socket.create_connection((host, port), timeout=TIMEOUT_S))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def to(cls, broker: Any) -> "Wire":
        """To a broker or a peer with `host` and `port`."""
        return cls(broker.host, broker.port)

    @classmethod
    def over(cls, connected: socket.socket) -> "Wire":
        """On a socket that is connected already."""
        wire = cls.__new__(cls)
        connected.settimeout(TIMEOUT_S)
        wire._take(connected)
        return wire

    def _take(self, connected: socket.socket) -> None:
        self.socket = connected
        self._numbers = itertools.count(1)
        self._sent: list[tuple[int, int, int]] = []

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def frame(self, request: Any, api_key: int, version: int) -> bytes:
        """The request's bytes; its answer is to be received after those of the frames made before."""
        number = next(self._numbers)
        self._sent.append((api_key, version, number))
        return request_frame(request, api_key, version, number, self.client_id)

    def send(self, request: Any, api_key: int, version: int) -> int:
        """Send a request without waiting; its correlation id."""
        self.socket.sendall(self.frame(request, api_key, version))
        return self._sent[-1][2]

    def forget_answer(self) -> None:
        """The newest request gets no answer (acks=0)."""
        self._sent.pop()

    def receive(self, correlation_id: int | None = None) -> Any:
        """The answer to the oldest request without one, decoded to its last byte.

        :param correlation_id: of that request; None if the caller does not know it.
        """
        api_key, version, number = self._sent.pop(0)
        assert correlation_id in (None, number)
        data = self.raw_frame()
        header, at = decode(ResponseHeader, response_header_version(api_key, version), data)
        assert header.correlation_id == number
        response, end = decode(by_key(api_key).response, version, data, at)
        assert end == len(data)
        return response

    def ask(self, request: Any, api_key: int, version: int) -> Any:
        """Send, and receive the answer."""
        self.send(request, api_key, version)
        return self.receive()

    def raw_frame(self) -> bytes:
        """A response as it came, without its length."""
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def closed_by_broker(self) -> bool:
        """True once the broker has closed the connection with nothing sent before; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def to_end(self) -> bytes:
        """What comes until the broker closes the connection, in order or by a reset."""
        parts = []
        try:
            while data := self.socket.recv(1 << 16):
                parts.append(data)
        except ConnectionResetError:
            pass  # a close with unread bytes in the broker's socket
        return b"".join(parts)

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.socket.recv(min(size, 1 << 20))
            if not part:
                raise EOFError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    # -- shorthands -------------------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, **configs: object) -> bytes:
        """Create a topic (`segment_bytes=...` is segment.bytes); its id."""
        request = create_topics.Request
        topic = request.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            configs=[
                request.CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
                for key, value in configs.items()
            ],
        )
        (result,) = self.ask(request(topics=[topic], timeout_ms=60_000), create_topics.API_KEY, 7).topics
        assert result.error_code == 0, result
        return result.topic_id

    def delete(self, name: str) -> None:
        """Delete a topic."""
        state = delete_topics.Request.DeleteTopicState(name=name)
        (result,) = self.ask(
            delete_topics.Request(topics=[state], timeout_ms=60_000), delete_topics.API_KEY, 6
        ).responses
        assert result.error_code == 0, result

    def produce(
        self,
        topic: str | bytes,
        records: bytes | None,
        partition: int = 0,
        *,
        version: int = PRODUCE_VERSION,
        acks: int = -1,
    ) -> Any:
        """Produce to one partition; what the response says of it."""
        response = self.ask(produce_request([(topic, [(partition, records)])], acks), produce.API_KEY, version)
        return response.responses[0].partition_responses[0]

    def fetch(self, topic: str | bytes, offset: int, partition: int = 0, **options: Any) -> Any:
        """Fetch from one partition (options of `fetch_request`, and the version); what the response says of it."""
        version = options.pop("version", FETCH_VERSION)
        response = self.ask(fetch_request([(topic, partition, offset)], **options), fetch.API_KEY, version)
        assert response.error_code == 0
        return response.responses[0].partitions[0]

    def offset_at(self, topic: str, timestamp: int, partition: int = 0, *, version: int = 11, **options: Any) -> Any:
        """ListOffsets of one partition; what the response says of it."""
        make = list_offsets.Request
        asked = make.ListOffsetsPartition(
            partition_index=partition,
            timestamp=timestamp,
            current_leader_epoch=options.pop("leader_epoch", -1),
            max_num_offsets=options.pop("max_num_offsets", 1),
        )
        request = make(replica_id=-1, topics=[make.ListOffsetsTopic(name=topic, partitions=[asked])], **options)
        return self.ask(request, list_offsets.API_KEY, version).topics[0].partitions[0]

    def log_end(self, topic: str, partition: int) -> int:
        """The partition's log end offset, as replicas see it."""
        return self._latest(topic, partition, REPLICA)

    def latest(self, topic: str, partition: int) -> int:
        """The end of the partition, as consumers see it."""
        return self._latest(topic, partition, CONSUMER)

    def _latest(self, topic: str, partition: int, replica_id: int) -> int:
        make = list_offsets.Request
        asked = make.ListOffsetsPartition(partition_index=partition, timestamp=-1)
        request = make(replica_id=replica_id, topics=[make.ListOffsetsTopic(name=topic, partitions=[asked])])
        found = self.ask(request, list_offsets.API_KEY, 6).topics[0].partitions[0]
        assert found.error_code == 0, found
        return int(found.offset)

    def until_led(self, topic: str, partitions: int = 1) -> None:
        """Ask until each partition has a leader here: Kafka answers CreateTopics before its log is open."""
        for partition in range(partitions):
            while (code := self.offset_at(topic, -2, partition).error_code) != 0:
                assert code in (NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION), code

    def metadata(self, *names: str, version: int = 12, create: bool = False) -> Any:
        """Metadata of topics by name."""
        topics = [metadata.Request.MetadataRequestTopic(name=name) for name in names]
        request = metadata.Request(topics=topics, allow_auto_topic_creation=create)
        return self.ask(request, metadata.API_KEY, version)


def request_frame(
    request: Any, api_key: int, version: int, correlation_id: int = 1, client_id: str | None = "wire"
) -> bytes:
    """A request as it is sent, its length first."""
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return encode_frame(header, request_header_version(api_key, version), request, version)


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


def batch(*values: bytes, key: bytes | None = b"k", timestamp: int | None = None, **fields: Any) -> bytes:
    """A batch of a record per value, now if no time is given; `fields` as `build_batch` has them."""
    when = int(time.time() * 1000) if timestamp is None else timestamp
    return build_batch([Record(key, value, when) for value in values or (b"value",)], **fields)


def with_crc(data: bytes | bytearray) -> bytes:
    """A batch that was tampered with, with a CRC that is right for what it holds now."""
    return bytes(data[:17]) + crc32c(bytes(data[21:])).to_bytes(4, "big") + bytes(data[21:])


def produce_request(
    topics: list[tuple[str | bytes, list[tuple[int, bytes | None]]]],
    acks: int = -1,
    timeout_ms: int = 10_000,
    transactional_id: str | None = None,
) -> Any:
    """A Produce request; a topic is a name, or an id as bytes."""
    make = produce.Request
    return make(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            make.TopicProduceData(
                **_named(topic),
                partition_data=[make.PartitionProduceData(index=index, records=data) for index, data in partitions],
            )
            for topic, partitions in topics
        ],
    )


def fetch_request(
    places: list[tuple[str | bytes, int, int]],
    *,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 26,
    partition_max_bytes: int = 1 << 24,
    leader_epoch: int = -1,
    forget: list[tuple[str | bytes, int]] = (),
    **fields: Any,
) -> Any:
    """A Fetch request for (topic, partition, offset), a topic named as in `produce_request`."""
    make = fetch.Request
    return make(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[
            make.FetchTopic(
                **_named(topic, "topic"),
                partitions=[
                    make.FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=leader_epoch,
                    )
                ],
            )
            for topic, partition, offset in places
        ],
        forgotten_topics_data=[
            make.ForgottenTopic(**_named(topic, "topic"), partitions=[partition]) for topic, partition in forget
        ],
        **fields,
    )


def values(records: bytes | None) -> list[bytes | None]:
    """The values of all records of whole batches."""
    return [record.value for one in read_batches(bytes(records or b"")) for record in one.records()]


def offsets(records: bytes | None) -> list[int]:
    """The offsets of all records of whole batches."""
    return [record.offset for one in read_batches(bytes(records or b"")) for record in one.records()]


def whole(records: bytes | None) -> bytes:
    """The whole batches of a fetch's records; the last one may be cut."""
    data, at = bytes(records or b""), 0
    while len(data) - at >= 12:
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if end > len(data):
            break
        at = end
    return data[:at]


def _named(topic: str | bytes, field: str = "name") -> dict[str, Any]:
    return {"topic_id": topic} if isinstance(topic, bytes) else {field: topic}
