"""How connections end, pause and stop; cold pages; many connections."""

import asyncio
import os
import socket
import struct
import threading
import time
import tracemalloc

import pytest
import uvloop

from odradek._ext.net.connection import FrameResult
from odradek._ext.net.data_loop import DataLoop
from odradek._ext.net.output import FileSlice
from odradek._ext.storage.page_cache import ColdReader
from odradek._ext.testing import storage_probe
from tests.net.connection_driver import Driver, EchoHandler, framed

TRIES = 100


class WaitingHandler(EchoHandler):
    def __init__(self):
        super().__init__()
        self.pending = []

    def answer(self, connection, frame):
        if frame.startswith(b"wait"):
            self.pending.append(connection.reserve())
            return FrameResult.FRAME_PENDING
        if frame.startswith(b"defer") and connection.pending_count:
            return FrameResult.FRAME_DEFER
        return super().answer(connection, frame)


@pytest.fixture(params=[False, True], ids=["unix", "tcp"])
def tcp(request):
    return request.param


@pytest.fixture
def driver():
    driver = Driver(WaitingHandler())
    yield driver
    driver.close()


def broker_records(caplog):
    """The log records of the broker, without those of other libraries that earlier tests left in this process."""
    return [record for record in caplog.records if record.name.startswith("odradek")]


def reset(client):
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def test_a_client_that_disconnects_is_not_logged(driver, tcp, caplog):
    client, connection = driver.connect(tcp=tcp)
    client.sendall(framed(b"question") + b"\0\0")
    assert driver.receive(client, 12) == framed(b"question")
    client.close()
    driver.until(lambda: driver.closed_ids)
    assert driver.loop.connections.closes["eof"] == 1
    assert connection.fd == -1
    assert driver.loop.connections.by_id == {}
    assert not broker_records(caplog)


def test_requests_sent_before_a_half_close_are_answered(driver, tcp):
    client, _ = driver.connect(tcp=tcp)
    stream = framed(b"one, two") + framed(b"wait here") + framed(b"and more") + framed(b"defer it")
    client.sendall(stream)
    client.shutdown(socket.SHUT_WR)
    driver.until(lambda: driver.handler.half_closed)
    assert driver.settle() < 5
    assert not driver.turn(0.01), "the half-closed connection keeps the loop awake"
    driver.handler.pending[0].complete([b"waited"])
    driver.loop.flush_dirty()
    expected = framed(b"one, two") + b"waited" + framed(b"and more") + framed(b"defer it")
    assert driver.receive_all(client) == expected
    assert driver.handler.half_closed == [1]
    assert driver.loop.connections.closes["eof"] == 1


def test_a_paused_connection_notices_a_half_close_once_and_continues_reading_later(driver, tcp):
    client, connection = driver.connect(tcp=tcp)
    client.sendall(framed(b"wait here") + framed(b"defer it"))
    driver.until(lambda: connection.muted)
    client.sendall(framed(b"unread yet"))
    client.shutdown(socket.SHUT_WR)
    driver.until(lambda: driver.handler.half_closed)
    driver.settle()
    assert not driver.turn(0.01)
    assert b"unread yet" not in driver.handler.seen
    driver.handler.pending[0].complete([b"waited"])
    driver.loop.flush_dirty()
    driver.until(lambda: driver.closed_ids)
    assert driver.receive_all(client) == b"waited" + framed(b"defer it") + framed(b"unread yet")
    assert driver.handler.half_closed == [1]


@pytest.mark.parametrize("muted", [False, True])
def test_a_reset_cancels_pending_responses(driver, muted, caplog):
    client, connection = driver.connect(tcp=True)
    client.sendall(framed(b"wait here") + (framed(b"defer it") if muted else b""))
    driver.until(lambda: driver.handler.pending and connection.muted == muted)
    reset(client)
    driver.until(lambda: driver.closed_ids)
    assert driver.handler.pending[0].cancelled
    assert driver.loop.connections.closes["reset"] == 1
    assert not broker_records(caplog)
    assert driver.loop.pool.lent_bytes == 0


def test_answering_a_disconnected_client_does_nothing(driver):
    client, _ = driver.connect(tcp=True)
    client.sendall(framed(b"wait one") + framed(b"wait two"))
    driver.until(lambda: len(driver.handler.pending) == 2)
    reset(client)
    for pending in driver.handler.pending:
        pending.complete([b"nobody reads this"])
    driver.loop.flush_dirty()
    driver.until(lambda: driver.closed_ids)
    assert driver.closed_ids == [1]
    assert driver.loop.connections.closes["reset"] == 1


def test_idle_connections_are_swept(driver):
    driver.loop.connections.idle_ms = 1000
    idle, first = driver.connect()
    _, waiting = driver.connect()
    driver.clients[1].sendall(framed(b"wait here"))
    driver.settle()
    now = int(time.monotonic() * 1000)
    assert driver.loop.connections.sweep_idle(first.last_activity_ms) == 0
    assert driver.loop.connections.sweep_idle(first.last_activity_ms + 1000) == 0
    assert driver.loop.connections.sweep_idle(now + 2000) == 1
    assert idle.recv(1) == b""
    assert waiting.fd >= 0
    assert driver.loop.connections.closes["idle"] == 1
    driver.handler.pending[0].complete()
    driver.loop.flush_dirty()
    assert driver.loop.connections.sweep_idle(now + 2000) == 1
    driver.loop.connections.idle_ms = -1
    driver.connect()
    assert driver.loop.connections.sweep_idle(now + 10**9) == 0


def test_a_throttled_connection_is_not_read_until_its_time(driver):
    class Throttling(EchoHandler):
        def answer(self, connection, frame):
            super().answer(connection, frame)
            connection.throttle(int(frame))
            return FrameResult.FRAME_DONE

    driver = Driver(Throttling())
    client, connection = driver.connect()
    client.sendall(framed(b"00005000") + framed(b"00006000"))
    driver.settle()
    assert client.recv(100) == framed(b"00005000")
    assert connection.muted
    assert driver.loop.release_throttled(4999) == 5000
    assert connection.muted
    assert driver.loop.release_throttled(5000) == 6000  # the next frame throttled it again
    assert client.recv(100) == framed(b"00006000")
    assert connection.throttled_until_ms == 6000
    assert driver.loop.release_throttled(6000) == -1
    assert not connection.muted
    driver.close()


def test_an_ordered_stop_answers_requests_in_flight_and_reads_no_more(driver):
    client, _ = driver.connect()
    client.sendall(framed(b"wait here"))
    driver.settle()
    driver.loop.stop_reading()
    assert not driver.loop.connections.drained
    client.sendall(framed(b"too late"))
    late, _ = driver.connect()
    late.sendall(framed(b"too late"))
    driver.settle()
    driver.handler.pending[0].complete([b"answered"])
    driver.loop.flush_dirty()
    driver.settle()
    assert driver.loop.connections.drained
    assert client.recv(100) == b"answered"
    assert driver.handler.seen == [b"wait here"]
    driver.loop.connections.close_all()
    assert driver.loop.connections.closes["asked"] == 2
    assert sorted(driver.closed_ids) == [1, 2]


def test_a_connection_id_is_used_once(driver):
    driver.connect()
    a, b = socket.socketpair()
    with pytest.raises(ValueError, match="connection id 1"):
        driver.loop.add(a.detach(), 1, 0, "twice")
    assert b.recv(1) == b""
    b.close()


def test_a_closed_callback_that_fails_affects_no_connection(driver, caplog):
    def fail(connection_id):
        raise ValueError(f"no connection {connection_id}")

    driver.loop.connections.on_closed = fail
    client, _ = driver.connect()
    other, _ = driver.connect()
    client.close()
    other.sendall(framed(b"question"))
    driver.settle()
    assert other.recv(100) == framed(b"question")
    assert "no connection 1" in caplog.text


def test_a_thousand_connections_cost_little_memory():
    driver = Driver()
    driver.connect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    pairs = [driver.connect() for _ in range(300)]
    for client, _ in pairs:
        client.sendall(framed(b"question"))
    driver.settle()
    for client, _ in pairs:
        assert client.recv(100) == framed(b"question")
    driver.handler.seen.clear()
    per_connection = (tracemalloc.get_traced_memory()[0] - before) / 300
    tracemalloc.stop()
    assert per_connection < 2000
    assert driver.loop.pool.lent_bytes == driver.loop.pool.retained_bytes == 0
    driver.close()


# --- cold pages ---


@pytest.fixture
def cold_file(tmp_path):
    path = tmp_path / "cold.log"
    content = os.urandom(5 << 20)
    path.write_bytes(content)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if storage_probe.is_resident(file.fileno(), 0, len(content)):
            pytest.skip("this file system keeps its pages")
        yield file, content


def evict(file):
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def request_cold_slice(driver, reads, file, tcp=True):
    """A client whose slice was found cold, and which is now the reader's to read.

    Where the kernel cannot tell what is cached but by a read that must not wait, that read begins to read the page, and a
    quick device may have it before the kernel looks again: such a try says nothing.
    """
    for _ in range(TRIES):
        client, _ = driver.connect(tcp=tcp)
        offered = len(driver.handler.seen)
        client.sendall(framed(b"slice it"))
        driver.until(lambda offered=offered: len(driver.handler.seen) > offered)
        if reads:
            return client
        closed = len(driver.closed_ids)
        client.close()
        driver.until(lambda closed=closed: len(driver.closed_ids) > closed)
        evict(file)
    raise AssertionError(f"none of {TRIES} cold slices went to the reader")


class SlicingHandler(EchoHandler):
    part = None

    def answer(self, connection, frame):
        if frame.startswith(b"slice"):
            self.loop.responses.write(b"head")
            self.loop.responses.write_file(self.part)
            return FrameResult.FRAME_DONE
        return super().answer(connection, frame)


def test_residency_is_exact(cold_file):
    file, content = cold_file
    fd = file.fileno()
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)

    def is_cold(position, length):
        """Of a file of which the first page is cached and the third. As with `request_cold_slice`, one try may say nothing."""
        for _ in range(TRIES):
            evict(file)
            os.pread(fd, 4096, 0)
            os.pread(fd, 4096, 8192)
            if not storage_probe.is_resident(fd, position, length):
                return True
        return False

    assert is_cold(0, 4097)
    assert is_cold(4095, 2)
    assert is_cold(0, 3 * 4096)
    assert storage_probe.is_resident(fd, 0, 4096)
    assert storage_probe.is_resident(fd, 100, 1)
    assert storage_probe.is_resident(fd, 8192, 4096)
    while os.pread(fd, 1 << 20, file.tell()):
        file.seek(1 << 20, os.SEEK_CUR)
    assert storage_probe.is_resident(fd, 0, len(content))


def test_a_cold_slice_is_read_off_the_loop_and_other_connections_are_served(cold_file):
    file, content = cold_file
    reads = []
    driver = Driver(SlicingHandler(), cold_reader=lambda *job: reads.append(job))
    driver.handler.part = FileSlice(file, 100, 3 << 20)
    client = request_cold_slice(driver, reads, file)
    other, _ = driver.connect()
    other.sendall(framed(b"question"))
    driver.settle()
    assert other.recv(100) == framed(b"question")
    assert not driver.turn(0.01)
    expected = b"head" + content[100 : 100 + (3 << 20)]

    def read_cold():
        while reads:
            owner, fd, position, length, callback = reads.pop()
            assert owner is file
            assert fd == file.fileno()
            assert 0 < length <= 1 << 20
            os.pread(fd, length, position)
            callback(None)

    assert driver.receive_all(client, len(expected), read_cold) == expected
    driver.close()


def test_pages_are_looked_up_again_for_a_client_that_did_not_read_for_long(cold_file):
    file, content = cold_file
    content = content[: 1 << 20]
    reads, read = [], []
    driver = Driver(SlicingHandler(), cold_reader=lambda *job: reads.append(job))
    driver.handler.part = FileSlice(file, 0, len(content))
    other, _ = driver.connect()

    def read_cold():
        while reads:
            _, fd, position, length, callback = reads.pop()
            read.append(os.pread(fd, length, position))
            callback(None)

    for _ in range(TRIES):  # the kernel may keep pages
        assert os.pread(file.fileno(), len(content), 0) == content
        client, connection = driver.connect(tcp=True, send_buffer=8192, receive_buffer=8192)
        client.sendall(framed(b"slice it"))
        offered = len(driver.handler.seen)
        driver.until(lambda offered=offered: len(driver.handler.seen) > offered)
        assert not reads, "all pages are cached"
        while driver.loop.responses.now_ms <= connection.last_activity_ms + 1_000:
            other.sendall(framed(b"question"))
            assert driver.receive(other, 12) == framed(b"question")
        evict(file)
        assert driver.receive_all(client, 4 + len(content), read_cold) == b"head" + content
        if read:
            break
    assert read, "the pages that were evicted are not read in the loop"
    driver.close()


def test_a_failed_cold_read_closes_the_connection(cold_file, caplog):
    file, _ = cold_file
    reads = []
    driver = Driver(SlicingHandler(), cold_reader=lambda *job: reads.append(job))
    driver.handler.part = FileSlice(file, 0, 1 << 20)
    client = request_cold_slice(driver, reads, file, tcp=False)
    reads[0][4](OSError(5, "Input/output error"))
    assert client.recv(4) == b"head"
    assert client.recv(4) == b""
    assert driver.loop.connections.closes["file"] == 1
    assert "Input/output error" in caplog.text
    driver.close()


def test_a_connection_may_close_during_its_cold_read(cold_file):
    file, _ = cold_file
    reads = []
    driver = Driver(SlicingHandler(), cold_reader=lambda *job: reads.append(job))
    driver.handler.part = FileSlice(file, 0, 1 << 20)
    client = request_cold_slice(driver, reads, file)
    closed = len(driver.closed_ids)
    reset(client)
    driver.until(lambda: len(driver.closed_ids) > closed)
    reads[0][4](None)
    assert driver.loop.connections.closes["reset"] == len(driver.closed_ids)
    driver.close()


def test_in_an_event_loop_with_a_cold_reader(cold_file):
    """The whole engine as a worker runs it: uvloop watches the epoll descriptor, threads read cold pages."""
    file, content = cold_file
    handler = SlicingHandler()
    handler.part = FileSlice(file, 0, len(content))
    listener = socket.create_server(("127.0.0.1", 0))

    def talk(results):
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(framed(b"question") + framed(b"slice it") + framed(b"farewell"))
            client.shutdown(socket.SHUT_WR)
            with client.makefile("rb") as stream:
                results.append(stream.read())

    async def serve():
        loop = asyncio.get_running_loop()
        cold_reader = ColdReader(loop, threads=1)
        closed = asyncio.Event()
        data_loop = DataLoop(handler, cold_reader=cold_reader, on_closed=lambda connection_id: closed.set())
        handler.loop = data_loop
        loop.add_reader(data_loop.fileno(), data_loop.on_events)
        results = []
        client = threading.Thread(target=talk, args=(results,))
        client.start()
        accepted, _ = listener.accept()
        data_loop.add(accepted.detach(), 1, 0, "the client")
        await asyncio.wait_for(closed.wait(), 120)
        client.join()
        loop.remove_reader(data_loop.fileno())
        cold_reader.close()
        with pytest.raises(RuntimeError):
            cold_reader(file, file.fileno(), 0, 1, print)
        return results, data_loop

    with listener:
        results, data_loop = uvloop.run(serve())
    assert results == [framed(b"question") + b"head" + content + framed(b"farewell")]
    assert data_loop.connections.closes["eof"] == 1
    assert data_loop.sender.sendfile_bytes == len(content)


def test_the_cold_reader_reports_disk_errors(tmp_path):
    async def read():
        loop = asyncio.get_running_loop()
        cold_reader = ColdReader(loop)
        outcomes = [loop.create_future() for _ in range(2)]
        with (tmp_path / "file").open("wb+") as file:
            file.write(b"short")
            file.flush()
            cold_reader(file, file.fileno(), 0, 10_000, outcomes[0].set_result)
            directory = os.open(tmp_path, os.O_RDONLY)
            cold_reader(file, directory, 0, 10, outcomes[1].set_result)
            results = await asyncio.gather(*outcomes)
            cold_reader.close()
            os.close(directory)
        return results

    ended_early, failed = uvloop.run(read())
    assert ended_early is None
    assert isinstance(failed, IsADirectoryError)
