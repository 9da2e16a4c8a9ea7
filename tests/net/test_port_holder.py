"""Who has a port, as the error of a start names it."""

import os
import socket

import pytest

from odradek.config.listeners import Listener
from odradek.net import listeners
from odradek.net.port_holder import holder_of
from tests.children import end_of, fork

COMM = open("/proc/self/comm").read().strip()  # noqa: SIM115 - once


@pytest.mark.parametrize("host", ["127.0.0.1", "", "::1"])
def test_the_process_that_listens_on_a_port_is_named(host):
    with listeners.bind(Listener("A", host, 0, "PLAINTEXT")) as taken:
        port = taken.getsockname()[1]
        assert holder_of(port) == f"process {os.getpid()} ({COMM})"
        with pytest.raises(listeners.BindError, match=rf"the port is in use by process {os.getpid()} ") as caught:
            listeners.bind(Listener("B", host, port, "PLAINTEXT"))
        assert caught.value.in_use
    assert holder_of(port) == ""


def test_a_descriptor_that_vanishes_does_not_hide_its_process(monkeypatch):
    def readlink(link):
        if link.name == "0":
            raise FileNotFoundError(link)
        return link.__class__(os.readlink(link))  # noqa: PTH115 - Path.readlink is replaced

    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr("pathlib.Path.readlink", readlink)
        assert holder_of(taken.getsockname()[1]) == f"process {os.getpid()} ({COMM})"


def test_of_the_processes_of_a_socket_the_first_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended, go_on = os.pipe()
        child = fork(lambda: os.read(ended, 1))
        try:
            assert holder_of(taken.getsockname()[1]) == f"process {os.getpid()} ({COMM})"
        finally:
            os.write(go_on, b"x")
            assert end_of(child) == 0
            os.close(ended)
            os.close(go_on)
