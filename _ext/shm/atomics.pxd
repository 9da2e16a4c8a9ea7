"""Atomic loads, stores and read-modify-writes on words in shared memory (see atomics.h)."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


cdef extern from "shm/atomics.h" nogil:
    uint64_t load_acquire_64(const uint64_t* p)
    uint32_t load_acquire_32(const uint32_t* p)
    int64_t load_acquire_i64(const int64_t* p)
    void store_release_64(uint64_t* p, uint64_t v)
    void store_release_32(uint32_t* p, uint32_t v)
    void store_release_i64(int64_t* p, int64_t v)
    uint64_t load_relaxed_64(const uint64_t* p)
    void store_relaxed_64(uint64_t* p, uint64_t v)
    uint64_t fetch_or_64(uint64_t* p, uint64_t v)
    uint64_t fetch_and_64(uint64_t* p, uint64_t v)
    uint64_t exchange_64(uint64_t* p, uint64_t v)
    uint32_t exchange_32(uint32_t* p, uint32_t v)
    uint64_t fetch_add_64(uint64_t* p, uint64_t v)
    int32_t fetch_add_i32(int32_t* p, int32_t v)
    bint compare_swap_64(uint64_t* p, uint64_t expected, uint64_t desired)
    bint compare_swap_i32(int32_t* p, int32_t expected, int32_t desired)
    void fence()
    void fence_release()
    void cpu_pause()
    void fault_point(uint64_t* armed, uint64_t identity)
    int FAULTS_COMPILED
