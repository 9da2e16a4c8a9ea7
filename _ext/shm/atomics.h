/* Atomic access to words that other processes read or write: only the C11 memory orders that the shared state needs. */
#ifndef ODRADEK_ATOMICS_H
#define ODRADEK_ATOMICS_H
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

static inline uint64_t load_acquire_64(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline uint32_t load_acquire_32(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void store_release_64(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline void store_release_32(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline uint64_t load_relaxed_64(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline void store_relaxed_64(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
static inline int64_t load_acquire_i64(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void store_release_i64(int64_t *p, int64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline uint64_t fetch_or_64(uint64_t *p, uint64_t v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }
static inline uint64_t fetch_and_64(uint64_t *p, uint64_t v) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); }
static inline uint64_t exchange_64(uint64_t *p, uint64_t v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); }
static inline uint32_t exchange_32(uint32_t *p, uint32_t v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); }
static inline uint64_t fetch_add_64(uint64_t *p, uint64_t v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
static inline int32_t fetch_add_i32(int32_t *p, int32_t v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
static inline int compare_swap_64(uint64_t *p, uint64_t expected, uint64_t desired) {
    return __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
static inline int compare_swap_i32(int32_t *p, int32_t expected, int32_t desired) {
    return __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
/* Orders the stores before it before the stores after it; no instruction on x86. */
static inline void fence_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
static inline void fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void cpu_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* A fault point: in the debug build the process that reaches the armed point for the n-th time is killed, usually by SIGKILL.
 * `armed` are three shared words {identity of the point, remaining count, signal}. A release build contains nothing of this. */
#ifdef ODRADEK_DEBUG
static inline void fault_point(uint64_t *armed, uint64_t identity) {
    if (__builtin_expect(__atomic_load_n(armed, __ATOMIC_RELAXED) == identity, 0)) {
        if (__atomic_sub_fetch(armed + 1, 1, __ATOMIC_SEQ_CST) == 0) {
            uint64_t signal_number = __atomic_load_n(armed + 2, __ATOMIC_RELAXED);
            __atomic_store_n(armed, 0, __ATOMIC_SEQ_CST);
            kill(getpid(), (int)(signal_number ? signal_number : SIGKILL));
        }
    }
}
#define FAULTS_COMPILED 1
#else
static inline void fault_point(uint64_t *armed, uint64_t identity) { (void)armed; (void)identity; }
#define FAULTS_COMPILED 0
#endif
#endif
