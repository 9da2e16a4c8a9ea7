"""Thousands of clients that begin a handshake and say nothing more: memory stays bounded, and others are served."""

import resource
import socket
import ssl
from contextlib import ExitStack

from odradek.testing import Broker
from tests.waiting import until

HALF_OPEN = 3000


def test_half_open_handshakes_lock_nobody_out():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, HALF_OPEN + 1000)), hard))
    limits = {"odradek.unauthenticated.max.connections": 500, "odradek.unauthenticated.max.connections.per.ip": 100_000}
    settings = limits | {"odradek.authentication.timeout.ms": 600_000, "num.network.threads": 1}
    with Broker(settings, tls=True) as broker, ExitStack() as stack:
        context = ssl.create_default_context(cafile=str(broker.certificates.ca))
        outgoing = ssl.MemoryBIO()
        begun = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
        try:
            begun.do_handshake()
        except ssl.SSLWantReadError:
            hello = outgoing.read()
        for number in range(HALF_OPEN):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 60))
            sock.sendall(hello if number % 2 else hello[:50])

        def served():
            try:
                with (
                    socket.create_connection(("127.0.0.1", broker.port), 60) as plain,
                    context.wrap_socket(plain, server_hostname="localhost"),
                ):
                    return True
            except OSError:
                return False  # nobody has been silent for a second yet

        for _ in range(20):
            until(served, "an honest client is served although nobody's handshake has timed out")
        (worker,) = [process for process in broker.processes() if process["kind"] == "worker"]
        assert worker["connections"] <= 510
