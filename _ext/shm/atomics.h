/* Words of memory that several processes or threads read and write, and the only ways to access them.
 *
 * Such a word has one of the types shared_u64 ... shared_u8. The types are `_Atomic`, so a plain read of one, which Cython
 * permits, is a sequentially consistent load: never torn, repeated or reordered with another one. atomics.pxd declares the
 * types `const`, so Cython refuses a plain write. Every write names its order, and so does every read that needs less:
 *
 *     relaxed   orders no other word: for statistics, and in a section that a sequence protects
 *     release   a reader that sees the value by an acquire (or plain) load sees all that was written before it
 *     acquire   nothing after the load is read before it
 *     seq_cst   all read-modify-writes, because words with several writers need them, and fence()
 *
 * broker/odradek/shm/README.md has the table of the words with their orders and the reasons. tests/shm/ordering checks the
 * protocols under a weak memory order, and what the compiler makes of these functions.
 */
#ifndef ODRADEK_ATOMICS_H
#define ODRADEK_ATOMICS_H
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define ODRADEK_SHARED_WORD(shared, type, suffix)                                                                            \
    typedef _Atomic type shared;                                                                                             \
    _Static_assert(sizeof(shared) == sizeof(type), "a shared word has no lock and no padding");                              \
    static inline type load_relaxed_##suffix(const shared *p) { return atomic_load_explicit(p, memory_order_relaxed); }      \
    static inline type load_acquire_##suffix(const shared *p) { return atomic_load_explicit(p, memory_order_acquire); }      \
    static inline void store_relaxed_##suffix(shared *p, type v) { atomic_store_explicit(p, v, memory_order_relaxed); }      \
    static inline void store_release_##suffix(shared *p, type v) { atomic_store_explicit(p, v, memory_order_release); }      \
    /* For the only writer of the word, or its only writer at a time: no read-modify-write. */                               \
    static inline void count_##suffix(shared *p, type n) {                                                                   \
        atomic_store_explicit(p, (type)(atomic_load_explicit(p, memory_order_relaxed) + n), memory_order_relaxed);           \
    }                                                                                                                        \
    static inline type fetch_add_##suffix(shared *p, type v) { return atomic_fetch_add(p, v); }                              \
    static inline type fetch_or_##suffix(shared *p, type v) { return atomic_fetch_or(p, v); }                                \
    static inline type fetch_and_##suffix(shared *p, type v) { return atomic_fetch_and(p, v); }                              \
    static inline type exchange_##suffix(shared *p, type v) { return atomic_exchange(p, v); }                                \
    static inline int compare_swap_##suffix(shared *p, type expected, type desired) {                                        \
        return atomic_compare_exchange_strong(p, &expected, desired);                                                        \
    }

ODRADEK_SHARED_WORD(shared_u64, uint64_t, 64)
ODRADEK_SHARED_WORD(shared_i64, int64_t, i64)
ODRADEK_SHARED_WORD(shared_u32, uint32_t, 32)
ODRADEK_SHARED_WORD(shared_i32, int32_t, i32)
ODRADEK_SHARED_WORD(shared_u16, uint16_t, 16)
ODRADEK_SHARED_WORD(shared_i16, int16_t, i16)
ODRADEK_SHARED_WORD(shared_u8, uint8_t, 8)
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a lock inside a word would not work between processes");

/* Blocks that a sequence protects: each word is copied relaxed, and the sequence orders the copy as a whole. `bytes` is a
 * multiple of 8, the shared address is aligned to 8 bytes. `fill` and `clear` write to shared memory, `copy` reads from it. */
#ifdef ODRADEK_DEBUG
#define ODRADEK_CHECK_WORDS(shared, bytes) do { if (((uintptr_t)(shared) | (bytes)) & 7) __builtin_trap(); } while (0)
#else
#define ODRADEK_CHECK_WORDS(shared, bytes) ((void)0)
#endif
/* Any type may be copied: without the attribute, the compiler could move accesses to the fields of a block across the copy. */
typedef uint64_t __attribute__((may_alias)) word_of_block;
static inline void fill_words(void *shared, const void *from, size_t bytes) {
    uint64_t word;
    ODRADEK_CHECK_WORDS(shared, bytes);
    for (size_t at = 0; at < bytes; at += 8) {
        memcpy(&word, (const char *)from + at, 8);
        __atomic_store_n((word_of_block *)((char *)shared + at), word, __ATOMIC_RELAXED);
    }
}
static inline void copy_words(void *to, const void *shared, size_t bytes) {
    uint64_t word;
    ODRADEK_CHECK_WORDS(shared, bytes);
    for (size_t at = 0; at < bytes; at += 8) {
        word = __atomic_load_n((const word_of_block *)((const char *)shared + at), __ATOMIC_RELAXED);
        memcpy((char *)to + at, &word, 8);
    }
}
static inline void clear_words(void *shared, size_t bytes) {
    ODRADEK_CHECK_WORDS(shared, bytes);
    for (size_t at = 0; at < bytes; at += 8)
        __atomic_store_n((word_of_block *)((char *)shared + at), 0, __ATOMIC_RELAXED);
}

/* The same for sets of ids of brokers, whose words have 4 bytes. */
static inline void fill_ids(shared_i32 *shared, const int32_t *from, int32_t count) {
    for (int32_t i = 0; i < count; ++i) store_relaxed_i32(shared + i, from[i]);
}
static inline void copy_ids(int32_t *to, const shared_i32 *shared, int32_t count) {
    for (int32_t i = 0; i < count; ++i) to[i] = load_relaxed_i32(shared + i);
}

/* Orders the stores before it before the stores after it; no instruction on x86. */
static inline void fence_release(void) { atomic_thread_fence(memory_order_release); }
/* Orders the loads before it before the loads after it; no instruction on x86. */
static inline void fence_acquire(void) { atomic_thread_fence(memory_order_acquire); }
/* Orders also a store before it before a load after it. */
static inline void fence(void) { atomic_thread_fence(memory_order_seq_cst); }
static inline void cpu_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb"); /* `yield` does nothing on most processors */
#endif
}

/* A fault point: in the debug build the process that reaches the armed point for the n-th time is killed, usually by SIGKILL.
 * `armed` are three shared words {identity of the point, remaining count, signal}. A release build contains nothing of this. */
#ifdef ODRADEK_DEBUG
static inline void fault_point(shared_u64 *armed, uint64_t identity) {
    if (__builtin_expect(load_relaxed_64(armed) == identity, 0)) {
        if (fetch_add_64(armed + 1, (uint64_t)-1) == 1) {
            uint64_t signal_number = load_relaxed_64(armed + 2);
            exchange_64(armed, 0);
            kill(getpid(), (int)(signal_number ? signal_number : SIGKILL));
        }
    }
}
#define FAULTS_COMPILED 1
#else
static inline void fault_point(shared_u64 *armed, uint64_t identity) { (void)armed; (void)identity; }
#define FAULTS_COMPILED 0
#endif
#endif
