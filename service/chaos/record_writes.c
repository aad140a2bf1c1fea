/* Records what a process writes to files under a folder, and when it syncs them.
   gcc -shared -fPIC -O2 -o record_writes.so record_writes.c -ldl
   RECORD_FOLDER: prefix of the paths; RECORD_TO: the file of records. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define MOST 4096
enum { WRITE = 1, SYNC, TRUNCATE, UNLINK };
struct head { uint8_t op; uint8_t pad[3]; uint32_t path; int64_t offset; uint64_t length; double time; };

static char *paths[MOST];
static int out = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static int meant(const char *path) {
    const char *folder = getenv("RECORD_FOLDER");
    return folder && path && !strncmp(path, folder, strlen(folder)) && !strstr(path, "-shm");
}

static void all(const void *data, size_t size) {
    ssize_t (*plain)(int, const void *, size_t) = real("write");
    for (size_t done = 0; done < size;) {
        ssize_t n = plain(out, (const char *)data + done, size - done);
        if (n <= 0) _exit(99);
        done += n;
    }
}

static void record(int op, const char *path, int64_t offset, const void *data, uint64_t length) {
    struct timespec now;
    pthread_mutex_lock(&lock);
    if (out < 0) {
        int (*plain)(const char *, int, ...) = real("open");
        out = plain(getenv("RECORD_TO"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct head head = {op, {0}, strlen(path), offset, length, now.tv_sec + 1e-9 * now.tv_nsec};
    all(&head, sizeof head);
    all(path, head.path);
    if (op == WRITE) all(data, length);
    pthread_mutex_unlock(&lock);
}

static int opened(int fd, const char *path) {
    if (fd >= 0 && fd < MOST) { free(paths[fd]); paths[fd] = meant(path) ? strdup(path) : NULL; }
    return fd;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more); \
        return opened(((int (*)(const char *, int, ...))real(#name))(path, flags, mode), path); }
OPEN(open)
OPEN(open64)

int close(int fd) {
    if (fd >= 0 && fd < MOST) { free(paths[fd]); paths[fd] = NULL; }
    return ((int (*)(int))real("close"))(fd);
}

#define PWRITE(name, kind) \
    ssize_t name(int fd, const void *data, size_t size, kind offset) { \
        ssize_t n = ((ssize_t (*)(int, const void *, size_t, kind))real(#name))(fd, data, size, offset); \
        if (n > 0 && fd < MOST && paths[fd]) record(WRITE, paths[fd], offset, data, n); \
        return n; }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int fd, const void *data, size_t size) {
    int64_t offset = fd < MOST && paths[fd] ? lseek(fd, 0, SEEK_CUR) : 0;
    ssize_t n = ((ssize_t (*)(int, const void *, size_t))real("write"))(fd, data, size);
    if (n > 0 && fd < MOST && paths[fd]) record(WRITE, paths[fd], offset, data, n);
    return n;
}

#define SYNCS(name) \
    int name(int fd) { \
        int failed = ((int (*)(int))real(#name))(fd); \
        if (!failed && fd < MOST && paths[fd]) record(SYNC, paths[fd], 0, NULL, 0); \
        return failed; }
SYNCS(fsync)
SYNCS(fdatasync)

#define TRUNCATES(name, kind) \
    int name(int fd, kind size) { \
        int failed = ((int (*)(int, kind))real(#name))(fd, size); \
        if (!failed && fd < MOST && paths[fd]) record(TRUNCATE, paths[fd], size, NULL, 0); \
        return failed; }
TRUNCATES(ftruncate, off_t)
TRUNCATES(ftruncate64, off64_t)

int unlink(const char *path) {
    int failed = ((int (*)(const char *))real("unlink"))(path);
    if (!failed && meant(path)) record(UNLINK, path, 0, NULL, 0);
    return failed;
}
