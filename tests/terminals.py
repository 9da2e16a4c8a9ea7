"""Pseudo-terminals for tests of commands that write to a terminal."""

import contextlib
import fcntl
import os
import struct
import termios

from tests.waiting import until

UNREAD = 4095
"""How many bytes Linux keeps for the reader of a terminal (N_TTY_BUF_SIZE less one); it holds more on their way to him."""


def read_to_the_end(terminal: int) -> bytes:
    """The output of a terminal until no process has it open. :param terminal: the descriptor of its other end."""
    output = b""
    try:
        while part := os.read(terminal, 65536):
            output += part
    except OSError:  # EIO: the other end is closed
        pass
    return output


def fill(terminal: int, command_end: int) -> None:
    """Write to a terminal until it accepts no more, also after the kernel has moved what it can to the reader, which is later.

    :param terminal: the descriptor of the reader's end. :param command_end: that of the end with a name.
    """

    def is_full() -> bool:
        for size in (1000, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(descriptor, b"x" * size)
        return struct.unpack("i", fcntl.ioctl(terminal, termios.FIONREAD, bytes(4))) == (UNREAD,)

    descriptor = os.open(os.ttyname(command_end), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        until(is_full, "the terminal is full")
        assert is_full(), "with the room of what was moved last"
    finally:
        os.close(descriptor)
