"""Reads the status of a running broker over the Unix socket in its first log directory. Runs in the caller's process."""

import json
import os
import socket
from typing import Any

from odradek.config.pid_file import STATUS_SOCKET


def read_status(directory: str, timeout: float = 5.0) -> dict[str, Any]:
    """The supervisor's status, one JSON object.

    Raises OSError if there is no response within ``timeout`` seconds, ValueError if the response is not a JSON object.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        _connect(connection, directory)
        chunks = []
        while chunk := connection.recv(65536):
            chunks.append(chunk)
    status = json.loads(b"".join(chunks))
    if not isinstance(status, dict):
        raise ValueError(f"the response on {directory}/{STATUS_SOCKET} is not a JSON object: {status!r}")
    return status


def _connect(connection: socket.socket, directory: str) -> None:
    """Connect through ``/proc/self/fd``, because the path of a Unix socket is limited to 107 bytes."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{STATUS_SOCKET}")
    finally:
        os.close(descriptor)
