"""Connections that have not authenticated: who makes room when there are too many, and what they write to the log."""

import socket

import pytest

from odradek._ext.testing.connection_times import set_last_activity
from tests.net.connection_driver import Driver

MOST = 20


@pytest.fixture
def waiting():
    """A function that opens a connection from a peer, which must log in; returns whether the broker kept it."""
    driver = Driver()
    driver.loop.use_tls([None])
    driver.loop.connections.max_unauthenticated = MOST
    ends = []

    def connect(peer):
        ours, theirs = socket.socketpair()
        ends.append(ours)
        connect.newest = ours
        connection = driver.loop.add(theirs.detach(), len(ends), 0, peer)
        driver.loop.connections.await_authentication(connection)
        return connection.fd >= 0

    def kept_at_last(peer):
        """The address with most connections is looked for a few times in a second only."""
        while not connect(peer):
            driver.turn(0.05)

    connect.driver, connect.kept_at_last, connect.ends = driver, kept_at_last, ends
    yield connect
    driver.loop.connections.close_all()
    for end in ends:
        end.close()


@pytest.mark.parametrize("shielded", [False, True])
def test_addresses_with_many_connections_make_room_although_their_clients_speak(waiting, shielded):
    """Nobody is silent for a second here. A first connection of an address with only one does not protect those behind it."""
    count = 1 if shielded else 0
    assert count == 0 or waiting("192.0.2.9:1")
    for port in range(MOST - count):
        assert waiting(f"192.0.2.{1 + port % 2}:{port}")
    assert waiting("192.0.2.7:1") and waiting("192.0.2.8:1")
    first, second = waiting.driver.closed_ids
    assert first == count + 1 and second in (count + 2, count + 3)
    assert waiting.driver.loop.connections.unauthenticated_count == MOST


def test_an_address_with_as_many_connections_as_others_takes_no_place(waiting):
    for port in range(MOST):
        assert waiting(f"192.0.2.{port % 4}:{port}")
    waiting.kept_at_last("192.0.2.99:1")
    waiting.kept_at_last("192.0.2.99:2")
    assert not waiting("192.0.2.99:3"), "no address has more than twice as many"
    assert not waiting("192.0.2.1:1")


def test_at_the_limit_of_an_address_its_oldest_silent_connection_makes_room(waiting):
    """Clients behind one gateway share an address: silent connections of it must not keep the others from logging in."""
    loop = waiting.driver.loop
    loop.connections.max_unauthenticated_of_address = 5
    for port in range(5):
        assert waiting(f"192.0.2.1:{port}")
    assert not waiting("192.0.2.1:5"), "nobody has been silent for a second"
    for connection in loop.connections.by_id.values():
        set_last_activity(connection, loop.responses.now_ms - 2_000)
    speaking = waiting.ends[0]
    speaking.sendall(b"\0")  # it waits in the socket
    assert waiting("192.0.2.1:6") and waiting("192.0.2.1:7")
    assert waiting.driver.closed_ids == [6, 2, 3], "the first one has said something"
    assert loop.connections.unauthenticated_count == 5


def test_the_addresses_of_an_ipv6_network_count_together(waiting):
    waiting.driver.loop.connections.max_unauthenticated_of_address = 3
    for last in range(3):
        assert waiting(f"[2001:db8:1:2::{last}]:1")
    assert not waiting("[2001:db8:1:2:ffff::1]:1")
    assert waiting("[2001:db8:1:3::1]:1")
    assert waiting("[fe80::1%eth0]:1")


def test_an_ipv4_address_in_an_ipv6_address_counts_for_itself(waiting):
    waiting.driver.loop.connections.max_unauthenticated_of_address = 1
    assert waiting("[::ffff:192.0.2.1]:1") and waiting("[::ffff:192.0.2.2]:1")
    assert not waiting("[::ffff:192.0.2.1]:2")
    assert not waiting("192.0.2.1:2")


def test_the_next_crowd_is_found_when_the_first_one_has_gone(waiting):
    for port in range(12):
        assert waiting(f"192.0.2.1:{port}")
    for port in range(MOST - 12):
        assert waiting(f"192.0.2.2:{port}")
    assert waiting("192.0.2.3:1")  # 192.0.2.1 makes room
    loop = waiting.driver.loop
    for connection in list(loop.connections.by_id.values()):
        if connection.peer.startswith("192.0.2.1:"):
            loop.connections.note_authenticated(connection)
    for port in range(MOST - loop.connections.unauthenticated_count):
        assert waiting(f"192.0.2.4:{port}")
    waiting.kept_at_last("192.0.2.5:1")
    assert loop.connections.unauthenticated_count == MOST
    loop.connections.sweep_unauthenticated(loop.responses.now_ms + 20_000)
    assert loop.connections.unauthenticated_count == 0


def test_malformed_frames_of_strangers_do_not_fill_the_log(waiting, caplog):
    driver, refused = waiting.driver, []
    # returns None: nothing is logged
    driver.loop.connections.failure_log = lambda peer, text: refused.append((peer, text))

    def send_nonsense(peer, authenticated):
        assert waiting(peer)
        if authenticated:
            driver.loop.connections.note_authenticated(driver.loop.connections.by_id[len(waiting.ends)])
        waiting.newest.sendall(b"\x7f\xff\xff\xff")
        driver.turn()

    send_nonsense("192.0.2.1:1", authenticated=False)
    assert [peer for peer, _ in refused] == ["192.0.2.1:1"] and "2147483647 bytes" in refused[0][1]
    assert not caplog.records
    send_nonsense("192.0.2.1:2", authenticated=True)
    assert len(refused) == 1 and len(caplog.records) == 1
    assert driver.closed_ids == [1, 2]
