"""How much a writer sends before it waits for acknowledgements: little to a target that acknowledges slowly.

Used in the thread of one lane; the object has all state.
"""

from dataclasses import dataclass

MOST_BATCHES = 256
"""Their responses (some 60 bytes, at most 300 each) fit into the buffers of the two sockets, so that sending cannot block for
ever."""
FIRST_BYTES = 64 << 10
MOST_REQUEST_BYTES = 4 << 20


@dataclass
class SendWindow:
    """What may be in flight on a connection: first one batch, and one more for each acknowledgement that arrives in time.

    So no more is in flight than the target has acknowledged before. A commit waits for everything in flight, and takes about as
    long as those acknowledgements took. The window shrinks by each acknowledgement that arrives late.
    """

    batches: int = 1
    size_bytes: int = FIRST_BYTES
    waiting: int = 0
    waiting_bytes: int = 0

    @property
    def room(self) -> int:
        """How many more batches may be sent; the last one may exceed the limit in bytes."""
        return self.batches - self.waiting if self.waiting_bytes < self.size_bytes else 0

    @property
    def request_bytes(self) -> int:
        """How many bytes of batches the next request may have, if it has several."""
        return min(MOST_REQUEST_BYTES, self.size_bytes - self.waiting_bytes)

    @property
    def crowded(self) -> bool:
        """Whether to receive before more is sent. There is room already; sending many batches at once costs less."""
        return self.waiting > self.batches // 2 or self.waiting_bytes > self.size_bytes // 2

    def sent(self, size: int) -> None:
        """A batch of this many bytes was sent."""
        self.waiting += 1
        self.waiting_bytes += size

    def acknowledged(self, size: int, late: bool) -> None:
        """The acknowledgement of a batch of this many bytes came."""
        self.waiting -= 1
        self.waiting_bytes -= size
        if late:
            self.batches = max(1, self.batches - 1)
            self.size_bytes = max(FIRST_BYTES, self.size_bytes - size)
        else:
            self.batches = min(MOST_BATCHES, self.batches + 1)
            self.size_bytes += size
