"""Malformed input: the client gets Kafka's error code or a closed connection, the log has the reason, others are not
affected.
"""

import os
import random
import socket
import ssl
import struct

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    api_versions,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    list_offsets,
    metadata,
    offset_commit,
    produce,
    sync_group,
)
from odradek.storage.batch import HEADER, RecordBatch, read_batch
from odradek.testing import Broker
from tests.faults.hostile import QUIET, Bystander, damaged, framed
from tests.waiting import until
from tests.wire import (
    Wire,
    fetch_request,
    frames_in,
    produce_request,
    request_frame,
)
from tests.wire import (
    batch as batch_of,
)

TOPIC = "abused"
CONFIG = {
    "num.network.threads": 2,
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 2,
    "group.max.session.timeout.ms": 10_000,  # whoever joins is answered within it, damaged as the request may be
}
FUZZED_CONNECTIONS = int(os.environ.get("ODRADEK_FUZZED_CONNECTIONS", "600"))
MESSAGE_SET_V1 = struct.Struct(">qiIbbqii")

pytestmark = [pytest.mark.xdist_group("bad_input"), pytest.mark.timeout(240 + FUZZED_CONNECTIONS // 20)]


def produce_of(records):
    """A request that waits for nothing."""
    return produce_request([(TOPIC, [(0, records)])], timeout_ms=1)


def coordinated(connection):
    """Whether the coordinator reports an unknown member; before that it is not the coordinator, or loads its log."""
    connection.ask(find_coordinator.Request(key="fuzz"), find_coordinator.API_KEY, 0)
    asked = sync_group.Request(group_id="fuzz", generation_id=1, member_id="nobody")
    return connection.ask(asked, sync_group.API_KEY, 0).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture(scope="module")
def victim(tmp_path_factory):
    """The shared broker with its bystander; at the end no process has been restarted."""
    directory = tmp_path_factory.mktemp("bad-input")
    with Broker(CONFIG, {TOPIC: 1, QUIET: 1}, directory=directory) as broker:
        before = [(one["kind"], one["ordinal"], one["pid"]) for one in broker.processes()]
        bystander = Bystander(broker)
        with Wire.to(broker) as connection:
            until(lambda: coordinated(connection), "groups are coordinated")
        yield broker, bystander
        bystander.end()
        after = broker.processes()
        assert [(one["kind"], one["ordinal"], one["pid"]) for one in after] == before
        assert {one["restarts"] for one in after} == {0} and broker.status()["memory_faults"] == 0
        print(f"\n{len(bystander.offsets)} appends of the bystander")
        assert "Traceback" not in broker.log_file.read_text()


@pytest.fixture
def broker(victim):
    broker, bystander = victim
    bystander.goes_on()
    yield broker
    bystander.goes_on()


def logged(broker, since, *words):
    """Wait until a line of the log after byte `since` has all the words. The close precedes its line by a moment."""

    def lines():
        return broker.log_file.read_bytes()[since:].decode(errors="replace").splitlines()

    until(
        lambda: any(all(word in line for word in words) for line in lines()),
        lambda: f"no line of the log has {words}: {lines()}",
    )


def tls_hello():
    """The first flight of a TLS client, by the library itself."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def header_of(api_key, version):
    return struct.pack(">hhih", api_key, version, 1, -1)


CLOSED = {
    "garbage": (b"\xff\xfegarbage\x00" * 100, ["frame of -"]),
    "an HTTP request": (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", ["HTTP"]),
    "a TLS hello": (tls_hello(), ["TLS"]),
    "a frame of 2 GB": (struct.pack(">i", 2**31 - 1) + b"x" * 100, ["frame of 2147483647 bytes"]),
    "a negative size": (struct.pack(">i", -1) + b"x" * 100, ["frame of -1 bytes"]),
    "a size of 0": (struct.pack(">i", 0) + b"x" * 100, ["frame of 0 bytes"]),
    "a client id longer than its frame": (framed(struct.pack(">hhih", 3, 1, 1, 500)), ["header", "malformed"]),
    "an unknown API": (framed(header_of(999, 0)), ["API key 999", "does not support this API"]),
    "a negative API": (framed(header_of(-5, 0)), ["API key -5"]),
    "an unknown version of Metadata": (framed(header_of(3, 99)), ["API key 3, version 99"]),
    "an unknown version of Produce": (framed(header_of(0, 99) + bytes(50)), ["Produce version 99"]),
    "an unknown version of Fetch": (framed(header_of(1, 99) + bytes(50)), ["Fetch", "99"]),
    "a negative version": (framed(header_of(3, -1)), ["version -1"]),
    "a cut Metadata": (framed(header_of(3, 1) + struct.pack(">i", 10)), ["Metadata", "cannot be read"]),
    "a cut Produce": (request_frame(produce_of(batch_of(b"x")), 0, 3)[:30], None),
    "a Produce of 2 billion topics": (
        framed(header_of(0, 3) + struct.pack(">hhii", -1, -1, 1, 2**31 - 1)),
        ["Produce", "names more than 65536"],
    ),
    "a Fetch of 2 billion topics": (
        framed(header_of(1, 4) + struct.pack(">iiiibi", -1, 0, 1, 1, 0, 2**31 - 1)),
        ["Fetch", "names more than 65536"],
    ),
}
"""The bytes to send, and the words in the broker's log line about the close; None if the sender closes first."""


@pytest.mark.parametrize("name", CLOSED)
def test_a_connection_that_cannot_be_understood_is_closed_and_the_log_says_why(broker, name):
    data, words = CLOSED[name]
    since = broker.log_file.stat().st_size
    with Wire.to(broker) as connection:
        peer = "{}:{}".format(*connection.socket.getsockname())
        connection.socket.sendall(data)
        if words is None:
            connection.socket.shutdown(socket.SHUT_WR)
        answer = connection.to_end()
    assert answer == b"" or b"HTTP" in data
    if words is not None:
        logged(broker, since, peer, *words)


def test_what_came_before_the_bad_frame_is_answered(broker):
    with Wire.to(broker) as connection:
        good = request_frame(api_versions.Request(), api_versions.API_KEY, 0, 77)
        connection.socket.sendall(good + struct.pack(">i", -1))
        answer = connection.to_end()
    assert frames_in(answer) == 1 and answer[4:8] == struct.pack(">i", 77)


def test_api_versions_of_the_future_are_answered_in_version_0(broker):
    with Wire.to(broker) as connection:
        connection.frame(api_versions.Request(), api_versions.API_KEY, 0)  # the response is one to this
        connection.socket.sendall(framed(header_of(api_versions.API_KEY, 99)))
        response = connection.receive()
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert {key.api_key for key in response.api_keys} >= {0, 1, 3, 18}
        assert connection.produce(TOPIC, batch_of(b"and it may go on")).error_code == 0


def wrong_crc():
    batch = bytearray(batch_of(b"value"))
    batch[-1] ^= 1
    return bytes(batch)


def relabelled(**fields):
    """A batch with a wrong header and a correct CRC."""
    batch, _ = read_batch(batch_of(b"one", b"two"))
    values = {name: getattr(batch, name) for name in RecordBatch.__dataclass_fields__}
    return bytes(RecordBatch(**(values | fields)))


def shortened(batch):
    """A header that states more bytes than the batch has."""
    return batch[:8] + struct.pack(">i", len(batch) + 100) + batch[12:]


def old_message_set():
    """A message of format v1."""
    return MESSAGE_SET_V1.pack(0, 27, 0, 1, 0, 1, -1, 5) + b"value"


BATCHES = {
    "a wrong CRC": (wrong_crc(), ErrorCode.CORRUPT_MESSAGE),
    "fewer bytes than it says": (shortened(batch_of(b"value")), ErrorCode.CORRUPT_MESSAGE),
    "only a part of a header": (batch_of(b"value")[:40], ErrorCode.CORRUPT_MESSAGE),
    "more records than it says": (relabelled(record_count=1, last_offset_delta=0), ErrorCode.INVALID_RECORD),
    "fewer records than it says": (relabelled(record_count=3, last_offset_delta=2), ErrorCode.INVALID_RECORD),
    "a count and a last offset that differ": (relabelled(last_offset_delta=7), ErrorCode.INVALID_RECORD),
    "2 billion records": (relabelled(record_count=2**31 - 1, last_offset_delta=2**31 - 2), ErrorCode.INVALID_RECORD),
    "a negative count": (relabelled(record_count=-1), ErrorCode.INVALID_RECORD),
    "a control record": (relabelled(attributes=0x20), ErrorCode.INVALID_RECORD),
    "a message of format v1": (old_message_set(), ErrorCode.INVALID_RECORD),
    "records that are no records": (relabelled(payload=b"\xff" * 40), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("version", [3, 9])
def test_a_batch_that_lies_is_refused_with_kafkas_error_and_the_connection_lives(broker, name, version):
    batch, code = BATCHES[name]
    with Wire.to(broker) as connection:
        good = connection.produce(TOPIC, batch_of(b"before"), version=version)
        assert good.error_code == 0
        assert connection.produce(TOPIC, batch, version=version).error_code == code
        after = connection.produce(TOPIC, batch_of(b"after"), version=version)
        assert (after.error_code, after.base_offset) == (0, good.base_offset + 1)


def test_a_compressed_batch_of_noise_is_refused(broker):
    with Wire.to(broker) as connection:
        for codec in (1, 2, 3, 4, 5, 7):
            noise = random.Random(codec).randbytes(200)
            result = connection.produce(TOPIC, relabelled(attributes=codec, payload=noise))
            assert result.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, 76), (codec, result)


def sound_frames():
    """One request of each API for the fuzzer; none may create, delete or wait for anything."""
    partition = list_offsets.Request.ListOffsetsPartition(partition_index=0, timestamp=-1)
    offsets = list_offsets.Request(
        topics=[list_offsets.Request.ListOffsetsTopic(name=TOPIC, partitions=[partition])], replica_id=-1
    )
    nobody = {"group_id": "fuzz", "member_id": "nobody"}
    protocol = join_group.Request.JoinGroupRequestProtocol(name="range", metadata=b"topics")
    join = join_group.Request(session_timeout_ms=6000, protocol_type="consumer", protocols=[protocol], **nobody)
    part = sync_group.Request.SyncGroupRequestAssignment(member_id="nobody", assignment=b"partitions")
    sync = sync_group.Request(generation_id=1, assignments=[part], **nobody)
    beat = heartbeat.Request(generation_id=1, **nobody)
    place = offset_commit.Request.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    named = offset_commit.Request.OffsetCommitRequestTopic(name=TOPIC, partitions=[place])
    commit = offset_commit.Request(group_id="fuzz", topics=[named])
    return [
        *(request_frame(join, join_group.API_KEY, version) for version in (0, 5, 9)),
        *(request_frame(sync, sync_group.API_KEY, version) for version in (0, 3, 5)),
        *(request_frame(beat, heartbeat.API_KEY, version) for version in (0, 4)),
        *(request_frame(commit, offset_commit.API_KEY, version) for version in (1, 2, 7, 8, 10)),
        *(request_frame(produce_of(batch_of(b"fuzz")), produce.API_KEY, version) for version in (3, 9)),
        *(request_frame(fetch_request([(TOPIC, 0, 0)]), 1, version) for version in (4, 12)),
        *(request_frame(metadata.Request(topics=[]), metadata.API_KEY, version) for version in (1, 12)),
        *(request_frame(api_versions.Request(), api_versions.API_KEY, version) for version in (0, 3)),
        *(request_frame(offsets, list_offsets.API_KEY, version) for version in (1, 7)),
        *(request_frame(init_producer_id.Request(), init_producer_id.API_KEY, version) for version in (0, 4)),
    ]


def test_random_bytes_end_in_whole_responses_and_a_closed_connection(broker):
    seed = int(os.environ.get("ODRADEK_FAULT_SEED") or random.SystemRandom().randrange(1 << 32))
    rng = random.Random(seed)
    print(f"\nODRADEK_FAULT_SEED={seed}")
    sound = sound_frames()
    answered = silent = 0
    for number in range(FUZZED_CONNECTIONS):
        if number % 4 == 0:
            data = rng.randbytes(rng.randrange(1, 400))
        elif number % 4 == 1:
            data = framed(rng.randbytes(rng.randrange(8, 400)))
        else:
            frames = [damaged(rng, rng.choice(sound)) for _ in range(rng.randrange(1, 5))]
            data = b"".join([rng.choice(sound), *frames] if rng.random() < 0.5 else frames)
        with Wire.to(broker) as connection:
            cut = rng.randrange(len(data)) if number % 3 == 0 else 0
            try:
                connection.socket.sendall(data[:cut])
                connection.socket.sendall(data[cut:])
                connection.socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # closed at the first part
            try:
                answer = connection.to_end()
            except TimeoutError:
                raise AssertionError(f"connection {number} hangs: {data.hex()}") from None
        frames = frames_in(answer)
        answered += frames > 0
        silent += frames == 0
    print(f"{FUZZED_CONNECTIONS} connections: {answered} got responses, {silent} were closed without")
    assert answered > 20 and silent > 20


def test_the_log_of_the_abused_topic_is_sound(broker):
    with Wire.to(broker) as connection:
        end = connection.produce(TOPIC, batch_of(b"last")).base_offset + 1
        offset = 0
        while offset < end:
            part = connection.fetch(TOPIC, offset)
            assert part.error_code == 0
            data, at = bytes(part.records), 0
            while at + HEADER.size <= len(data) and at + 12 + int.from_bytes(data[at + 8 : at + 12], "big") <= len(
                data
            ):
                batch, at = read_batch(data, at)
                assert batch.base_offset == offset and len(batch.records()) == batch.record_count
                offset = batch.last_offset + 1


def test_the_sound_frames_of_the_fuzzer_are_sound(broker):
    for frame in sound_frames():
        with Wire.to(broker) as connection:
            connection.socket.sendall(frame)
            connection.socket.shutdown(socket.SHUT_WR)
            assert frames_in(connection.to_end()) == 1
