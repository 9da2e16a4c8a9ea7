"""Functions and types of the C library that several native modules use and that Cython's own declarations lack."""


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_mutexattr_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int PTHREAD_PROCESS_SHARED
    int PTHREAD_MUTEX_ROBUST
    int pthread_mutexattr_init(pthread_mutexattr_t*)
    int pthread_mutexattr_setpshared(pthread_mutexattr_t*, int)
    int pthread_mutexattr_setrobust(pthread_mutexattr_t*, int)
    int pthread_mutexattr_destroy(pthread_mutexattr_t*)
    int pthread_mutex_init(pthread_mutex_t*, const pthread_mutexattr_t*)
    int pthread_mutex_destroy(pthread_mutex_t*)
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_trylock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_mutex_consistent(pthread_mutex_t*)
    int pthread_cond_init(pthread_cond_t*, const void*)
    int pthread_cond_destroy(pthread_cond_t*)
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*)
    int pthread_cond_signal(pthread_cond_t*)
    int pthread_cond_broadcast(pthread_cond_t*)

cdef extern from *:
    """
    #include <pthread.h>
    /* pthread_t is an integer in glibc, and a pointer in musl */
    #define this_thread() ((unsigned long)pthread_self())
    """
    unsigned long this_thread() nogil

cdef extern from "<errno.h>" nogil:
    int EOWNERDEAD

cdef extern from "<sys/mman.h>" nogil:
    int madvise(void* start, size_t length, int advice)

cdef extern from "<unistd.h>" nogil:
    int syncfs(int fd)            # reports pages that could not be written only if SYNCFS_REPORTS_ERRORS (storage/log_dirs.pyx)
