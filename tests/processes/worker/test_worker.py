"""A worker in the test's process: a failure of one connection or request does not affect the others."""

import asyncio
import socket
import stat
from pathlib import Path

import pytest
import uvloop

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.shm.layout import ProcessKind
from odradek._ext.testing import lock_probe
from odradek.api.dispatch import Dispatcher
from odradek.config import broker_config
from odradek.net.handover import Sender, make_channel
from odradek.processes.context import ProcessContext
from odradek.processes.worker.worker import Worker
from odradek.protocol.schemas import api_versions, list_groups, produce
from odradek.testing import Broker
from tests.shm.one_broker import OneBroker
from tests.waiting import readable, until
from tests.wire import Wire, batch, produce_request

LIMIT_S = 60


class WorkerUnderTest:
    """A worker with the acceptor's end of its channel, on the running loop; its ticks come when the test calls them."""

    def __init__(self, path) -> None:
        self.broker = OneBroker(path)
        self.ours, self.theirs = make_channel()
        self.acceptor = Sender(self.ours)
        context = ProcessContext(
            config=broker_config.load(None, [f"log.dirs={path}", "listeners=PLAINTEXT://127.0.0.1:0"]),
            shm=self.broker.shm,
            index=0,
            kind=ProcessKind.WORKER,
            ordinal=0,
            count=1,
            listeners=(),
            advertised=(),
            log_dirs=[path],
            clean=[True],
            forward_path=str(path / "no-coordinator"),
            handover_fd=self.theirs.fileno(),
        )
        self.worker = Worker(context, asyncio.get_running_loop())
        self.worker.topics.refresh()

    def connect(self, number: int, peer: str) -> socket.socket:
        """Send a connection to the worker, non-blocking as those that the acceptor accepts. The client's end."""
        near, far = socket.socketpair()
        far.setblocking(False)
        self.acceptor.send(far.fileno(), number, 0, peer)
        far.close()
        return near

    def take_over(self) -> None:
        """Let the worker take over what waits in its channel, as its loop would."""
        while readable(self.worker.receiver):
            self.worker._on_handover()

    def close(self) -> None:
        self.worker.close()
        self.ours.close()
        self.theirs.close()
        self.broker.close()


def sockets() -> int:
    """How many sockets and files this process has open."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            mode = descriptor.stat().st_mode
        except FileNotFoundError:
            continue
        count += stat.S_ISSOCK(mode) or stat.S_ISREG(mode)
    return count


@pytest.fixture
def run(tmp_path):
    def runner(test) -> None:
        async def main() -> None:
            held = WorkerUnderTest(tmp_path)
            try:
                await asyncio.wait_for(test(held), LIMIT_S)
            finally:
                held.close()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(main())

    return runner


def test_a_connection_that_cannot_be_served_is_closed_and_reported_and_later_ones_are_served(run, tmp_path, caplog):
    async def test(held):
        clients = [held.connect(1, "a:1")]
        (tmp_path / "no socket").touch()
        with (tmp_path / "no socket").open() as no_socket:  # which epoll refuses
            held.acceptor.send(no_socket.fileno(), 2, 0, "b:2")
        clients.append(held.connect(3, "c:3"))
        before = sockets()
        held.take_over()
        assert sorted(held.worker.data_loop.connections.by_id) == [1, 3]
        assert held.acceptor.read_closed() == [2]
        assert sockets() == before + 2  # those that are served
        for near in clients:
            wire = Wire.over(near)
            wire.send(api_versions.Request(), api_versions.API_KEY, 0)
        held.worker._on_data()
        for near in clients:
            assert near.recv(4)
            near.close()

    run(test)
    text = "closing connection 2 from b:2 because the system cannot serve it: Operation not permitted"
    (line,) = [record for record in caplog.records if record.message == text]
    assert (line.connection_id, line.client_address) == (2, "b:2")


def test_a_connection_whose_login_cannot_begin_is_closed(run, caplog, monkeypatch):
    async def test(held):
        def fail(connection):
            raise RuntimeError("no gate")

        monkeypatch.setattr(held.worker.logins, "begin", fail)
        near = held.connect(5, "a:1")
        held.take_over()
        assert not held.worker.data_loop.connections.by_id
        assert held.acceptor.read_closed() == [5]
        assert near.recv(1) == b""
        near.close()

    run(test)
    assert "no gate" in caplog.text


def test_an_id_that_is_in_use_is_not_reported_as_closed(run, caplog):
    async def test(held):
        first, second = held.connect(7, "a:1"), held.connect(7, "a:1")
        held.take_over()
        assert list(held.worker.data_loop.connections.by_id) == [7]
        assert held.acceptor.read_closed() == []
        assert second.recv(1) == b""
        for near in (first, second):
            near.close()

    run(test)
    assert "connection id 7 is in use" in caplog.text


def test_a_retry_that_fails_closes_its_connection_and_the_others_are_tried(run, caplog):
    async def test(held):
        slot = held.broker.create("t")
        held.worker.topics.refresh()
        wires = [Wire.over(held.connect(number, f"client:{number}")) for number in range(3)]
        held.take_over()
        with lock_probe.SlotLock(slot):
            for wire in wires:
                wire.send(produce_request([("t", [(0, batch(b"x"))])], 1), produce.API_KEY, 9)
            held.worker._on_data()
            assert len(held.worker.delayed_appends._retries) == 3

        class Failing:
            """In the place of the second request."""

            def __init__(self, pending) -> None:
                self.connection, self.cancelled, self.executed, self.tries = pending.connection, False, False, 0

            def again(self):
                raise RuntimeError("as if memory were short")

        held.worker.delayed_appends._retries[1] = Failing(held.worker.delayed_appends._retries[1])
        held.worker.delayed_appends.handle_retries()
        for number in (0, 2):
            assert wires[number].receive().responses[0].partition_responses[0].error_code == 0
        assert wires[1].closed_by_broker()
        assert held.acceptor.read_closed() == [1]
        for wire in wires:
            wire.socket.close()

    run(test)
    assert "as if memory were short" in caplog.text
    assert "a Produce request of connection 1 from client:1 (client id wire) failed" in caplog.text


def test_requests_after_a_failed_retry_on_its_connection_are_not_executed(run):
    async def test(held):
        slot = held.broker.create("t")
        held.worker.topics.refresh()
        wire = Wire.over(held.connect(1, "client:1"))
        held.take_over()
        with lock_probe.SlotLock(slot):
            for number in range(2):
                wire.send(produce_request([("t", [(0, batch(b"%d" % number))])], 1), produce.API_KEY, 9)
            held.worker._on_data()
        first = held.worker.delayed_appends._retries[0]

        class Failing:
            connection, cancelled, executed, tries = first.connection, False, False, 0

            def again(self):
                raise RuntimeError("as if memory were short")

        held.worker.delayed_appends._retries[0] = Failing()
        held.worker.delayed_appends.handle_retries()
        assert wire.closed_by_broker()
        assert slot_facts.describe(slot).log_end_offset == 0
        wire.socket.close()

    run(test)


@pytest.mark.parametrize("undelivered", [False, True], ids=["all delivered", "with something undelivered"])
def test_a_worker_whose_supervisor_has_ended_stops_in_order(run, caplog, undelivered):
    async def test(held):
        caplog.set_level("INFO")
        if undelivered:  # then the channel does not end but is reset
            held.worker.receiver.report_closed([1, 2, 3])
        held.ours.close()
        held.worker._on_handover()
        assert held.worker.stopping
        await held.worker.done

    run(test)
    (line,) = [record for record in caplog.records if record.name == "odradek.requests"]
    assert (line.levelname, line.exc_info) == ("INFO", None)
    assert "the supervisor has ended" in line.message


def test_a_stop_waits_neither_for_the_coordinator_nor_for_other_clients(run, monkeypatch):
    monkeypatch.setattr("odradek.processes.worker.worker.FORWARDED_LIMIT_S", 0.05)

    async def test(held):
        waiting, idle = held.connect(1, "a:1"), held.connect(2, "b:2")
        held.take_over()
        Wire.over(waiting).send(list_groups.Request(), list_groups.API_KEY, 0)  # no coordinator answers
        held.worker._on_data()
        held.worker.stop()
        idle.setblocking(False)
        assert idle.recv(1) == b""
        assert list(held.worker.data_loop.connections.by_id) == [1]
        await held.worker.done
        assert waiting.recv(1) == b""

    run(test)


def test_a_stop_does_not_wait_long_for_a_client_that_does_not_read(run, monkeypatch):
    monkeypatch.setattr("odradek.processes.worker.worker.UNREAD_LIMIT_S", 0.05)

    async def test(held):
        reckless = held.connect(1, "a:1")
        reckless.setblocking(False)
        held.take_over()
        while held.worker.data_loop.connections.drained:
            frame = Wire.over(reckless).frame(api_versions.Request(), api_versions.API_KEY, 0)
            reckless.send(frame)
            held.worker._on_data()
        held.worker.stop()
        assert not held.worker.done.done()
        await held.worker.done

    run(test)


@pytest.mark.parametrize("failing", ["topics", "settings"])
def test_a_wake_up_serves_waiting_requests_even_if_other_work_of_it_fails(run, failing):
    async def test(held):
        worker = held.worker
        served = []

        class Purgatory:
            def serve(self):
                served.append(True)

            def serve_own(self):
                served.append(True)

            def look_at_all(self):
                served.append("all")

        def fail(*_):
            raise RuntimeError("as if memory were short")

        worker.purgatory = Purgatory()
        worker._on_wake()
        if failing == "topics":
            worker._take_over_metadata = fail
        else:
            worker._running = type("Running", (), {"changed": True, "take_over": fail})()
        worker._on_wake()  # for a slot alone: nothing else is looked at
        held.broker.shm.wake(0)
        for _ in range(2):  # the second wake-up has no news of its own, and tries again
            served.clear()
            with pytest.raises(RuntimeError):
                worker._on_wake()
            assert served[-1] is True

    run(test)


def test_a_tick_that_fails_does_not_end_the_ticks(run, caplog):
    async def test(held):
        worker = held.worker
        beats = held.broker.shm.process(0).progress

        def fail():
            raise RuntimeError("as if memory were short")

        worker.upkeep._count = fail
        worker.upkeep.tick()
        assert held.broker.shm.process(0).progress > beats
        beats = held.broker.shm.process(0).progress
        while held.broker.shm.process(0).progress == beats:
            await asyncio.sleep(0.01)

    run(test)
    assert "the worker's periodic work failed; retrying in 0.5 s" in caplog.text


def test_a_killed_supervisor_leaves_no_traceback(tmp_path):
    with Broker({"num.network.threads": 2}, directory=tmp_path) as broker:
        clients = [Wire(broker.host, broker.port) for _ in range(8)]
        for client in clients:
            client.ask(api_versions.Request(), api_versions.API_KEY, 0)
        for client in clients[:4]:
            client.socket.close()
        broker.kill()
        for client in clients:
            client.socket.close()
        log = broker.log_file.read_text()
    assert "Traceback" not in log
    assert " ERROR " not in log


def test_memory_kept_for_idle_connections_is_in_the_status(tmp_path):
    with Broker({"num.network.threads": 2}, directory=tmp_path) as broker, Wire(broker.host, broker.port) as wire:
        wire.socket.sendall((60_000_000).to_bytes(4, "big") + bytes(1_000_000))
        until(lambda: broker.status()["kept_bytes"] == 1_000_004, "the part of a request is counted")
        kept = [process["kept_bytes"] for process in broker.processes()]
        assert sorted(kept)[-2:] == [0, 1_000_004]
        wire.socket.close()
        until(lambda: broker.status()["kept_bytes"] == 0, "it is released with its connection")


def test_the_process_table_names_the_request_that_is_executed_and_its_client(run, monkeypatch):
    """After a crash, the supervisor's log line names both."""
    requests = []
    execute = Dispatcher.__call__

    async def test(held):
        def record(dispatcher, *arguments):
            requests.append(held.broker.shm.process(0).request)
            return execute(dispatcher, *arguments)

        monkeypatch.setattr(Dispatcher, "__call__", record)
        longest = f"[{':'.join(['ffff'] * 8)}]:65535"
        for number, peer in enumerate((longest, "10.1.2.3:4")):
            near = held.connect(number, peer)
            held.take_over()
            wire = Wire.over(near)
            wire.send(api_versions.Request(), api_versions.API_KEY, 0)
            held.worker._on_data()
            wire.receive()
            near.close()
        assert [request["peer"] for request in requests] == [longest, "10.1.2.3:4"]
        assert [request["client_id"] for request in requests] == ["wire", "wire"]
        assert {request["api_key"] for request in requests} == {api_versions.API_KEY}
        assert held.broker.shm.process(0).request is None  # it is executed

    run(test)
