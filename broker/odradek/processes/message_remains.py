"""Frees the long arrays of messages in parts, on a thread of its own: at once, those of the largest messages would hold the
interpreter's lock, and so the event loop, for 30 ms. Used in processes that serve requests."""

import queue
import threading
import time
from typing import Any

from odradek._ext.protocol.messages import pass_on_long_arrays

ELEMENTS = 1000
"""The number of elements that are freed between two pauses: a few tenths of a millisecond."""
PAUSE_S = 0.0002


def free_in_parts() -> None:
    """Begin to free the long arrays of this process's messages in parts; called once in a process."""
    remains: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
    threading.Thread(target=_free, args=(remains,), name="message-remains", daemon=True).start()
    pass_on_long_arrays(remains.put)


def _free(remains: "queue.SimpleQueue[list[Any]]") -> None:
    while True:
        array = remains.get()
        while array:
            del array[-ELEMENTS:]
            time.sleep(PAUSE_S)  # the loop's thread takes the lock of the interpreter
