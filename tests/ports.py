"""Ports for programs that must be told by number where to listen, kept from everybody else until they do, and after."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved() -> Iterator[int]:
    """A port of 127.0.0.1 that the system gives to nobody else meanwhile.

    It is bound and not listened on. Whoever asks for it by number with SO_REUSEADDR may listen on it: programs in Go and
    Java do, Python's servers, and the broker.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
