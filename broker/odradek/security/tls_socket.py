"""What the native part of a replica fetcher needs of a connection with TLS: reads and writes that do not block.

Owned by one thread of the replicator. The native part waits for the socket itself.
"""

from collections.abc import Callable
from ssl import SSLSocket, SSLWantReadError, SSLWantWriteError

WANTS_READ, WANTS_WRITE, LOST = -1, -2, -3
"""Results of `receive` and `send`; the same numbers are in `replica_connection.pyx`."""


class TlsSocket:
    """See the module. :ivar lost_by: the error of the last call that returned `LOST`."""

    def __init__(self, connection: SSLSocket) -> None:
        self._connection = connection
        self.lost_by: OSError | None = None

    def begin(self) -> None:
        """From now on, no call blocks."""
        self._connection.setblocking(False)

    def receive(self, room: memoryview) -> int:
        """Receive into `room`. Returns the number of bytes, 0 at the end of the connection, or one of the results above."""
        return self._outcome(self._connection.recv_into, room)

    def send(self, data: memoryview) -> int:
        """Send `data`. Returns the number of bytes, or one of the results above. After `WANTS_READ` and `WANTS_WRITE`, the next
        call must have the same bytes."""
        return self._outcome(self._connection.send, data)

    def _outcome(self, call: Callable[[memoryview], int], data: memoryview) -> int:
        try:
            return call(data)
        except SSLWantReadError:
            return WANTS_READ
        except SSLWantWriteError:
            return WANTS_WRITE
        except OSError as error:
            self.lost_by = error
            return LOST

    @property
    def has_more(self) -> bool:
        """Whether decrypted bytes wait, which the socket does not report."""
        return self._connection.pending() > 0
