"""Notices that the reader of standard output has ended while a command waits: `odradek consume orders | head -2`.

A write to the pipe reports this. A command that follows topics may not write for hours. Runs in the process of the
command; `LazyGroup.main` ends the command quietly for the BrokenPipeError.
"""

import errno
import os
import select
import stat
import time

OUTPUT = 1
"""The file descriptor of standard output."""
_ENDED = select.POLLERR | select.POLLHUP


class OutputPipe:
    """Standard output, as something to wait for together with connections: "readable" when its reader has ended."""

    def fileno(self) -> int:
        """The descriptor; waiting for input at the writing end of a pipe returns only when the reading end is closed."""
        return OUTPUT


def output_pipes() -> list[OutputPipe]:
    """Standard output if it is a pipe; else nothing, for example for a terminal, at which input arrives."""
    try:
        return [OutputPipe()] if stat.S_ISFIFO(os.fstat(OUTPUT).st_mode) else []
    except OSError:  # it is closed
        return []


def check_output() -> None:
    """Raise BrokenPipeError if the reader of standard output has ended."""
    pause(0)


def pause(seconds: float) -> None:
    """Sleep. Raises BrokenPipeError as soon as the reader of standard output has ended."""
    poll = select.poll()
    poll.register(OUTPUT, 0)
    began = time.monotonic()
    for _, event in poll.poll(seconds * 1000):
        if event & _ENDED:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    time.sleep(max(0.0, began + seconds - time.monotonic()))  # a closed descriptor ends the poll at once
