"""The channel between acceptor and workers, the connection counts, and the notifications to systemd; each tested alone."""

import contextlib
import os
import resource
import socket
from pathlib import Path

import pytest

from odradek.config.listeners import Listener
from odradek.net import listeners
from odradek.net.acceptor import Acceptor
from odradek.net.handover import SOCKETS_PER_MESSAGE, AcceptedConnection, Receiver, Sender, make_channel
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
    far.setblocking(False)
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


def test_a_receiver_need_not_look_behind_a_message_that_is_not_full(channel):
    sender, receiver, _ = channel
    near, far = socket.socketpair()
    with near, far:
        sender.request_close(3)
        for numbers in (range(16), range(16, 18), range(18, 19)):
            assert sender.send_all([AcceptedConnection(far.fileno(), number, 0, "a:1") for number in numbers])
        received = [receiver.receive(until_empty=False) for _ in range(3)]
    assert [[item.connection_id for item in group] for group in received] == [list(range(18)), [18], []]
    assert receiver.to_close == [3]
    for item in received[0] + received[1]:
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


def test_a_message_contains_many_sockets(channel):
    sender, receiver, _ = channel
    pairs = [socket.socketpair() for _ in range(SOCKETS_PER_MESSAGE)]
    sent = [
        AcceptedConnection(far.fileno(), number, number % 3, f"10.0.0.{number}:1")
        for number, (_, far) in enumerate(pairs)
    ]
    assert sender.send_all(sent) and sender.request_close(5) and sender.send_all(sent[:1])
    received = receiver.receive(limit=1)
    assert [item[1:] for item in received] == [item[1:] for item in sent] and receiver.to_close == []
    for item, (near, _) in zip(received, pairs, strict=True):
        near.sendall(b"%d" % item.connection_id)
        assert os.read(item.fd, 10) == b"%d" % item.connection_id
    received += receiver.receive()
    assert received[-1].connection_id == 0 and receiver.to_close == [5]
    for item in received:
        os.close(item.fd)
    for pair in pairs:
        for end in pair:
            end.close()


@pytest.mark.parametrize("free", range(4))
def test_the_sockets_of_a_message_for_which_no_descriptor_is_free_are_reported_as_closed(channel, free):
    sender, receiver, _ = channel
    near, far = socket.socketpair()
    with near, far:
        assert sender.send_all([AcceptedConnection(far.fileno(), number, 0, "a:1") for number in range(8)])
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + free, limits[1]))
        try:
            received = receiver.receive()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    lost = sender.read_closed()
    assert [item.connection_id for item in received] + lost == list(range(8))
    for item in received:
        os.close(item.fd)


class Handing:
    """An acceptor and the receivers of its workers, which the test calls."""

    def __init__(self, workers):
        self.channels = [make_channel() for _ in range(workers)]
        self.serving = set(range(workers))
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.listening.setblocking(False)
        self.acceptor = Acceptor(self.channels, ConnectionLimits(Limits(1 << 30, 1 << 30)), self.serving.__contains__)
        self.receivers = [Receiver(theirs.fileno()) for _, theirs in self.channels]
        self.clients = []

    def connect(self, count):
        for _ in range(count):
            self.clients.append(socket.create_connection(self.listening.getsockname()))
        assert self.acceptor.accept(self.listening, 0)

    def received(self, ordinal):
        items = []
        while more := self.receivers[ordinal].receive():
            items += more
        for item in items:
            assert not os.get_blocking(item.fd)
            os.close(item.fd)
        return [item.connection_id for item in items]

    def close(self):
        self.acceptor.close()
        for end in (*self.receivers, *self.clients, self.listening, *(end for pair in self.channels for end in pair)):
            end.close()


@pytest.fixture
def handing():
    handing = Handing(3)
    yield handing
    handing.close()


def test_connections_are_spread_evenly_and_each_arrives_once(handing):
    handing.connect(62)
    received = [handing.received(ordinal) for ordinal in range(3)]
    assert sorted(map(len, received)) == [20, 21, 21] == sorted(handing.acceptor.handed)
    assert (
        sorted(number for numbers in received for number in numbers) == list(range(1, 63))
        and handing.acceptor.waiting == 0
    )


def test_connections_go_to_the_workers_that_serve(handing):
    handing.serving -= {0, 2}
    handing.connect(10)
    assert handing.received(1) == list(range(1, 11))
    handing.serving.clear()  # as before the first one serves, or after all have died
    handing.connect(10)
    assert handing.acceptor.handed == [5, 10, 5]


def test_connections_for_full_channels_go_to_other_workers_and_wait_if_all_are_full(handing):
    near, far = socket.socketpair()
    far.setblocking(False)
    with near, far:
        filler = AcceptedConnection(far.fileno(), 1 << 40, 0, "a:1")
        for ordinal in (0, 2):
            while handing.acceptor._senders[ordinal].send(*filler):
                pass
        handing.connect(50)
        assert handing.acceptor.handed == [0, 50, 0] and handing.acceptor.waiting == 0
        assert sorted(handing.received(1)) == list(range(1, 51))
        while handing.acceptor._senders[1].send(*filler):
            pass
    handing.connect(5)
    assert handing.acceptor.waiting == 5
    for ordinal in range(3):
        handing.received(ordinal)
    handing.acceptor.hand_over()
    assert handing.acceptor.waiting == 0
    assert sorted(handing.received(0) + handing.received(2)) == [51, 52, 53, 54, 55]


def test_connections_that_a_dead_worker_had_not_received_go_to_another_one(handing):
    handing.connect(30)
    handing.serving -= {1}
    handing.acceptor.worker_died(1)
    assert handing.acceptor.handed == [15, 0, 15]
    assert sorted(handing.received(0) + handing.received(2)) == list(range(1, 31))


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


def test_after_the_socket_was_removed_one_line_is_logged(tmp_path, caplog):
    caplog.set_level("INFO")
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    notifier.send(STOPPING=1)
    notifier.extend_timeout(1.0)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "gone (NOTIFY_SOCKET) has gone" in caplog.text
