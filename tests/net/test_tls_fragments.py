"""A client that asks for small records (max_fragment_length of RFC 6066, for machines with little memory) gets them."""

import os
import shutil
import socket
import subprocess
import threading
import time

import pytest

from tests.net.connection_driver import PATIENCE_S, framed
from tests.net.tls_driver import TlsDriver

pytestmark = [
    pytest.mark.usefixtures("tls_layer"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl"),
]
SENT = framed(os.urandom(100_000))


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_a_response_is_cut_into_the_records_that_the_client_asked_for(version):
    driver = TlsDriver()
    received = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = ["openssl", "s_client", "-quiet", version, "-maxfraglen", "512", "-connect", address]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as client:
            accepted, _ = server.accept()
            accepted.setblocking(False)
            driver.loop.add(accepted.detach(), 1, 0, "client")

            def send():
                client.stdin.write(SENT)
                client.stdin.flush()

            def receive():
                while len(received) < len(SENT) and (part := os.read(client.stdout.fileno(), 65536)):
                    received.extend(part)

            threads = [threading.Thread(target=work) for work in (send, receive)]
            for thread in threads:
                thread.start()
            until = time.monotonic() + PATIENCE_S
            while any(thread.is_alive() for thread in threads) and time.monotonic() < until:
                driver.settle()
                threads[1].join(0.01)
            client.kill()
            for thread in threads:
                thread.join()
    driver.close()
    assert received == SENT and driver.failures == []
