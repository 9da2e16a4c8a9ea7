"""Ports for programs that must be told by number where to listen, kept from everybody else until they do, and after."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def reserved(ports: int = 1) -> Iterator[int]:
    """A port of 127.0.0.1 that the system gives to nobody else meanwhile, nor so many less one behind it.

    It is bound and not listened on. Whoever asks for it by number with SO_REUSEADDR may listen on it: programs in Go and
    Java do, Python's servers, and the broker.
    """
    while True:
        with ExitStack() as held:
            try:
                first = held.enter_context(_bound(0)).getsockname()[1]
                for port in range(first + 1, first + ports):
                    held.enter_context(_bound(port))
            except (OSError, OverflowError):
                if ports == 1:
                    raise
                continue
            yield first
            return


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    try:
        made.bind(("127.0.0.1", port))  # not yet with SO_REUSEADDR, or it might be another's that is bound in this way
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except BaseException:
        made.close()
        raise
    return made
