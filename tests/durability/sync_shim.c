/* Preloaded into a broker under test: stands between it and the device, as the files in $SYNC_SHIM say.
 *   log    every sync adds "begin <file> <bytes> <pid>" and, once the device has answered, "end" with the same
 *   part   a text: what is held are syncs of files with that text in their path; of log files, if there is none
 *   gate   a FIFO: such a sync waits until somebody opens it for writing
 *   came   a FIFO: before the gate, the process writes its id there, and waits until it is read
 *   broken a text: a sync of a file with that text in its path fails with EIO
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int shim_file(const char *name, int flags) {
    char path[4096];
    const char *home = getenv("SYNC_SHIM");
    if (!home) return -1;
    snprintf(path, sizeof path, "%s/%s", home, name);
    return open(path, flags | O_CLOEXEC, 0644);
}

static void note(const char *what, const char *path, long long bytes) {
    char line[4200];
    int fd = shim_file("log", O_WRONLY | O_APPEND | O_CREAT);
    int n = snprintf(line, sizeof line, "%s %s %lld %d\n", what, path, bytes, (int)getpid());
    if (fd < 0) return;
    if (write(fd, line, n) != n) abort();
    close(fd);
}

static int is_held(const char *path) {
    char text[4096] = ".log";
    int fd = shim_file("part", O_RDONLY);
    if (fd >= 0) {
        ssize_t n = read(fd, text, sizeof text - 1);
        text[n > 0 ? n : 0] = 0;
        close(fd);
    }
    return strstr(path, text) != NULL;
}

static int stand_between(int fd, const char *name) {
    int (*device)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    char link[64], path[4096] = "", text[4096];
    struct stat found = {0};
    ssize_t n;
    int other, result;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    if (n < 0) return device(fd);
    path[n] = 0;
    fstat(fd, &found);
    note("begin", path, (long long)found.st_size);
    if (is_held(path)) {
        if ((other = shim_file("came", O_WRONLY)) >= 0) {
            dprintf(other, "%d", (int)getpid());
            close(other);
        }
        if ((other = shim_file("gate", O_RDONLY)) >= 0) close(other);
    }
    if ((other = shim_file("broken", O_RDONLY)) >= 0) {
        n = read(other, text, sizeof text - 1);
        close(other);
        text[n > 0 ? n : 0] = 0;
        if (n > 0 && strstr(path, text)) {
            note("failed", path, (long long)found.st_size);
            errno = EIO;
            return -1;
        }
    }
    result = device(fd);
    note("end", path, (long long)found.st_size);
    return result;
}

int fdatasync(int fd) { return stand_between(fd, "fdatasync"); }
int fsync(int fd) { return stand_between(fd, "fsync"); }
int syncfs(int fd) { return stand_between(fd, "syncfs"); }
