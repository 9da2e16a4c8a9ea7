"""What a process asks of the kernel for itself, without loading more than this."""

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
