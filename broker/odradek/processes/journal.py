"""Sends log messages to systemd's journal in its native protocol, one datagram with named fields for each message.

Used by every process of the broker with ``log.format=journal``. It never blocks and never raises: a message for which the
journal has no room is dropped and counted, and the next one that is sent says how many were lost. If the journal's socket
does not exist or refuses the datagram, the message goes to the standard error stream. Each message opens its own socket,
so that no descriptor is shared with children, or kept when a child closes what it does not need.

The protocol: https://systemd.io/JOURNAL_NATIVE_PROTOCOL/
"""

import errno
import fcntl
import logging
import os
import socket
import struct
from collections.abc import Callable, Iterable
from typing import TextIO

ADDRESS = "/run/systemd/journal/socket"
TOO_LARGE = (errno.EMSGSIZE, errno.ENOBUFS)
"""Errors of a datagram that is larger than the socket's buffer: its content goes into a memfd, whose descriptor is sent."""

Field = tuple[str, object]
FieldsOf = Callable[[logging.LogRecord], Iterable[Field]]


def encode(fields: Iterable[Field]) -> bytes:
    """The fields of one message in the native protocol. A value with a line break is written with its length."""
    parts = []
    for name, value in fields:
        data = str(value).encode("utf-8", "backslashreplace")
        if b"\n" in data:
            parts.append(name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n")
        else:
            parts.append(name.encode() + b"=" + data + b"\n")
    return b"".join(parts)


def send(data: bytes, address: str = ADDRESS) -> bool:
    """Send one message. Returns False if the journal has no room for it now. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sender:
        try:
            try:
                sender.sendto(data, address)
            except OSError as error:
                if error.errno not in TOO_LARGE:
                    raise
                _send_file(sender, data, address)
        except BlockingIOError:
            return False
    return True


def _send_file(sender: socket.socket, data: bytes, address: str) -> None:
    """Send the message as a sealed memfd. Raises OSError."""
    fd = os.memfd_create("odradek-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        fcntl.fcntl(
            fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        )
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))
        sender.sendmsg([b""], [rights], 0, address)
    finally:
        os.close(fd)


class JournalHandler(logging.StreamHandler[TextIO]):
    """Sends each record to the journal; writes it to a stream, with its formatter, if that fails.

    :param stream: the standard error stream. :param fields: gives the fields of a record.
    """

    def __init__(self, stream: TextIO, fields: FieldsOf, address: str = ADDRESS) -> None:
        super().__init__(stream)
        self.lost = 0
        self._fields = fields
        self._address = address

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record. Never raises."""
        try:
            data = encode(self._fields(record))
        except Exception:
            self.handleError(record)
            return
        try:
            if self.lost and send(encode(self._fields(self._loss())), self._address):
                self.lost = 0
            if not send(data, self._address):
                self.lost += 1
        except OSError:
            super().emit(record)

    def _loss(self) -> logging.LogRecord:
        text = "%d messages were lost, because the journal did not read them"
        return logging.LogRecord("odradek.supervisor", logging.WARNING, __file__, 0, text, (self.lost,), None)
