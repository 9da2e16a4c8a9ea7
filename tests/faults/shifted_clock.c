/* Preloaded into a broker or a test: shifts the wall clock by what the file that SHIFTED_CLOCK names says, at any time.
 *
 * The file holds a 64-bit number of seconds; every process maps it. The monotonic clocks are as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t *shift;

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("SHIFTED_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *at = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED)
        shift = at;
}

static time_t shifted_by(void) { return shift ? (time_t)__atomic_load_n(shift, __ATOMIC_SEQ_CST) : 0; }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int clock_gettime(clockid_t clock, struct timespec *out) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = REAL(clock_gettime);
    int result = real(clock, out);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += shifted_by();
    return result;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    static __typeof__(&gettimeofday) real;
    if (!real)
        real = REAL(gettimeofday);
    int result = real(out, zone);
    if (result == 0 && out)
        out->tv_sec += shifted_by();
    return result;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
