"""The intake of connections: with a real event loop, and the test in the place of the worker."""

import socket
from collections import deque

import pytest

from odradek._ext.shm.layout import ProcessKind
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.config.key import MAX_INT
from odradek.net.handover import Receiver, make_channel
from odradek.net.limits import ConnectionLimits, Limits
from odradek.processes.supervisor.event_loop import EventLoop
from odradek.processes.supervisor.intake import Intake

PATIENCE_S = 60.0
ONE_CONNECTION = Limits(1, 10)


class IntakeUnderTest:
    """An intake for one worker that accepts at most one connection at a time. :param limits: others than this one."""

    def __init__(self, limits=ONE_CONNECTION):
        self.loop = EventLoop()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.setblocking(False)
        self.channel = make_channel()
        self.worker = Receiver(self.channel[1].fileno())
        self.intake = Intake(
            self.loop, [self.listening], [self.channel], ConnectionLimits(limits), lambda ordinal: True
        )
        self.clients = []

    def connect(self):
        client = socket.create_connection(self.listening.getsockname(), PATIENCE_S)
        self.clients.append(client)
        return client

    def next_connection(self):
        """Turn the loop until the worker has received a connection. Returns its id."""
        while not (received := self.worker.receive()):
            assert not self.intake.acceptor.refused
            self.loop.turn()
        (item,) = received
        socket.socket(fileno=item.fd).close()
        return item.connection_id

    def one_turn(self):
        """One turn of the loop that does not wait: a timer is due."""
        self.loop.after(0, "test", lambda: None)
        self.loop.turn()

    def close(self):
        for client in self.clients:
            client.close()
        self.intake.close()
        self.worker.close()
        for sock in (self.listening, *self.channel):
            sock.close()
        self.loop.close()


@pytest.fixture
def bench():
    shm = SharedMemory(64)  # the acceptor counts in it
    shm.add_process(ProcessKind.SUPERVISOR)
    shm.enter(0)
    bench = IntakeUnderTest()
    yield bench
    bench.close()


def test_a_connection_is_accepted_only_after_open(bench):
    bench.connect()
    bench.one_turn()
    assert bench.intake.acceptor.accepted == 0
    bench.intake.open()
    assert bench.next_connection() == 1


def test_a_connection_above_the_limit_is_accepted_when_the_worker_has_closed_another(bench):
    bench.intake.open()
    for _ in range(2):
        bench.connect()
    assert bench.next_connection() == 1
    bench.one_turn()
    assert bench.intake.acceptor.accepted == 1
    bench.worker.report_closed([1])
    assert bench.next_connection() == 2


def test_after_stop_no_connection_is_accepted_but_closed_ones_are_counted(bench):
    bench.intake.open()
    bench.connect()
    assert bench.next_connection() == 1
    bench.intake.stop()
    bench.connect()
    bench.worker.report_closed([1])
    while len(bench.intake.acceptor.limits):
        bench.loop.turn()
    bench.one_turn()
    assert bench.intake.acceptor.accepted == 1


def test_after_close_the_channel_is_not_read(bench):
    bench.intake.open()
    bench.connect()
    assert bench.next_connection() == 1
    bench.intake.close()
    bench.intake.close()
    bench.worker.report_closed([1])
    bench.one_turn()
    assert len(bench.intake.acceptor.limits) == 1


def test_what_workers_report_wakes_the_loop_rarely_and_counts_for_the_next_connection():
    """The address may have one connection: each new one is accepted only if the end of the former one was read before."""
    bench = IntakeUnderTest(Limits(1000, 1))
    bench.intake.open()
    counted = bench.intake.acceptor.limits
    for number in range(1, 6):
        bench.connect()
        assert bench.next_connection() == number
        bench.worker.report_closed([number])
        if number == 1:
            while len(counted):
                bench.loop.turn()
    assert bench.intake.acceptor.refused == 0
    while len(counted):  # nobody connects: read when the channel is watched again
        bench.loop.turn()
    bench.close()


def sizes(root):
    """The summed lengths of all containers that an object of the broker keeps, directly or through others."""
    total, seen, found = 0, set(), [root]
    while found:
        one = found.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, dict):
            found += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | deque):
            found += one
        elif type(one).__module__.startswith("odradek") and not isinstance(one, type):
            found += vars(one).values() if hasattr(one, "__dict__") else ()
            continue
        else:
            continue
        total += len(one)
    return total


@pytest.mark.parametrize("most", [1000, MAX_INT])
def test_nothing_accumulates_with_the_connections(most):
    bench = IntakeUnderTest(Limits(most, most))
    bench.intake.open()
    numbers = []
    for _ in range(2):
        for _ in range(100):
            with bench.connect():
                bench.worker.report_closed([bench.next_connection()])
        bench.clients.clear()
        while len(bench.intake.acceptor.limits) or bench.loop.has_timer("watch channels"):
            bench.loop.turn()
        numbers.append(sizes(bench.intake))
    assert numbers[0] == numbers[1] and bench.intake.acceptor.handed == [0]
    bench.close()
