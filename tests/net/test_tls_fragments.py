"""Clients that ask for small records (max_fragment_length of RFC 6066, for machines with little memory) get them."""

import os
import shutil
import socket
import subprocess
import threading
import time
from contextlib import ExitStack

import pytest

from odradek._ext.net.connection import FrameResult
from odradek._ext.net.output import FileSlice
from tests.certificates import material
from tests.net.connection_driver import PATIENCE_S, framed
from tests.net.tls_driver import TlsDriver, tls_listener

pytestmark = [
    pytest.mark.usefixtures("tls_layer"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl"),
]


class SmallRecords:
    """A program that talks to the driver with records of 512 bytes, and reads nothing before `receive`."""

    def __init__(self, driver, stack, *options):
        self.driver = driver
        self.received = bytearray()
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            address = f"127.0.0.1:{server.getsockname()[1]}"
            command = ["openssl", "s_client", "-quiet", "-maxfraglen", "512", "-connect", address, *options]
            self.program = stack.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
                )
            )
            stack.callback(self.program.kill)
            accepted, _ = server.accept()
        accepted.setblocking(False)
        driver.loop.add(accepted.detach(), 1, 0, "client")

    def _drive(self, thread):
        """Let the broker work until a thread has ended."""
        thread.start()
        until = time.monotonic() + PATIENCE_S
        while thread.is_alive() and time.monotonic() < until:
            self.driver.settle()
            thread.join(0.01)
        self.driver.settle()
        assert not thread.is_alive()

    def send(self, data):
        self._drive(threading.Thread(target=self._write, args=(data,), daemon=True))

    def _write(self, data):
        view = memoryview(data)
        while view:
            view = view[self.program.stdin.write(view) :]

    def receive(self, size):
        self._drive(threading.Thread(target=self._read, args=(size,), daemon=True))
        return bytes(self.received)

    def _read(self, size):
        while len(self.received) < size and (part := self.program.stdout.read(65536)):
            self.received.extend(part)


@pytest.fixture
def stack():
    with ExitStack() as made:
        yield made


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_a_response_is_cut_into_the_records_that_the_client_asked_for(version, stack):
    driver = TlsDriver()
    stack.callback(driver.close)
    client = SmallRecords(driver, stack, version)
    frame = framed(os.urandom(30_000))
    client.send(frame)
    assert client.receive(len(frame)) == frame and driver.failures == []


@pytest.mark.parametrize("suite", ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-SHA384"])
def test_records_that_are_much_longer_than_their_content_wait_for_a_slow_client(suite, stack, tmp_path):
    """With an older suite, 512 bytes take up to 600: fewer bytes are gathered than may wait encrypted."""
    content = os.urandom(4_000_000)
    (tmp_path / "segment").write_bytes(content)
    file = stack.enter_context((tmp_path / "segment").open("rb"))
    driver = TlsDriver(listener=tls_listener(material(ciphers=suite, versions=("TLSv1.2", "TLSv1.2"))))
    stack.callback(driver.close)

    def answer(connection, frame):
        driver.loop.responses.write_file(FileSlice(file, 0, len(content)))
        return FrameResult.FRAME_DONE

    driver.handler.answer = answer
    client = SmallRecords(driver, stack, "-tls1_2", "-cipher", suite)
    client.send(framed(b"12345678"))
    assert client.receive(len(content)) == content
    assert driver.failures == [] and driver.closed_ids == []
