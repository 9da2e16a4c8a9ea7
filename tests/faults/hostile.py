"""A client that must not notice what others do to the broker, and damage to their frames."""

import struct
import threading

from tests.wire import TIMEOUT_S, Wire
from tests.wire import batch as batch_of

QUIET = "bystander"


class Bystander:
    """A well-behaved connection that appends without a pause while others misbehave."""

    def __init__(self, broker):
        self.offsets = []
        self.error = None
        self._connection = Wire.to(broker)
        self._more = threading.Condition()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            while not self._ended.is_set():
                result = self._connection.produce(QUIET, batch_of(b"undisturbed"))
                if result.error_code:
                    raise RuntimeError(f"error {result.error_code}: {result.error_message}")
                with self._more:
                    self.offsets.append(result.base_offset)
                    self._more.notify_all()
                self._ended.wait(0.001)  # its pace: the cores are for those who misbehave
        except Exception as error:
            with self._more:
                self.error = error
                self._more.notify_all()

    def goes_on(self):
        """Waits for some more appends on the same connection."""
        with self._more:
            wanted = len(self.offsets) + 10
            assert self._more.wait_for(lambda: self.error or len(self.offsets) >= wanted, TIMEOUT_S)
        assert self.error is None

    def end(self):
        self._ended.set()
        self._thread.join(TIMEOUT_S)
        self._connection.socket.close()
        assert not self._thread.is_alive() and self.error is None
        assert self.offsets == list(range(len(self.offsets)))


def framed(data):
    return struct.pack(">i", len(data)) + data


def damaged(rng, frame):
    """Some bytes flipped, cut, doubled or put in, with the frame's length mostly kept true."""
    body = bytearray(frame[4:])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(body))
        kind = rng.randrange(5)
        if kind == 0:
            body[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            body[at] = rng.choice((0, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del body[at : at + rng.randrange(1, 9)]
        elif kind == 3:
            body[at:at] = rng.randbytes(rng.randrange(1, 9))
        else:
            body[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(4)))
        if not body:
            break
    return framed(bytes(body)) if rng.random() < 0.95 else bytes(body)
