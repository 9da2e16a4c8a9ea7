"""What a process asks of the kernel for itself, without loading more than this."""

from libc.signal cimport SIG_DFL, SIG_IGN
from libc.string cimport memset
from posix.signal cimport SIG_SETMASK, sigaction, sigaction_t, sigaddset, sigemptyset, sigprocmask, sigset_t
from posix.unistd cimport getppid


cdef extern from "<sys/prctl.h>" nogil:
    int prctl(int option, ...)
    int PR_SET_PDEATHSIG
    int PR_SET_NAME


def die_with_parent(int number, long parent):
    """Have the kernel send this process a signal when its parent ends; False if the parent has ended already.

    Source: prctl(2), PR_SET_PDEATHSIG.
    """
    prctl(PR_SET_PDEATHSIG, <unsigned long>number)
    return getppid() == parent


def set_name(bytes name not None):
    """What `ps` and `top` call this process: the first 15 bytes. Source: prctl(2), PR_SET_NAME."""
    prctl(PR_SET_NAME, <const char*>name)


def set_signals(default not None, ignored not None, mask not None):
    """Give some signals their default action, have others ignored, and block those of `mask` alone.

    For a child of a fork, before it has handlers of its own: in one call, as the standard library's functions run so much of
    its code for it that each child would have copies of its pages. Raises OSError.
    """
    cdef sigaction_t act
    cdef sigset_t blocked
    memset(&act, 0, sizeof(act))
    act.sa_handler = SIG_DFL
    for number in default:
        if sigaction(number, &act, NULL) != 0:
            raise OSError(f"signal {int(number)} cannot be given its default action")
    act.sa_handler = SIG_IGN
    for number in ignored:
        if sigaction(number, &act, NULL) != 0:
            raise OSError(f"signal {int(number)} cannot be ignored")
    sigemptyset(&blocked)
    for number in mask:
        sigaddset(&blocked, number)
    if sigprocmask(SIG_SETMASK, &blocked, NULL) != 0:
        raise OSError("signals cannot be blocked")
