"""Kernel settings of the calling process; loads no other module of the broker."""

from libc.signal cimport SIG_DFL, SIG_IGN
from libc.string cimport memset
from posix.signal cimport SIG_SETMASK, sigaction, sigaction_t, sigaddset, sigemptyset, sigprocmask, sigset_t
from posix.unistd cimport getppid


cdef extern from "<sys/prctl.h>" nogil:
    int prctl(int option, ...)
    int PR_SET_PDEATHSIG
    int PR_SET_NAME


def die_with_parent(int number, long parent) -> bool:
    """Make the kernel send this process the signal `number` when its parent ends. Returns False if the parent has ended
    already.

    Source: prctl(2), PR_SET_PDEATHSIG.
    """
    prctl(PR_SET_PDEATHSIG, <unsigned long>number)
    return getppid() == parent


def set_name(bytes name not None) -> None:
    """Set the name that `ps` and `top` show for this process (its first 15 bytes). Source: prctl(2), PR_SET_NAME."""
    prctl(PR_SET_NAME, <const char*>name)


def set_signals(default not None, ignored not None, mask not None) -> None:
    """Reset the signals `default` to their default action, ignore the signals `ignored`, and block only those of `mask`.

    For a child after a fork, before it installs handlers. This is one native call, because the standard library's functions run
    so much code that each child would get private copies of many memory pages. Raises OSError.
    """
    cdef sigaction_t act
    cdef sigset_t blocked
    memset(&act, 0, sizeof(act))
    act.sa_handler = SIG_DFL
    for number in default:
        if sigaction(number, &act, NULL) != 0:
            raise OSError(f"cannot reset signal {int(number)} to its default action")
    act.sa_handler = SIG_IGN
    for number in ignored:
        if sigaction(number, &act, NULL) != 0:
            raise OSError(f"cannot ignore signal {int(number)}")
    sigemptyset(&blocked)
    for number in mask:
        sigaddset(&blocked, number)
    if sigprocmask(SIG_SETMASK, &blocked, NULL) != 0:
        raise OSError("cannot set the signal mask")
