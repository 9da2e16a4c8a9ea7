"""The words of shared memory, and the only ways to access them; see atomics.h, which also explains the orders.

The types are `const` only here: Cython then refuses an assignment, so a write must name its order. A plain read is sequentially
consistent.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "shm/atomics.h" nogil:
    ctypedef const uint64_t shared_u64
    ctypedef const int64_t shared_i64
    ctypedef const uint32_t shared_u32
    ctypedef const int32_t shared_i32
    ctypedef const uint16_t shared_u16
    ctypedef const int16_t shared_i16
    ctypedef const uint8_t shared_u8

    uint64_t load_relaxed_64(shared_u64* p)
    uint64_t load_acquire_64(shared_u64* p)
    void store_relaxed_64(shared_u64* p, uint64_t v)
    void store_release_64(shared_u64* p, uint64_t v)
    void count_64(shared_u64* p, uint64_t n)                 # by the only writer
    uint64_t fetch_add_64(shared_u64* p, uint64_t v)
    uint64_t fetch_or_64(shared_u64* p, uint64_t v)
    uint64_t fetch_and_64(shared_u64* p, uint64_t v)
    uint64_t exchange_64(shared_u64* p, uint64_t v)
    bint compare_swap_64(shared_u64* p, uint64_t expected, uint64_t desired)

    int64_t load_relaxed_i64(shared_i64* p)
    int64_t load_acquire_i64(shared_i64* p)
    void store_relaxed_i64(shared_i64* p, int64_t v)
    void store_release_i64(shared_i64* p, int64_t v)
    void count_i64(shared_i64* p, int64_t n)                 # by the only writer
    int64_t fetch_add_i64(shared_i64* p, int64_t v)
    int64_t fetch_or_i64(shared_i64* p, int64_t v)
    int64_t fetch_and_i64(shared_i64* p, int64_t v)
    int64_t exchange_i64(shared_i64* p, int64_t v)
    bint compare_swap_i64(shared_i64* p, int64_t expected, int64_t desired)

    uint32_t load_relaxed_32(shared_u32* p)
    uint32_t load_acquire_32(shared_u32* p)
    void store_relaxed_32(shared_u32* p, uint32_t v)
    void store_release_32(shared_u32* p, uint32_t v)
    void count_32(shared_u32* p, uint32_t n)                 # by the only writer
    uint32_t fetch_add_32(shared_u32* p, uint32_t v)
    uint32_t fetch_or_32(shared_u32* p, uint32_t v)
    uint32_t fetch_and_32(shared_u32* p, uint32_t v)
    uint32_t exchange_32(shared_u32* p, uint32_t v)
    bint compare_swap_32(shared_u32* p, uint32_t expected, uint32_t desired)

    int32_t load_relaxed_i32(shared_i32* p)
    int32_t load_acquire_i32(shared_i32* p)
    void store_relaxed_i32(shared_i32* p, int32_t v)
    void store_release_i32(shared_i32* p, int32_t v)
    void count_i32(shared_i32* p, int32_t n)                 # by the only writer
    int32_t fetch_add_i32(shared_i32* p, int32_t v)
    int32_t fetch_or_i32(shared_i32* p, int32_t v)
    int32_t fetch_and_i32(shared_i32* p, int32_t v)
    int32_t exchange_i32(shared_i32* p, int32_t v)
    bint compare_swap_i32(shared_i32* p, int32_t expected, int32_t desired)

    uint16_t load_relaxed_16(shared_u16* p)
    uint16_t load_acquire_16(shared_u16* p)
    void store_relaxed_16(shared_u16* p, uint16_t v)
    void store_release_16(shared_u16* p, uint16_t v)
    void count_16(shared_u16* p, uint16_t n)                 # by the only writer

    int16_t load_relaxed_i16(shared_i16* p)
    int16_t load_acquire_i16(shared_i16* p)
    void store_relaxed_i16(shared_i16* p, int16_t v)
    void store_release_i16(shared_i16* p, int16_t v)
    void count_i16(shared_i16* p, int16_t n)                 # by the only writer

    uint8_t load_relaxed_8(shared_u8* p)
    uint8_t load_acquire_8(shared_u8* p)
    void store_relaxed_8(shared_u8* p, uint8_t v)
    void store_release_8(shared_u8* p, uint8_t v)
    void count_8(shared_u8* p, uint8_t n)                 # by the only writer

    void fill_words(void* shared, const void* source, size_t bytes)
    void copy_words(void* to, const void* shared, size_t bytes)
    void clear_words(void* shared, size_t bytes)
    void fill_ids(shared_i32* shared, const int32_t* source, int32_t count)
    void copy_ids(int32_t* to, shared_i32* shared, int32_t count)
    void fence()
    void fence_release()
    void fence_acquire()
    void cpu_pause()
    void fault_point(shared_u64* armed, uint64_t identity)
    int FAULTS_COMPILED
