"""SIGHUP, for programs that run for long: the end of their terminal stops them. The signal alone, which service managers,
logrotate and people send so that a service reads its configuration again, does not. Every package may import it.

Used in the main thread.
"""

import os
import signal
from collections.abc import Callable


def has_terminal() -> bool:
    """Whether this process has a controlling terminal that has not hung up."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def on_hang_up(hung_up: Callable[[], None], alone: Callable[[], None]) -> None:
    """Handle SIGHUP from now on, unless the parent process lets it be ignored (`nohup`).

    :param hung_up: called in the signal handler, when the terminal that the process has now hung up.
    :param alone: called in the signal handler, when there was no such terminal, or when it is still there.
    """
    had_terminal = has_terminal()

    def arrived(number: int, _: object) -> None:
        if had_terminal and not has_terminal():
            hung_up()
        else:
            alone()

    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, arrived)
