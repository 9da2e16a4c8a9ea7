"""The ways in which a client's connection ends."""

import socket
import struct
from collections.abc import Callable

from tests.wire import Wire

PART_OF_A_FRAME = struct.pack(">ihhi", 500, 3, 1, 77) + b"\0\x04wi"
"""The length and the first bytes of a request whose rest never comes."""


def reset(wire: Wire) -> None:
    """By RST: nothing can be sent to the client any more."""
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.socket.close()


def close(wire: Wire) -> None:
    """By FIN, as after close(): only an answer finds out that nobody reads it."""
    wire.socket.close()


def half_close(wire: Wire) -> None:
    """By FIN, as after shutdown(SHUT_WR): the client reads on."""
    wire.socket.shutdown(socket.SHUT_WR)


def killed_within_a_frame(wire: Wire) -> None:
    """The client's process ends while it sends a request."""
    wire.socket.sendall(PART_OF_A_FRAME)
    wire.socket.close()


def reset_within_a_frame(wire: Wire) -> None:
    """The same, and its host sends a RST."""
    wire.socket.sendall(PART_OF_A_FRAME)
    reset(wire)


CUTS: dict[str, Callable[[Wire], None]] = {
    cut.__name__.replace("_", " "): cut
    for cut in (reset, close, half_close, killed_within_a_frame, reset_within_a_frame)
}
