"""A leader for tests of replica fetchers: serves Fetch with sessions, ListOffsets and ApiVersions from logs in memory.

It is strict: it notes in `complaints` everything that a follower must not do. Each connection has its own thread; `changed`
protects the state. A test may replace `answer_fetch` to let the leader misbehave.
"""

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from odradek.protocol import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas import api_versions, fetch, list_offsets, sasl_authenticate, sasl_handshake
from odradek.protocol.schemas.header import decode_request_header, response_header_version

FETCH, LIST_OFFSETS, API_VERSIONS, HANDSHAKE, AUTHENTICATE = 1, 2, 18, 17, 36
LATEST = -1
BATCH_HEADER = struct.Struct(">q4xi7xi")
"""Base offset, leader epoch, last offset delta."""
Key = tuple[bytes | str, int]
"""Topic id (before version 13: name) and partition."""
Response = fetch.Response
TopicResponse = fetch.Response.FetchableTopicResponse
PartitionData = fetch.Response.PartitionData


@dataclass
class Led:
    """The log of a partition. :ivar error: returned for every request."""

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int = 1
    batches: list[bytes] = field(default_factory=list)
    log_start: int = 0
    error: int = 0
    high_watermark: int | None = None

    @property
    def ends(self) -> list[tuple[int, int, bytes]]:
        """(leader epoch, last offset, bytes) of the batches, from their headers: a test may have damaged them."""
        return [
            (epoch, base + delta, data)
            for data in self.batches
            for base, epoch, delta in [BATCH_HEADER.unpack_from(data)]
        ]

    @property
    def log_end(self) -> int:
        return self.ends[-1][1] + 1 if self.batches else self.log_start

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The largest epoch that is not above `epoch`, and its end offset."""
        below = [(other, last + 1) for other, last, _ in self.ends if other <= epoch]
        return below[-1] if below else (-1, -1)

    def answer(self, wanted: Any) -> Any:
        """The leader's answer to a request for this partition."""
        data = PartitionData(
            partition_index=self.partition,
            high_watermark=self.log_end if self.high_watermark is None else self.high_watermark,
            last_stable_offset=0,
            log_start_offset=self.log_start,
            records=b"",
        )
        end = self.log_end
        if self.error or wanted.current_leader_epoch != self.leader_epoch:
            older = wanted.current_leader_epoch < self.leader_epoch
            data.error_code = self.error or (ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)
        elif wanted.fetch_offset < self.log_start:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif wanted.last_fetched_epoch >= 0 and self.batches and self._diverges(wanted):
            epoch, end = self.end_of(wanted.last_fetched_epoch)
            data.diverging_epoch = fetch.Response.EpochEndOffset(epoch=epoch, end_offset=end)
        elif wanted.fetch_offset > end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            data.records = self.records(wanted.fetch_offset, wanted.partition_max_bytes)
        return data

    def _diverges(self, wanted: Any) -> bool:
        epoch, end = self.end_of(wanted.last_fetched_epoch)
        return epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset

    def records(self, offset: int, limit: int) -> bytes:
        found = b""
        for _, last, data in self.ends:
            if last >= offset:
                if found and len(found) + len(data) > limit:
                    break
                found += data
        return found


@dataclass
class Session:
    epoch: int = 1
    wanted: dict[Key, Any] = field(default_factory=dict)
    told: dict[Key, tuple[int, int]] = field(default_factory=dict)


class FakeLeader:
    """See the module. :ivar fetches: all Fetch requests, with their versions. :ivar behind_fetches: the number of requests that
    followers sent behind a Fetch to end its wait. :param context: of a listener with TLS. :param lifetime_ms: of the session of
    a login; None: the listener does not use SASL."""

    def __init__(
        self,
        fetch_versions: tuple[int, int] = (4, 17),
        context: ssl.SSLContext | None = None,
        lifetime_ms: int | None = None,
    ) -> None:
        self.context = context
        self.lifetime_ms = lifetime_ms
        self.login_error = 0
        self.changed = threading.Condition()
        self.logs: dict[Key, Led] = {}
        self.complaints: list[str] = []
        self.fetches: list[tuple[int, Any]] = []
        self.clients: set[str] = set()
        self.connections = 0
        self.behind_fetches = 0
        self.sessions: dict[int, Session] = {}
        self.sessions_allowed = True
        self.fetch_versions = fetch_versions
        self.answer_fetch: Callable[[int, Any], Any] = self.good_fetch
        self.frame: Callable[[bytes], bytes] = lambda frame: frame  # changes the frames of responses to Fetch
        self.deliver: Callable[[socket.socket, bytes], None] = lambda connection, answer: connection.sendall(answer)
        self._next_session = 1
        self._open: set[socket.socket] = set()
        self._closing = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> "FakeLeader":
        return self

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self._closing = True
            self.changed.notify_all()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(30)

    def lead(self, topic: str, topic_id: bytes, partition: int = 0, **fields: Any) -> Led:
        with self.changed:
            led = self.logs[topic_id, partition] = Led(topic, topic_id, partition, **fields)
            self.changed.notify_all()
        return led

    def append(self, led: Led, *batches: bytes) -> None:
        with self.changed:
            led.batches += batches
            self.changed.notify_all()

    def cut(self) -> None:
        """Close all connections."""
        with self.changed:
            for connection in self._open:
                with contextlib.suppress(OSError):  # the follower has closed it
                    connection.shutdown(socket.SHUT_RDWR)

    def complain(self, text: str) -> None:
        self.complaints.append(text)

    # -- connections --------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self.changed:
                self.connections += 1
                if self.context is not None:
                    connection = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                self._open.add(connection)
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                thread.start()
                self._threads.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        ends = float("inf")
        try:
            with connection, connection.makefile("rb") as stream:
                while len(size := stream.read(4)) == 4:
                    frame = stream.read(struct.unpack(">i", size)[0])
                    if time.monotonic() > ends:
                        self.complain("a request in a session that has ended")
                    if struct.unpack_from(">h", frame)[0] == AUTHENTICATE and self.lifetime_ms:
                        ends = time.monotonic() + self.lifetime_ms / 1000
                    answer = self._answer(frame)
                    if answer is None:
                        return
                    self.deliver(connection, answer)
        except OSError:
            pass  # the follower closed the connection, or the test did
        finally:
            with self.changed:
                self._open.discard(connection)

    def _answer(self, frame: bytes) -> bytes | None:
        header, body = decode_request_header(frame)
        key, version = header.request_api_key, header.request_api_version
        message, end = decode(by_key(key).request, version, frame, body)
        if end != len(frame):
            self.complain(f"{len(frame) - end} bytes behind request {key}")
        with self.changed:
            self.clients.add(header.client_id)
            if key == API_VERSIONS:
                self.behind_fetches += header.correlation_id < 0
                response: Any = self._versions()
            elif key == LIST_OFFSETS:
                response = self._offsets(message)
            elif key == HANDSHAKE:
                response = sasl_handshake.Response(error_code=0, mechanisms=["PLAIN"])
            elif key == AUTHENTICATE:
                right = bytes(message.auth_bytes) == b"\0b\0secret" and not self.login_error
                response = sasl_authenticate.Response(
                    error_code=0 if right else int(ErrorCode.SASL_AUTHENTICATION_FAILED),
                    error_message="" if right else "wrong password",
                    auth_bytes=b"",
                    session_lifetime_ms=self.lifetime_ms or 0,
                )
            else:
                self.fetches.append((version, message))
                self.changed.notify_all()
                response = self.answer_fetch(version, message)
        if response is None or isinstance(response, bytes):
            return response
        head = struct.pack(">i", header.correlation_id)
        head += b"\0" * response_header_version(key, version)
        answer = head + encode(response, version)
        answer = struct.pack(">i", len(answer)) + answer
        return self.frame(answer) if key == FETCH else answer

    def _versions(self) -> Any:
        rows = {FETCH: self.fetch_versions, LIST_OFFSETS: (1, 9), API_VERSIONS: (0, 3)}
        if self.lifetime_ms is not None:
            rows |= {HANDSHAKE: (0, 1), AUTHENTICATE: (0, 2)}
        return api_versions.Response(
            api_keys=[
                api_versions.Response.ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in rows.items()
            ]
        )

    def _offsets(self, request: Any) -> Any:
        topics = []
        for topic in request.topics:
            (wanted,) = topic.partitions
            led = next(
                led for led in self.logs.values() if (led.topic, led.partition) == (topic.name, wanted.partition_index)
            )
            if wanted.current_leader_epoch != led.leader_epoch or request.replica_id < 0:
                self.complain(f"ListOffsets {request}")
            row = list_offsets.Response.ListOffsetsPartitionResponse(
                partition_index=led.partition,
                error_code=led.error,
                offset=led.log_end if wanted.timestamp == LATEST else led.log_start,
            )
            topics.append(list_offsets.Response.ListOffsetsTopicResponse(name=topic.name, partitions=[row]))
        return list_offsets.Response(topics=topics)

    # -- Fetch --------------------------------------------------------------------------------------------------------

    def good_fetch(self, version: int, request: Any) -> Any:
        """The answer of a leader that works."""
        if request.session_epoch == 0:
            number = 0
            if self.sessions_allowed:
                number, self._next_session = self._next_session, self._next_session + 1
            session = Session()
            self.sessions[number] = session
        else:
            number = request.session_id
            known = self.sessions.get(number)
            if known is None:
                return Response(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            session = known
            if request.session_epoch != session.epoch:
                return Response(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            session.epoch += 1
        self._take_request(session, version, request)
        answers = self._collect(session)
        if not answers and self.changed.wait_for(
            lambda: self._closing or bool(self._collect(session)), request.max_wait_ms / 1000
        ):
            answers = self._collect(session)
        for key, data in answers.items():
            session.told[key] = (data.high_watermark, data.log_start_offset)
        return Response(session_id=number, responses=[self.topic(version, *row) for row in answers.items()])

    def topic(self, version: int, key: Key, *partitions: Any) -> Any:
        """A topic of a response."""
        led = self.logs[key]
        return TopicResponse(topic=led.topic, topic_id=led.topic_id, partitions=list(partitions))

    def _take_request(self, session: Session, version: int, request: Any) -> None:
        for topic in request.topics:
            for partition in topic.partitions:
                session.wanted[self._key(version, topic, partition.partition)] = partition
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                if session.wanted.pop(self._key(version, topic, number), None) is None:
                    self.complain(f"the follower forgets {topic}, which is not in the session")

    def _key(self, version: int, topic: Any, partition: int) -> Key:
        if version >= 13:
            return topic.topic_id, partition
        return next(led.topic_id for led in self.logs.values() if led.topic == topic.topic), partition

    def _collect(self, session: Session) -> dict[Key, Any]:
        answers = {}
        for key, wanted in session.wanted.items():
            led = self.logs.get(key)
            if led is None:
                continue
            data = led.answer(wanted)
            news = (data.high_watermark, data.log_start_offset) != session.told.get(key)
            if data.records or data.error_code or data.diverging_epoch.epoch >= 0 or news:
                answers[key] = data
        return answers
