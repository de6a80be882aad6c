/*
 * Preloaded into a process, it makes bytes of its tables unreadable, as a bad sector does: while the file
 * BAD_SECTOR exists, which says "FROM TO END", a read of a file whose name ends so that meets one of these bytes
 * fails with EIO.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int is_bad(int descriptor, size_t size, off64_t offset)
{
    const char *where = getenv("BAD_SECTOR");
    char link[64], path[4096], end[64];
    long from = 0, to = 0;
    FILE *said = where == NULL ? NULL : fopen(where, "r");
    if (said == NULL)
        return 0;
    if (fscanf(said, "%ld %ld %63s", &from, &to, end) != 3)
        abort();
    fclose(said);
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    ssize_t tail = strlen(end);
    if (length < tail || memcmp(path + length - tail, end, tail) != 0)
        return 0;
    return offset < to && offset + (off64_t)size > from;
}

static ssize_t read_at(const char *name, int descriptor, void *into, size_t size, off64_t offset)
{
    ssize_t (*real)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, name);
    if (is_bad(descriptor, size, offset)) {
        errno = EIO;
        return -1;
    }
    return real(descriptor, into, size, offset);
}

ssize_t pread64(int descriptor, void *into, size_t size, off64_t offset)
{
    return read_at("pread64", descriptor, into, size, offset);
}

ssize_t pread(int descriptor, void *into, size_t size, off_t offset)
{
    return read_at("pread", descriptor, into, size, offset);
}
