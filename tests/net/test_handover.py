"""The channel between acceptor and workers, the connection counts, and the notifications to systemd; each tested alone."""

import contextlib
import os
import resource
import socket

import pytest

from odradek.config.listeners import Listener
from odradek.net import listeners
from odradek.net.handover import Receiver, Sender, make_channel
from odradek.net.limits import ConnectionLimits, Limits, canonical_address, parse_overrides
from odradek.net.notify import Notifier


@pytest.fixture
def channel():
    ours, theirs = make_channel()
    with ours, theirs:
        receiver = Receiver(theirs.fileno())
        yield Sender(ours), receiver, theirs
        receiver.close()


def test_a_socket_arrives_with_its_id_listener_and_peer(channel):
    sender, receiver, _ = channel
    assert receiver.receive() == []
    near, far = socket.socketpair()
    with near:
        assert sender.send(far.fileno(), 2**63, 7, "[::1]:65535")
        far.close()
        (item,) = receiver.receive()
        assert (item.connection_id, item.listener_index, item.peer) == (2**63, 7, "[::1]:65535")
        assert not os.get_inheritable(item.fd) and not os.get_blocking(item.fd)
        near.sendall(b"there")
        assert os.read(item.fd, 10) == b"there"
        os.close(item.fd)
        assert near.recv(1) == b""


def test_sockets_that_a_receiver_did_not_read_go_to_the_next_one(channel):
    sender, receiver, theirs = channel
    near, far = socket.socketpair()
    with near, far:
        for number in range(100):
            assert sender.send(far.fileno(), number, 0, "a:1")
        first = receiver.receive(limit=30)
        receiver.close()
        successor = Receiver(theirs.fileno())
        rest = successor.receive(limit=100)
        successor.close()
    assert [item.connection_id for item in first + rest] == list(range(100))
    for item in first + rest:
        os.close(item.fd)


def test_a_full_channel_refuses_a_socket_until_it_has_room(channel):
    sender, receiver, _ = channel
    near, far = socket.socketpair()
    sent, received = 0, []
    with near, far:
        while sender.send(far.fileno(), sent, 0, "a:1"):
            sent += 1
        received = receiver.receive(limit=10_000)
        assert len(received) == sent > 50
        assert sender.send(far.fileno(), sent, 0, "a:1")
        received += receiver.receive()
    for item in received:
        os.close(item.fd)


def test_closed_connections_are_reported_in_order(channel):
    sender, receiver, _ = channel
    receiver.report_closed(range(1700))
    receiver.report_closed([2**64 - 1])
    assert sender.read_closed() == [*range(1700), 2**64 - 1]
    assert sender.read_closed() == []


def test_closed_connections_that_do_not_fit_are_reported_later(channel):
    sender, receiver, _ = channel
    receiver.report_closed(range(500_000))
    connection_ids = []
    while len(connection_ids) < 500_000:
        more = sender.read_closed()
        assert more
        connection_ids += more
        receiver.report_closed([])
    assert connection_ids == list(range(500_000))


def test_a_message_cut_short_does_not_break_the_acceptor(channel):
    sender, _, theirs = channel
    theirs.send((5).to_bytes(8, "little") + b"abc")
    theirs.send(b"x")
    assert sender.read_closed() == [5]


def test_a_receiver_without_descriptors_reports_the_lost_connection_as_closed(channel, caplog):
    sender, receiver, _ = channel
    near, far = socket.socketpair()
    with near:
        assert sender.send(far.fileno(), 9, 0, "a:1")
        far.close()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        # below what is open for certain: another one that closes meanwhile, in a thread or by the collector, leaves no room
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            assert receiver.receive() == []
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert near.recv(1) == b""
    assert sender.read_closed() == [9]
    (line,) = caplog.records
    assert "lost connection 9 from a:1" in line.message
    assert (line.connection_id, line.client_address) == (9, "a:1")


def test_no_connection_is_counted_or_uncounted_twice():
    limits = ConnectionLimits(Limits(3, 2, {"::1": 1}))
    limits.add(1, "10.0.0.1")
    limits.add(2, "10.0.0.1")
    assert limits.refusal("10.0.0.1") == "10.0.0.1 has reached max.connections.per.ip=2"
    assert limits.refusal("10.0.0.2") is None and not limits.full
    limits.add(3, "::1")
    assert limits.full and str(limits.refusal("::1")).endswith("=1")
    for _ in range(3):
        limits.remove(1)
    assert len(limits) == 2 and limits.refusal("10.0.0.1") is None
    limits.add(4, "10.0.0.1")
    assert limits.refusal("10.0.0.1")


@pytest.mark.parametrize(
    ("address", "canonical"),
    [("::ffff:10.1.2.3", "10.1.2.3"), ("fe80::1%eth0", "fe80::1"), ("0:0::1", "::1"), ("10.0.0.1", "10.0.0.1")],
)
def test_an_address_has_one_canonical_text(address, canonical):
    assert canonical_address(address) == canonical


def test_overrides_are_read_with_names_and_both_kinds_of_address():
    assert parse_overrides("") == {}
    assert parse_overrides("10.0.0.1:5, ::1:6,[::2]:7") == {"10.0.0.1": 5, "::1": 6, "::2": 7}
    assert 8 in parse_overrides("localhost:8").values()
    with pytest.raises(ValueError, match=r"nobody\.invalid"):
        parse_overrides("nobody.invalid:1")


def test_clients_receive_the_bound_port_of_a_listener():
    configured = Listener("A", "127.0.0.1", 0, "PLAINTEXT")
    with listeners.bind(configured) as sock:
        bound = listeners.as_bound(configured, sock)
        assert bound.port == sock.getsockname()[1] != 0
        elsewhere = configured._replace(host="elsewhere", port=0)
        assert listeners.advertised([elsewhere], [bound]) == [elsewhere._replace(port=bound.port)]
        assert listeners.advertised([], [bound]) == [bound]
        with pytest.raises(listeners.BindError, match="the port is in use"):
            listeners.bind(bound)
    with pytest.raises(listeners.BindError, match=r"A://192\.0\.2\.1:0 cannot be opened"):
        listeners.bind(configured._replace(host="192.0.2.1"))
    with pytest.raises(listeners.BindError, match=r"not an address of this machine"):
        listeners.bind(configured._replace(host="no-such-host.invalid"))


@pytest.mark.parametrize("abstract", [False, True])
def test_notifications_are_lines_on_the_socket_of_systemd(tmp_path, abstract):
    address = f"@odradek-test-{os.getpid()}-{tmp_path.name}" if abstract else str(tmp_path / "n")
    with contextlib.ExitStack() as stack:
        if not abstract and len(address) > 100:
            pytest.skip("the path is too long for a socket")
        server = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        server.bind("\0" + address[1:] if abstract else address)
        notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000"})
        assert notifier.watchdog_s == 1.5
        notifier.send(READY=1, STATUS="up and running")
        assert server.recv(100) == b"READY=1\nSTATUS=up and running"
        notifier.close()


def test_without_a_notify_socket_nothing_is_sent(tmp_path, caplog):
    assert Notifier({}).watchdog_s is None
    Notifier({}).send(READY=1)
    notifier = Notifier({"NOTIFY_SOCKET": "@odradek-nobody-listens-here"})
    notifier.send(READY=1)
    assert "cannot send READY=1 to the service manager" in caplog.text
    notifier.close()
