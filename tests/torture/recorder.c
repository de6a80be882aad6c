/* Preloaded into a process, records what it does to the files below one directory, and syncs nothing.
 *
 *   LD_PRELOAD=recorder.so TORTURE_ROOT=/dir TORTURE_RECORD=/elsewhere/record program …
 *
 * The record is a row of (see disk.py):
 *
 *   entry := operation:u32 path_size:u32 other_size:u32 data_size:u32 inode:u64 offset:i64 path other data
 *
 * An operation and its entry are one step under one lock, so that the entries are in the order in which the
 * operations took effect. The record itself is locked meanwhile (flock): who has that lock and kills the process
 * leaves no operation without its entry. A sync is two entries: what came before the first one is on disk after
 * the second one. Syncing for real would only cost time: a killed process loses nothing, and a power cut is made
 * of the record.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum operation {
    OPENED = 1,
    CREATED,
    WRITTEN,
    TRUNCATED,
    SYNC_BEGUN,
    SYNC_ENDED,
    RENAMED,
    UNLINKED,
    MADE_DIRECTORY,
    LINKED,
};

struct entry {
    uint32_t operation, path_size, other_size, data_size;
    uint64_t inode;
    int64_t offset;
};

#define FILES_MAX 65536

struct file {
    int is_open, is_directory, appends, syncs;
    uint64_t inode;
    char *path;
};

static struct file files[FILES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static size_t root_size;
static int record = -1;
static int64_t syncs; /* numbers the syncs, in the offset of their entries */

static void give_up(const char *what) {
    fprintf(stderr, "recorder: %s: %s\n", what, strerror(errno));
    abort();
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TORTURE_RECORD");
    root = getenv("TORTURE_ROOT");
    if (!root || !path) return;
    root_size = strlen(root);
    record = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (record < 0) give_up(path);
}

static void lock_record(int how) {
    while (syscall(SYS_flock, record, how))
        if (errno != EINTR) give_up("the record cannot be locked");
}

static void begin_step(void) {
    pthread_mutex_lock(&lock);
    lock_record(LOCK_EX);
}

static void end_step(void) {
    lock_record(LOCK_UN);
    pthread_mutex_unlock(&lock);
}

static int is_ours(const char *path) {
    return record >= 0 && path && !strncmp(path, root, root_size) && path[root_size] == '/';
}

static int is_root(const char *path) {
    return record >= 0 && path && !strcmp(path, root);
}

static struct file *file_of(int descriptor) {
    if (record < 0 || descriptor < 0 || descriptor >= FILES_MAX || !files[descriptor].is_open) return NULL;
    return &files[descriptor];
}

static void note(enum operation operation, uint64_t inode, int64_t offset, const char *path, const char *other,
                 const void *data, size_t size) {
    struct entry entry = {operation, path ? strlen(path) : 0, other ? strlen(other) : 0, size, inode, offset};
    struct iovec parts[] = {{&entry, sizeof entry},
                            {(void *)path, entry.path_size},
                            {(void *)other, entry.other_size},
                            {(void *)data, size}};
    ssize_t whole = sizeof entry + entry.path_size + entry.other_size + size;
    if (syscall(SYS_writev, record, parts, 4) != whole) give_up("the record cannot be written");
}

static void opened(int descriptor, const char *path, int flags, int existed) {
    struct stat found;
    if (descriptor < 0) return;
    if (descriptor >= FILES_MAX) give_up("too many files");
    if (fstat(descriptor, &found)) give_up("fstat");
    struct file *file = &files[descriptor];
    free(file->path);
    *file = (struct file){1, S_ISDIR(found.st_mode), !!(flags & O_APPEND), !!(flags & (O_SYNC | O_DSYNC)),
                          found.st_ino, strdup(path)};
    if (file->is_directory) return;
    note(existed ? OPENED : CREATED, found.st_ino, 0, path, NULL, NULL, 0);
    if (existed && flags & O_TRUNC && (flags & O_ACCMODE) != O_RDONLY)
        note(TRUNCATED, found.st_ino, 0, NULL, NULL, NULL, 0);
}

static int open_at(int directory, const char *path, int flags, mode_t mode) {
    if (!is_ours(path) && !is_root(path)) return syscall(SYS_openat, directory, path, flags, mode);
    struct stat found;
    begin_step();
    int existed = !lstat(path, &found);
    int descriptor = syscall(SYS_openat, directory, path, flags, mode);
    int error = errno;
    opened(descriptor, path, flags, existed);
    end_step();
    errno = error;
    return descriptor;
}

#define OPEN_WITH_MODE(directory)                                          \
    mode_t mode = 0;                                                       \
    if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) {                  \
        va_list rest;                                                      \
        va_start(rest, flags);                                             \
        mode = va_arg(rest, mode_t);                                       \
        va_end(rest);                                                      \
    }                                                                      \
    return open_at(directory, path, flags, mode)

int open(const char *path, int flags, ...) { OPEN_WITH_MODE(AT_FDCWD); }
int open64(const char *path, int flags, ...) { OPEN_WITH_MODE(AT_FDCWD); }
int openat(int directory, const char *path, int flags, ...) { OPEN_WITH_MODE(directory); }
int openat64(int directory, const char *path, int flags, ...) { OPEN_WITH_MODE(directory); }
int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __openat_2(int directory, const char *path, int flags) { return open_at(directory, path, flags, 0); }
int __openat64_2(int directory, const char *path, int flags) { return open_at(directory, path, flags, 0); }
int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

int close(int descriptor) {
    if (!file_of(descriptor)) return syscall(SYS_close, descriptor);
    begin_step();
    files[descriptor].is_open = 0;
    int result = syscall(SYS_close, descriptor);
    end_step();
    return result;
}

/* Writing at `offset`, or where the file stands if that is negative. */
static ssize_t write_at(int descriptor, const struct iovec *parts, int count, off_t offset) {
    struct file *file = file_of(descriptor);
    if (!file)
        return offset < 0 ? syscall(SYS_writev, descriptor, parts, count)
                          : syscall(SYS_pwritev, descriptor, parts, count, offset, 0);
    begin_step();
    struct stat found;
    off_t at = offset;
    if (file->appends)
        at = fstat(descriptor, &found) ? -1 : found.st_size;
    else if (offset < 0)
        at = lseek(descriptor, 0, SEEK_CUR);
    ssize_t size = offset < 0 ? syscall(SYS_writev, descriptor, parts, count)
                              : syscall(SYS_pwritev, descriptor, parts, count, offset, 0);
    int error = errno;
    ssize_t left = size;
    for (int part = 0; part < count && left > 0; part++) {
        size_t here = parts[part].iov_len < (size_t)left ? parts[part].iov_len : (size_t)left;
        note(WRITTEN, file->inode, at, NULL, NULL, parts[part].iov_base, here);
        at += here;
        left -= here;
    }
    if (file->syncs && size > 0) {
        int64_t number = ++syncs;
        note(SYNC_BEGUN, file->inode, number, NULL, NULL, NULL, 0);
        note(SYNC_ENDED, file->inode, number, NULL, NULL, NULL, 0);
    }
    end_step();
    errno = error;
    return size;
}

ssize_t write(int descriptor, const void *data, size_t size) {
    if (!file_of(descriptor)) return syscall(SYS_write, descriptor, data, size);
    return write_at(descriptor, &(struct iovec){(void *)data, size}, 1, -1);
}
ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset) {
    return write_at(descriptor, &(struct iovec){(void *)data, size}, 1, offset);
}
ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset) {
    return pwrite(descriptor, data, size, offset);
}
ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    return write_at(descriptor, parts, count, -1);
}
ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t offset) {
    return write_at(descriptor, parts, count, offset);
}
ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off64_t offset) {
    return write_at(descriptor, parts, count, offset);
}

int ftruncate(int descriptor, off_t size) {
    struct file *file = file_of(descriptor);
    if (!file) return syscall(SYS_ftruncate, descriptor, size);
    begin_step();
    int result = syscall(SYS_ftruncate, descriptor, size);
    int error = errno;
    if (!result) note(TRUNCATED, file->inode, size, NULL, NULL, NULL, 0);
    end_step();
    errno = error;
    return result;
}
int ftruncate64(int descriptor, off64_t size) { return ftruncate(descriptor, size); }

int fallocate(int descriptor, int mode, off_t offset, off_t size) {
    struct file *file = file_of(descriptor);
    if (!file) return syscall(SYS_fallocate, descriptor, mode, offset, size);
    begin_step();
    struct stat before, after;
    fstat(descriptor, &before);
    int result = syscall(SYS_fallocate, descriptor, mode, offset, size);
    int error = errno;
    if (mode & ~FALLOC_FL_KEEP_SIZE) give_up("fallocate in a way that is not recorded");
    if (!result && !fstat(descriptor, &after) && after.st_size != before.st_size)
        note(TRUNCATED, file->inode, after.st_size, NULL, NULL, NULL, 0);
    end_step();
    errno = error;
    return result;
}
int fallocate64(int descriptor, int mode, off64_t offset, off64_t size) {
    return fallocate(descriptor, mode, offset, size);
}
int posix_fallocate(int descriptor, off_t offset, off_t size) {
    return fallocate(descriptor, 0, offset, size) ? errno : 0;
}
int posix_fallocate64(int descriptor, off64_t offset, off64_t size) {
    return posix_fallocate(descriptor, offset, size);
}

static int sync_file(int descriptor, long call) {
    struct file *file = file_of(descriptor);
    if (!file) return syscall(call, descriptor);
    begin_step();
    uint64_t inode = file->inode;
    int64_t number = ++syncs;
    char *path = file->is_directory ? strdup(file->path) : NULL;
    note(SYNC_BEGUN, inode, number, path, NULL, NULL, 0);
    end_step();
    usleep(200); /* as a disk takes its time, so that others write meanwhile */
    begin_step();
    note(SYNC_ENDED, inode, number, path, NULL, NULL, 0);
    end_step();
    free(path);
    return 0;
}
int fsync(int descriptor) { return sync_file(descriptor, SYS_fsync); }
int fdatasync(int descriptor) { return sync_file(descriptor, SYS_fdatasync); }
int sync_file_range(int descriptor, off64_t offset, off64_t size, unsigned int flags) {
    (void)descriptor, (void)offset, (void)size, (void)flags;
    return 0; /* promises nothing */
}

#define STEP(call, recorded)            \
    begin_step();                       \
    int result = call;                  \
    int error = errno;                  \
    if (!result) recorded;              \
    end_step();                         \
    errno = error;                      \
    return result

int rename(const char *from, const char *to) {
    if (!is_ours(from) && !is_ours(to)) return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    STEP(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0), note(RENAMED, 0, 0, from, to, NULL, 0));
}
int unlink(const char *path) {
    if (!is_ours(path)) return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    STEP(syscall(SYS_unlinkat, AT_FDCWD, path, 0), note(UNLINKED, 0, 0, path, NULL, NULL, 0));
}
int remove(const char *path) { return unlink(path); }
int mkdir(const char *path, mode_t mode) {
    if (!is_ours(path)) return syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    STEP(syscall(SYS_mkdirat, AT_FDCWD, path, mode), note(MADE_DIRECTORY, 0, 0, path, NULL, NULL, 0));
}
int link(const char *from, const char *to) {
    if (!is_ours(from) && !is_ours(to)) return syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
    STEP(syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0), note(LINKED, 0, 0, from, to, NULL, 0));
}
