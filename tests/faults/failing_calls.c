/* Preloaded into a broker or a test: lets the n-th call that changes a file below a directory fail, once or a few times.
 *
 * FAILING_CALLS names a control file of struct control, mapped by every process and by the test (failing_calls.py), which
 * arms it at any time. A write that is to fail first writes half of its bytes, as a device that fills up does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    uint64_t seen;   /* calls so far */
    uint64_t first;  /* number of the first that fails; 0: none */
    uint64_t count;  /* how many fail from there on */
    uint64_t failed; /* how many did */
    int64_t error;   /* errno */
    int64_t halves;  /* whether the first failing write writes half */
    int64_t no_sync; /* whether those that do not fail are left out: for tests without a loss of power */
    char prefix[512];
    char last[512];  /* the file of the last call that failed */
};

static struct control *control;

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("FAILING_CALLS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *at = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED)
        control = at;
}

static int place(int fd, const char *name, char *path, size_t room) {
    char link[64];
    ssize_t n = 0;
    if (name && name[0] == '/')
        return snprintf(path, room, "%s", name);
    if (fd == AT_FDCWD) {
        if (!getcwd(path, room))
            return -1;
        n = (ssize_t)strlen(path);
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        n = readlink(link, path, room - 1);
        if (n < 0)
            return -1;
        path[n] = 0;
    }
    return name ? snprintf(path + n, room - (size_t)n, "/%s", name) : (int)n;
}

/* 0: let it pass; 1: fail (errno is set); 2: write half */
static int judge(int fd, const char *name, int writes) {
    char path[1024];
    int before = errno, result = 0;
    if (!control || !control->prefix[0])
        return 0;
    if (place(fd, name, path, sizeof path) > 0 && !strncmp(path, control->prefix, strlen(control->prefix))) {
        uint64_t number = __atomic_add_fetch(&control->seen, 1, __ATOMIC_SEQ_CST);
        uint64_t first = __atomic_load_n(&control->first, __ATOMIC_SEQ_CST);
        if (first && number >= first && number < first + control->count) {
            __atomic_add_fetch(&control->failed, 1, __ATOMIC_SEQ_CST);
            snprintf(control->last, sizeof control->last, "%.511s", path);
            if (writes && control->halves && number == first)
                return 2;
            result = 1;
        }
    }
    errno = result ? (int)control->error : before;
    return result;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t n) {
    int told = judge(fd, NULL, n > 1);
    return told == 1 ? -1 : REAL(write)(fd, data, told == 2 ? n / 2 : n);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    int told = judge(fd, NULL, n > 1);
    return told == 1 ? -1 : REAL(pwrite)(fd, data, told == 2 ? n / 2 : n, at);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    int told = judge(fd, NULL, n > 1);
    return told == 1 ? -1 : REAL(pwrite64)(fd, data, told == 2 ? n / 2 : n, at);
}
static ssize_t half_vector(int fd, const struct iovec *parts, int count, off64_t at) {
    for (int i = 0; i < count; i++)
        if (parts[i].iov_len > 1)
            return REAL(pwrite64)(fd, parts[i].iov_base, parts[i].iov_len / 2, at);
    return REAL(pwritev64)(fd, parts, count, at);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    int told = judge(fd, NULL, 1);
    return told == 1 ? -1 : told == 2 ? half_vector(fd, parts, count, at) : REAL(pwritev)(fd, parts, count, at);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    int told = judge(fd, NULL, 1);
    return told == 1 ? -1 : told == 2 ? half_vector(fd, parts, count, at) : REAL(pwritev64)(fd, parts, count, at);
}
int ftruncate(int fd, off_t n) { return judge(fd, NULL, 0) ? -1 : REAL(ftruncate)(fd, n); }
int ftruncate64(int fd, off64_t n) { return judge(fd, NULL, 0) ? -1 : REAL(ftruncate64)(fd, n); }
int fsync(int fd) { return judge(fd, NULL, 0) ? -1 : control && control->no_sync ? 0 : REAL(fsync)(fd); }
int fdatasync(int fd) { return judge(fd, NULL, 0) ? -1 : control && control->no_sync ? 0 : REAL(fdatasync)(fd); }
int rename(const char *from, const char *to) { return judge(AT_FDCWD, from, 0) ? -1 : REAL(rename)(from, to); }
int renameat(int a, const char *from, int b, const char *to) {
    return judge(a, from, 0) ? -1 : REAL(renameat)(a, from, b, to);
}
int unlink(const char *path) { return judge(AT_FDCWD, path, 0) ? -1 : REAL(unlink)(path); }
int unlinkat(int fd, const char *path, int flags) { return judge(fd, path, 0) ? -1 : REAL(unlinkat)(fd, path, flags); }
int mkdir(const char *path, mode_t mode) { return judge(AT_FDCWD, path, 0) ? -1 : REAL(mkdir)(path, mode); }

#define OPENS(name)                                                                                                    \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = va_arg(more, mode_t);                                                                            \
        va_end(more);                                                                                                  \
        return (flags & O_CREAT) && judge(AT_FDCWD, path, 0) ? -1 : REAL(name)(path, flags, mode);                     \
    }
#define OPENS_AT(name)                                                                                                 \
    int name(int fd, const char *path, int flags, ...) {                                                               \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = va_arg(more, mode_t);                                                                            \
        va_end(more);                                                                                                  \
        return (flags & O_CREAT) && judge(fd, path, 0) ? -1 : REAL(name)(fd, path, flags, mode);                       \
    }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)
