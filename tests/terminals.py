"""Pseudo-terminals for tests of commands that write to a terminal."""

import os


def read_to_the_end(terminal: int) -> bytes:
    """The output of a terminal until no process has it open. :param terminal: the descriptor of its other end."""
    output = b""
    try:
        while part := os.read(terminal, 65536):
            output += part
    except OSError:  # EIO: the other end is closed
        pass
    return output
