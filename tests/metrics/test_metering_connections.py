"""What is counted of real connections: to the byte, whatever clients do, and whichever process dies."""

import os
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from odradek._ext.shm.layout import ProcessKind
from odradek.protocol.schemas import api_versions, heartbeat, join_group, metadata
from odradek.testing import Broker
from tests import waiting
from tests.api.test_old_formats import message_set
from tests.metrics.outside import PATIENCE_S, Totals, memory_of, until, words_of
from tests.wire import Wire, batch, fetch_request, produce_request

pytestmark = [pytest.mark.xdist_group("metering"), pytest.mark.timeout(600)]

PRODUCE, FETCH, METADATA, JOIN_GROUP, HEARTBEAT, API_VERSIONS = 0, 1, 3, 11, 12, 18
CONFIG = {"num.network.threads": 2, "auto.create.topics.enable": "true", "metrics.usage.idle.ms": 1000}
CONFIG |= {"log.retention.check.interval.ms": 200, "log.cleaner.backoff.ms": 200}


class Counted:
    """A socket that counts what goes over it."""

    def __init__(self, inner: socket.socket) -> None:
        self.inner = inner
        self.sent = self.received = 0

    def sendall(self, data: bytes) -> None:
        self.inner.sendall(data)
        self.sent += len(data)

    def recv(self, size: int) -> bytes:
        data = self.inner.recv(size)
        self.received += len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


MAKING = threading.Lock()


class Client(Wire):
    """A wire with a client id, and counts of its bytes."""

    made = 0

    def __init__(self, broker: Broker, client_id: str | None) -> None:
        super().__init__(broker.host, broker.port)
        with MAKING:
            Client.made += 1
        self.client_id = client_id
        self.socket: Any = Counted(self.socket)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(CONFIG, directory=tmp_path_factory.mktemp("metering")) as made:
        yield made


@pytest.fixture
def shm(broker: Broker) -> Any:
    return memory_of(broker)


def settled(totals: Totals) -> bool:
    return totals.balance == (0, 0) and totals.open == 0 and totals.words["queued_bytes"] == 0


def closed(totals: Totals) -> int:
    """Connections that ended, whatever the reason."""
    return sum(count for name, count in totals.words.items() if name.startswith("closed_"))


def test_a_produce_is_counted_by_client_topic_and_api(broker: Broker, shm: Any) -> None:
    records = batch(b"a", b"b", b"c")
    before = until(shm, settled)
    with Client(broker, "counted-one") as client:
        client.create("orders")
        wanted = client.socket.sent, client.socket.received
        frames = [client.frame(produce_request([("orders", [(0, records)])], 1), PRODUCE, 9) for _ in range(7)]
        client.socket.sendall(b"".join(frames))
        for _ in range(7):
            assert client.receive().responses[0].partition_responses[0].error_code == 0
        sent, received = client.socket.sent - wanted[0], client.socket.received - wanted[1]
        refused = client.produce("orders", records[:-1] + b"!", version=9)
        assert refused.error_code != 0
    after = until(shm, settled)
    of_topic = after.of(client_id="counted-one", topic="orders", api_key=PRODUCE)
    rest = after.of(client_id="counted-one", topic=None, api_key=PRODUCE)
    assert of_topic["records_in"] == 21
    assert of_topic["bytes_in"] == 8 * len(records)
    assert of_topic["requests"] == rest["requests"] == 8
    assert of_topic["errors"] == 1
    assert (rest["bytes_in"] + of_topic["bytes_in"]) * 7 == sent * 8
    assert rest["bytes_out"] > received
    assert after.requests[PRODUCE, 9] - before.requests[PRODUCE, 9] == 8
    assert after.errors[PRODUCE, refused.error_code] == before.errors[PRODUCE, refused.error_code] + 1
    assert after.words["bytes_rejected"] - before.words["bytes_rejected"] == len(records)
    assert after.accepted == before.accepted + 1


def test_a_reader_is_counted_by_what_it_was_sent_and_its_position_is_known(broker: Broker, shm: Any) -> None:
    with Client(broker, "writer") as writer:
        writer.create("read", 2)
        for _ in range(10):
            writer.produce("read", batch(*[b"x" * 100] * 10), version=9)
    with Client(broker, "reader-plain") as plain:
        at, given = 0, 0
        while at < 100:
            answer = plain.fetch("read", at, partition_max_bytes=3000, version=11)
            given += len(answer.records)
            at += 10 * (len(answer.records) // len(batch(*[b"x" * 100] * 10)))
        plain.fetch("read", at, version=11)
        plain.fetch("read", 0, version=11)  # it jumps back, and is sent all of it again
        plain.fetch("read", 7, 1, version=11)
    with Client(broker, "reader-session") as session:
        made = session.ask(fetch_request([("read", 0, 20), ("read", 1, 0)], session_epoch=0), FETCH, 12)
        session.ask(fetch_request([("read", 0, 100)], session_id=made.session_id, session_epoch=1), FETCH, 12)
        session.ask(fetch_request([("read", 0, 30)], session_id=made.session_id, session_epoch=2), FETCH, 12)
    totals = until(shm, settled)
    of_topic = totals.of(client_id="reader-plain", topic="read", api_key=FETCH)
    assert of_topic["records_out"] == 200
    assert of_topic["bytes_out"] > given
    assert of_topic["errors"] == 1  # offset 7 of an empty partition
    assert totals.of(client_id="reader-session", topic="read", api_key=FETCH)["records_out"] == 80 + 70
    where = {(row.client_id, row.slot): row.offset for row in totals.positions if row.client_id.startswith("reader-")}
    assert sorted(offset for (client, _), offset in where.items() if client == "reader-plain") == [7, 100]
    assert sorted(offset for (client, _), offset in where.items() if client == "reader-session") == [0, 100]


def test_clients_are_known_by_their_software_and_how_long_they_stay(broker: Broker, shm: Any) -> None:
    hello = api_versions.Request(client_software_name="tool", client_software_version="1.2")
    with Client(broker, "long") as one, Client(broker, "long") as other:
        for client in (one, other):
            assert client.ask(hello, API_VERSIONS, 3).error_code == 0
        until(shm, lambda now: now.software["tool", "1.2", 0] == 2 and now.open == 2)
        bad = api_versions.Request(client_software_name="-", client_software_version="1")
        assert one.ask(bad, API_VERSIONS, 3).error_code == 42
        until(shm, lambda now: now.of(client_id="long")["connection_ms"] >= 1500)
    after = until(shm, lambda now: settled(now) and now.software["tool", "1.2", 0] == 0)
    assert after.errors[API_VERSIONS, 42] >= 1
    assert after.of(client_id="long", api_key=API_VERSIONS)["errors"] == 1


def test_errors_of_forwarded_requests_and_times_by_phase(broker: Broker, shm: Any) -> None:
    before = Totals(shm)
    with Client(broker, "member") as client:
        client.create("phases")
        beat = heartbeat.Request(group_id="g", generation_id=1, member_id="nobody")
        code = client.ask(beat, HEARTBEAT, 4).error_code
        assert code != 0
        began = time.monotonic()
        client.fetch("phases", 0, wait_ms=400, version=12)
        waited_us = (time.monotonic() - began) * 1e6
        client.produce("phases", batch(b"x"), version=9)
        client.produce("phases", batch(b"x", codec=3), version=9)
    after = until(shm, settled)
    assert after.errors[HEARTBEAT, code] == before.errors[HEARTBEAT, code] + 1
    assert after.of(client_id="member", api_key=HEARTBEAT)["errors"] == 1

    def times(totals: Totals, key: int, phase: str) -> tuple[int, int]:
        found = [page[key, phase] for page in totals.times if (key, phase) in page]
        return sum(sum(one.buckets) for one in found), sum(one.sum_us for one in found)

    for key, count in ((HEARTBEAT, 1), (FETCH, 1), (PRODUCE, 2)):
        for phase in ("queue", "local", "remote", "send", "total"):
            assert times(after, key, phase)[0] - times(before, key, phase)[0] == count
    parts = [times(after, FETCH, phase)[1] - times(before, FETCH, phase)[1] for phase in ("queue", "local", "send")]
    remote = times(after, FETCH, "remote")[1] - times(before, FETCH, "remote")[1]
    assert 390_000 <= remote <= waited_us
    assert times(after, FETCH, "total")[1] - times(before, FETCH, "total")[1] == remote + sum(parts)
    assert times(after, HEARTBEAT, "remote")[1] > times(before, HEARTBEAT, "remote")[1]


def test_coordinator_and_cleaner_count_what_they_do(broker: Broker, shm: Any) -> None:
    before, cleaned = words_of(shm, ProcessKind.COORDINATOR), words_of(shm, ProcessKind.CLEANER)
    with Client(broker, "keeper") as client:
        began = client.socket.sent, client.socket.received
        client.create("aged", segment_bytes=1 << 20, retention_bytes=0)
        sent, received = client.socket.sent - began[0], client.socket.received - began[1]
        client.create("folded", segment_bytes=1 << 20, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
        records = batch(b"x" * 400_000)
        for _ in range(4):
            client.produce("aged", records, version=9)
            client.produce("folded", records, version=9)
    after = words_of(shm, ProcessKind.COORDINATOR)
    assert after["forwarded_requests"] - before["forwarded_requests"] == 2
    assert 0 < sent < after["forwarded_bytes_in"] - before["forwarded_bytes_in"]
    assert 0 < received < after["forwarded_bytes_out"] - before["forwarded_bytes_out"]
    now = words_of(shm, ProcessKind.CLEANER)

    def all_done() -> bool:
        """Its words are written one after the other, and a pass may have come amid the produces."""
        now.update(words_of(shm, ProcessKind.CLEANER))
        return (
            now["segments_removed"] > cleaned["segments_removed"]
            and now["bytes_removed"] - cleaned["bytes_removed"] >= 2 * len(records)
            and now["compactions"] > cleaned["compactions"]
            and now["cleaner_passes"] > 0
            and now["busy_us"] >= now["cpu_us"] > 0
        )

    waiting.until(all_done, lambda: f"{now}, {cleaned} before", PATIENCE_S)


# -- mixed traffic --------------------------------------------------------------------------------------------------

BIG = b"z" * 60_000


def produce_much(broker: Broker, seed: int, sums: dict[str, int]) -> None:
    """Pipelined, of all versions, to several topics, some that do not exist."""
    chance = random.Random(seed)
    with Client(broker, f"producer-{seed}") as client:
        for _ in range(12):
            asked = []
            for _ in range(chance.randrange(1, 7)):
                version = chance.choice((1, 2, 3, 7, 9, 11))
                topic = chance.choice(("mixed-0", "mixed-1", "mixed-2", "no-such"))
                count = chance.randrange(1, 5)
                if version < 3:
                    data = message_set(1 if version == 2 else 0, chance.choice((0, 1)), count)
                else:
                    data = batch(*[chance.choice((b"small", BIG))] * count, codec=chance.choice((0, 0, 3)))
                acks = chance.choice((1, -1, 1, 0 if topic != "no-such" else 1))
                asked.append((client.frame(produce_request([(topic, [(0, data)])], acks), PRODUCE, version), acks))
                if acks == 0:
                    client.forget_answer()
                if topic != "no-such":
                    sums["records"] += count
            client.socket.sendall(b"".join(frame for frame, _ in asked))
            for _, acks in asked:
                if acks:
                    client.receive()
        client.ask(metadata.Request(topics=[]), METADATA, 9)  # what needs no answer is done before
        sums["sent"] += client.socket.sent
        sums["received"] += client.socket.received


def fetch_much(broker: Broker, seed: int, sums: dict[str, int]) -> None:
    """From anywhere, of all versions, with waits, with sessions, and much at once."""
    chance = random.Random(seed)
    with Client(broker, f"reader-{seed}") as client:
        for _ in range(25):
            version = chance.choice((0, 2, 3, 4, 7, 11, 12))
            topic = f"mixed-{chance.randrange(3)}"
            request = fetch_request(
                [(topic, 0, chance.randrange(0, 12)), (chance.choice(("mixed-0", "no-such")), 0, 0)],
                wait_ms=chance.choice((0, 30)),
                min_bytes=chance.choice((1, 1 << 25)),
                partition_max_bytes=chance.choice((100, 5000, 1 << 20)),
                session_epoch=chance.choice((-1, 0)) if version >= 7 else -1,
            )
            client.ask(request, FETCH, version)
        sums["sent"] += client.socket.sent
        sums["received"] += client.socket.received


def misbehave(broker: Broker, seed: int, sums: dict[str, int]) -> None:
    """Garbage, parts of frames, requests that cannot be read, and ends in the middle of everything."""
    chance = random.Random(seed)
    good = [
        (produce_request([("mixed-0", [(0, batch(BIG, BIG))])], 1), PRODUCE, 9),
        (fetch_request([("mixed-1", 0, 0)], wait_ms=5000, min_bytes=1 << 29), FETCH, 12),
        (metadata.Request(topics=None), METADATA, 9),
        (join_group.Request(group_id="g", session_timeout_ms=6000, protocol_type="consumer"), JOIN_GROUP, 5),
    ]
    for _ in range(20):
        client = Client(broker, f"bad-{seed}")
        whole = b"".join(client.frame(*chance.choice(good)) for _ in range(chance.randrange(3)))
        bad = chance.choice(
            (
                b"GET / HTTP/1.1\r\n\r\n",
                struct.pack(">i", 3) + b"abc",
                struct.pack(">i", 200 << 20) + b"abcdefgh",
                struct.pack(">ihhih", 10, FETCH, 12, 1, 5),
                struct.pack(">ihhih", 14, PRODUCE, 9, 1, -1) + b"\xff" * 4,
                struct.pack(">ihhih", 12, FETCH, 12, 1, -1) + b"\xff" * 2,
                struct.pack(">ihhih", 10, 999, 0, 1, -1),
                client.frame(*good[0])[: chance.randrange(1, 5000)],
                b"",
            )
        )
        data = whole + bad
        try:
            while data:
                n = chance.randrange(1, len(data) + 1)
                client.socket.sendall(data[:n])
                data = data[n:]
            if chance.random() < 0.3:
                client.socket.settimeout(
                    0.2
                )  # part of a frame gets no response: this client leaves after a short while
                client.socket.recv(10)
        except OSError:
            sums["cut"] += 1
        if chance.random() < 0.5:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.socket.close()


def read_and_leave(broker: Broker, seed: int, sums: dict[str, int]) -> None:
    """Ask for more than the socket takes, and go."""
    for turn in range(8):
        with Client(broker, f"gone-{seed}") as client:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(3):
                client.send(fetch_request([("mixed-0", 0, 0)]), FETCH, 2 if turn % 4 == 3 else 4)
            client.socket.recv(10)


def run_together(*jobs: Any) -> dict[str, int]:
    sums = dict.fromkeys(("sent", "received", "records", "cut"), 0)
    errors: list[BaseException] = []
    own: list[dict[str, int]] = []

    def run(job: Any, arguments: tuple[Any, ...]) -> None:
        mine = dict.fromkeys(sums, 0)
        own.append(mine)
        try:
            job(*arguments, mine)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job, arguments)) for job, *arguments in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return {name: sum(mine[name] for mine in own) for name in sums}


def test_sums_of_usage_are_what_went_over_the_sockets_to_the_byte(broker: Broker, shm: Any) -> None:
    with Client(broker, "maker") as maker:
        for i in range(3):
            maker.create(f"mixed-{i}")
            for _ in range(20):
                maker.produce(f"mixed-{i}", batch(*[BIG] * 10), version=9)
    start = until(shm, settled)
    good = run_together(*[(produce_much, broker, i) for i in range(3)], *[(fetch_much, broker, i) for i in range(3)])
    middle = until(shm, settled)
    assert middle.words["socket_bytes_in"] - start.words["socket_bytes_in"] == good["sent"]
    assert middle.words["socket_bytes_out"] - start.words["socket_bytes_out"] == good["received"]
    assert middle.of()["bytes_in"] - start.of()["bytes_in"] == good["sent"]
    assert middle.of()["bytes_out"] - start.of()["bytes_out"] == good["received"]
    assert middle.of()["records_in"] - start.of()["records_in"] == good["records"]
    assert middle.words["unsent_bytes"] == start.words["unsent_bytes"]
    assert middle.words["sendfile_bytes"] > start.words["sendfile_bytes"]
    made = Client.made
    run_together(
        *[(misbehave, broker, i) for i in range(4)],
        *[(read_and_leave, broker, i) for i in range(2)],
        (produce_much, broker, 9),
        (fetch_much, broker, 9),
    )
    # Those that went at once are perhaps not accepted yet; a close is counted a moment after it is not open any more.
    accepted = middle.accepted + Client.made - made
    end = until(shm, lambda now: settled(now) and closed(now) == now.accepted == accepted)
    assert end.words["unsent_bytes"] > middle.words["unsent_bytes"]
    assert end.words["unused_bytes_in"] > middle.words["unused_bytes_in"]
    assert end.words["bad_frames"] > middle.words["bad_frames"]
    assert end.accepted == end.words["connections_accepted"]
    with Client(broker, "teller") as teller:
        ends = sum(teller.offset_at(f"mixed-{i}", -1).offset for i in range(3))
    appended = sum(end.of(topic=f"mixed-{i}")["records_in"] for i in range(3))
    assert appended == ends


def test_a_killed_worker_takes_nothing_that_was_counted_with_it(broker: Broker, shm: Any) -> None:
    with Client(broker, "before") as client:
        client.create("killed")
        for _ in range(20):
            client.produce("killed", batch(b"x", b"y"), version=9)
    last = until(shm, settled)
    for _ in range(3):
        stop = threading.Event()

        def write(stop: threading.Event = stop) -> None:
            while not stop.is_set():
                try:
                    with Client(broker, "victim") as client:
                        while not stop.is_set():
                            client.produce("killed", batch(b"x"), version=9)
                except (OSError, EOFError):
                    continue

        threads = [threading.Thread(target=write) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(
            shm,
            lambda now, last=last: (
                now.of(client_id="victim")["requests"] > last.of(client_id="victim")["requests"] + 50
            ),
        )
        victims = [one for one in broker.processes() if one["kind"] == "worker"]
        for victim in victims[:1]:
            os.kill(victim["pid"], signal.SIGKILL)
            ended = victim["pid"]
            deadline = time.monotonic() + PATIENCE_S
            while True:
                now = Totals(shm)
                assert all(
                    now.of()[name] >= last.of()[name] for name in ("bytes_in", "bytes_out", "records_in", "requests")
                )
                last = now
                alive = [one for one in broker.processes() if one["kind"] == "worker" and one["state"] == "serving"]
                if len(alive) == len(victims) and ended not in [one["pid"] for one in alive]:
                    break
                assert time.monotonic() < deadline
        stop.set()
        for thread in threads:
            thread.join()
        last = until(shm, lambda now: now.open == 0)
    with Client(broker, "teller") as teller:
        end = teller.offset_at("killed", -1).offset
    counted = last.of(topic="killed")["records_in"]
    assert all(abs(missing) <= 9 * 500 for missing in last.balance)
    assert end - 9 <= counted <= end  # at most the requests in flight: three connections, three times


def test_a_hundred_thousand_client_ids_keep_memory_bounded(broker: Broker, shm: Any) -> None:
    """Pipelined on some connections; they come and go, so that some are retired as others come."""
    until(shm, lambda now: now.open == 0)
    before, start = broker.pss_bytes(), Totals(shm)

    def ask(first: int) -> None:
        for at in range(first, first + 12_500, 100):
            with Client(broker, None) as client:
                frames = []
                for i in range(at, at + 100):
                    client.client_id = f"random-{i}-{i * 7919 % 10007}"
                    frames.append(client.frame(fetch_request([("killed", 0, 0)], max_bytes=1), FETCH, 11))
                client.socket.sendall(b"".join(frames))
                for _ in frames:
                    client.raw_frame()

    threads = [threading.Thread(target=ask, args=(i * 12_500,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end = until(shm, lambda now: now.open == 0 and now.balance == start.balance)
    assert end.requests[FETCH, 11] - start.requests[FETCH, 11] == 100_000
    assert end.of(topic=None)["requests"] - start.of(topic=None)["requests"] == 100_000
    assert len(end.rows) < 2 * 16_384
    assert broker.pss_bytes() - before < 40 << 20
