"""The listening sockets that a start binds."""

import socket
import struct
from pathlib import Path

import pytest

from odradek.config import load
from odradek.processes.launch import _bind

LIMIT = int(Path("/proc/sys/net/core/somaxconn").read_text())
"""The operating system's limit of a backlog."""


def backlog_of(listening):
    """The backlog of a listening socket, as the kernel reports it: the field `tcpi_sacked` of `struct tcp_info`."""
    return struct.unpack_from("=8B6I", listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104))[-1]


@pytest.mark.parametrize("settings", [[], ["socket.listen.backlog.size=7"]])
def test_a_listener_has_the_backlog_that_the_configuration_shows(tmp_path, settings):
    config = load(None, [f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0", *settings])
    with _bind(config, config.listeners[0]) as listening:
        assert backlog_of(listening) == min(LIMIT, config.integer("socket.listen.backlog.size"))
