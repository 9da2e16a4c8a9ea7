"""The robust, process-shared mutex of a slot: try, spin briefly, give up; never block a loop [R 5]."""

from libc.stdint cimport uint32_t

from odradek._ext.shm.c_library cimport pthread_mutex_t
from odradek._ext.shm.slot cimport Slot


cdef enum LockResult:
    LOCK_TAKEN = 0
    LOCK_BUSY = 1                 # another thread holds it; try again later
    LOCK_OWNER_DIED = 2           # taken, but the caller must recover the slot before it does anything else with it


cdef enum:
    SPINS_OF_LOOP = 400           # about 10 us: longer than a small append, shorter than any access to a device
    SPINS_OF_THREAD = 40000

# Initialise a robust, process-shared mutex. Call it once in the life of the mapping [R 5.1].
cdef void initialise_robust(pthread_mutex_t* mutex) noexcept nogil

cdef void initialise_mutex(Slot* slot) noexcept nogil       # the slot's, unless that was done before
cdef LockResult try_lock(uint32_t index, Slot* slot, int spins) noexcept nogil
cdef void mark_consistent(Slot* slot) noexcept nogil
cdef void unlock(uint32_t index, Slot* slot) noexcept nogil

# The lane of the calling thread in its process's row of held locks. Threads that can hold a lock at the same time need different
# lanes.
cdef void set_lane(int lane) noexcept nogil

cpdef enum Lane:
    LANE_LOOP = 0                 # a process's main thread
    LANE_SECOND = 1               # a worker's append thread, the coordinator's store thread, the compaction threads (in turns)
    LANE_LOOK_UPS = 2             # a worker's thread for look-ups in indexes
    LANE_FLUSH = 3                # the first of the threads that sync
