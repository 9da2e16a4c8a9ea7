"""Limits of connections by listener, and of new connections by broker, listener and address, with a clock of the test."""

import socket

import pytest

from odradek.net.acceptor import MAX_HELD, Acceptor
from odradek.net.handover import Receiver, make_channel
from odradek.net.limits import ConnectionLimits, Limits, ListenerLimits
from odradek.quotas.rate import RatesByName, WindowedRate
from tests.quotas.kafkas_rate import KafkasRate

MANY = 2**31 - 1
INNER, OUTER = 0, 1


class Clock:
    def __init__(self):
        self.now = 1_000_000

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_the_rate_is_that_of_kafka():
    own, model, now = WindowedRate(11, 1000), KafkasRate(11, 1000), 5_000
    for number in range(3000):
        now += (number * 7919) % 613
        own.add(1.0, now)
        model.record(1.0, now)
        for limit in (0.5, 3.0, 10.0):
            assert own.wait_ms(limit, now) == model.throttle_ms(limit, now, bounded=True), number


def test_the_rates_of_many_names_are_bounded():
    rates = RatesByName(2, 1000, most=100)
    for number in range(1000):
        assert rates.admit(f"10.0.0.{number}", 1.0, number) == 0
    assert len(rates) == 100
    assert rates.admit("new", 1.0, 10_000) == 0
    assert len(rates) < 100, "names whose windows are over are forgotten"


def test_a_listener_waits_at_most_a_window_when_connections_are_too_frequent(clock):
    limits = ConnectionLimits(
        Limits(MANY, MANY, rate=10, listeners=[ListenerLimits(MANY, MANY), ListenerLimits(MANY, 2)]), clock_ms=clock
    )
    for _ in range(20):
        limits.accepted(OUTER)
    assert limits.pause_ms(OUTER) == 0
    limits.accepted(OUTER)
    assert 0 < limits.pause_ms(OUTER) <= 1000
    assert limits.pause_ms(INNER) == 0, "other listeners go on"
    clock.now += 1000
    assert limits.pause_ms(OUTER) == 0


def test_the_limit_of_the_broker_does_not_hold_the_listener_of_brokers(clock):
    listeners = [ListenerLimits(MANY, MANY, protected=True), ListenerLimits(MANY, MANY)]
    limits = ConnectionLimits(Limits(2, MANY, rate=1, listeners=listeners), clock_ms=clock)
    for number in range(50):
        limits.accepted(INNER)
        assert limits.pause_ms(INNER) == 0
        limits.add(number, "10.0.0.1", OUTER)
    assert limits.listener_full(OUTER) and not limits.listener_full(INNER)
    assert limits.excess == 48


def test_a_listener_has_a_limit_of_its_own(clock):
    limits = ConnectionLimits(
        Limits(MANY, MANY, listeners=[ListenerLimits(2, MANY), ListenerLimits(MANY, MANY)]), clock_ms=clock
    )
    limits.add(1, "a", INNER)
    limits.add(2, "a", INNER)
    assert limits.listener_full(INNER) and not limits.listener_full(OUTER)
    limits.remove(1)
    assert not limits.listener_full(INNER)


class Accepting:
    """An acceptor with one worker that receives in the test."""

    def __init__(self, limits, clock):
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.setblocking(False)
        self.channel = make_channel()
        self.acceptor = Acceptor([self.channel], limits, lambda ordinal: True, clock)
        self.receiver = Receiver(self.channel[1].fileno())

    def connect(self):
        client = socket.create_connection(self.listening.getsockname())
        self.acceptor.accept(self.listening, INNER)
        return client

    def close(self):
        self.acceptor.close()
        self.receiver.close()
        self.listening.close()
        for end in self.channel:
            end.close()


def test_a_connection_of_an_address_that_creates_too_many_is_kept_unserved_and_then_closed(clock):
    accepting = Accepting(ConnectionLimits(Limits(MANY, MANY), 2, 1000, lambda address: 2.0, clock), clock)
    served = [accepting.connect(), accepting.connect()]
    assert len(accepting.receiver.receive()) == 2
    refused = accepting.connect()
    assert accepting.receiver.receive() == [] and len(accepting.acceptor.limits) == 2
    refused.setblocking(False)
    with pytest.raises(BlockingIOError):
        refused.recv(1)
    wait_ms = accepting.acceptor.close_held()
    assert 0 < wait_ms <= 1000
    clock.now += wait_ms
    assert accepting.acceptor.close_held() == -1
    refused.setblocking(True)
    assert refused.recv(1) == b""
    served.append(accepting.connect())
    assert len(accepting.receiver.receive()) == 1, "the refused one was not counted"
    for client in [*served, refused]:
        client.close()
    accepting.close()


def test_connections_that_are_kept_unserved_are_bounded(clock):
    accepting = Accepting(ConnectionLimits(Limits(MANY, MANY), 2, 1000, lambda address: 1.0, clock), clock)
    accepting.connect().close()
    for _ in range(MAX_HELD + 10):
        accepting.connect().close()
    assert len(accepting.acceptor._held) == MAX_HELD
    accepting.close()


def test_a_connection_of_a_broker_above_the_limit_lets_the_worker_close_another(clock):
    limits = ConnectionLimits(Limits(1, MANY, listeners=[ListenerLimits(MANY, MANY, protected=True)]), clock_ms=clock)
    accepting = Accepting(limits, clock)
    clients = [accepting.connect()]
    assert len(accepting.receiver.receive()) == 1 and accepting.receiver.to_close == []
    clients.append(accepting.connect())
    assert len(accepting.receiver.receive()) == 1 and accepting.receiver.to_close == [INNER]
    for client in clients:
        client.close()
    accepting.close()
