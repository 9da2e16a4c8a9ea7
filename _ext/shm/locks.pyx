"""The slot's mutex. It is initialised once in the life of the mapping, even if the slot gets another partition [R 5.1]."""

from libc.errno cimport EBUSY
from libc.stdint cimport uint32_t, uint64_t

from odradek._ext.shm.atomics cimport (
    count_64,
    cpu_pause,
    load_acquire_32,
    store_relaxed_64,
    store_relaxed_i64,
    store_release_32,
    store_release_64,
)
from odradek._ext.shm.c_library cimport (
    EOWNERDEAD,
    PTHREAD_MUTEX_ROBUST,
    PTHREAD_PROCESS_SHARED,
    pthread_mutex_consistent,
    pthread_mutex_init,
    pthread_mutex_t,
    pthread_mutex_trylock,
    pthread_mutex_unlock,
    pthread_mutexattr_destroy,
    pthread_mutexattr_init,
    pthread_mutexattr_setpshared,
    pthread_mutexattr_setrobust,
    pthread_mutexattr_t,
)
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.slot cimport Slot


cdef extern from *:
    """
    static __thread int odradek_lane = 0;
    static inline int get_lane(void) { return odradek_lane; }
    static inline void put_lane(int lane) { odradek_lane = lane; }
    """
    int get_lane() noexcept nogil
    void put_lane(int lane) noexcept nogil


cdef void set_lane(int lane) noexcept nogil:
    put_lane(lane)


def enter_lane(int lane) -> None:
    """Set the lane of the calling thread, which Python started."""
    put_lane(lane)


cdef void initialise_robust(pthread_mutex_t* mutex) noexcept nogil:
    cdef pthread_mutexattr_t attributes
    pthread_mutexattr_init(&attributes)
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED)
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST)
    pthread_mutex_init(mutex, &attributes)
    pthread_mutexattr_destroy(&attributes)


cdef void initialise_mutex(Slot* slot) noexcept nogil:
    if load_acquire_32(&slot.mutex_ready):
        return
    initialise_robust(&slot.mutex)
    store_release_32(&slot.mutex_ready, 1)


cdef LockResult try_lock(uint32_t index, Slot* slot, int spins) noexcept nogil:
    cdef int result = pthread_mutex_trylock(&slot.mutex), left = spins, lane
    while result == EBUSY and left > 0:
        cpu_pause()
        left -= 1
        if left % 8 == 0:
            result = pthread_mutex_trylock(&slot.mutex)
    if result != 0 and result != EOWNERDEAD:
        count_64(&slot.lock_busy, 1)    # only a statistic: a lost increment does no harm
        return LOCK_BUSY
    if region().self >= 0:
        lane = get_lane()
        store_relaxed_i64(&region().processes[region().self].locked_since_ms[lane], monotonic_ms())
        # The supervisor must not see this lock with the time of an earlier one.
        store_release_64(&region().processes[region().self].locked_slot[lane], <uint64_t>index + 1)
    return LOCK_OWNER_DIED if result == EOWNERDEAD else LOCK_TAKEN


cdef void mark_consistent(Slot* slot) noexcept nogil:
    pthread_mutex_consistent(&slot.mutex)


cdef void unlock(uint32_t index, Slot* slot) noexcept nogil:
    if region().self >= 0:
        store_relaxed_64(&region().processes[region().self].locked_slot[get_lane()], 0)
    pthread_mutex_unlock(&slot.mutex)
