"""Arms the faults of the debug build: a fault point that kills its process, and file calls that fail.

The armed fault is in the header of the shared mapping, so that it happens in whichever process reaches it first. Any process of
a test calls these functions; the release build refuses to arm a fault.
"""

from libc.stdint cimport uint64_t

from odradek._ext.shm.atomics cimport FAULTS_COMPILED, shared_u64, store_relaxed_64, store_release_64
from odradek._ext.shm.layout cimport region


def faults_compiled() -> bool:
    """Whether this is the debug build, which has fault points."""
    return FAULTS_COMPILED != 0


def arm_fault(uint64_t identity, uint64_t countdown=1, int signal_number=9) -> None:
    """Kill the process that reaches fault point `identity` for the `countdown`-th time.

    :raises RuntimeError: this is a release build.
    """
    if not FAULTS_COMPILED:
        raise RuntimeError("fault points are compiled into the debug build only (ODRADEK_DEBUG=1)")
    store_relaxed_64(&region().header.fault[2], signal_number)
    store_relaxed_64(&region().header.fault[1], countdown)
    store_release_64(&region().header.fault[0], identity)


def arm_file_fault(uint64_t number, uint64_t countdown=1, uint64_t times=1, uint64_t kinds=~<uint64_t>0) -> None:
    """Make file calls of the given `kinds` (FileCall) fail with errno `number`: the `countdown`-th one from now on and the `times`
    - 1 calls after it, in whichever process they happen. With `number` 0 calls are only counted.

    :raises RuntimeError: this is a release build.
    """
    if not FAULTS_COMPILED:
        raise RuntimeError("file faults are compiled into the debug build only (ODRADEK_DEBUG=1)")
    cdef shared_u64* armed = region().header.file_fault
    store_relaxed_64(&armed[0], 0)
    store_relaxed_64(&armed[1], countdown)
    store_relaxed_64(&armed[2], times)
    store_relaxed_64(&armed[3], kinds)
    store_relaxed_64(&armed[4], 0)
    store_release_64(&armed[0], number)


def file_calls() -> int:
    """How many file calls of the armed kinds happened since `arm_file_fault`."""
    return region().header.file_fault[4]
