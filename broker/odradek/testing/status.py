"""Asks a running broker how it is, over the Unix socket in its first log directory."""

import json
import os
import socket
from typing import Any

from odradek.config.pid_file import STATUS_SOCKET


def read_status(directory: str, timeout: float = 5.0) -> dict[str, Any]:
    """The status that the supervisor answers: one JSON object.

    Raises OSError if nobody answers within ``timeout`` seconds, ValueError if the answer is no JSON object.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        _connect(connection, directory)
        chunks = []
        while chunk := connection.recv(65536):
            chunks.append(chunk)
    status = json.loads(b"".join(chunks))
    if not isinstance(status, dict):
        raise ValueError(f"{directory}/{STATUS_SOCKET} answered {status!r}")
    return status


def _connect(connection: socket.socket, directory: str) -> None:
    """Through ``/proc/self/fd``, since the path of a Unix socket may not be longer than 107 bytes."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{STATUS_SOCKET}")
    finally:
        os.close(descriptor)
