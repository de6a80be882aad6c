/* A wall clock that is ahead by as many nanoseconds as a file says: preloaded into one process.

   Only the wall clock is changed; time-outs count by the monotonic one. The file is mapped, so that a step is
   seen at the next look, and a look costs what it did before. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000LL

static int (*real_gettime)(clockid_t, struct timespec *);
static const volatile long long *ahead_ns;
static const long long nothing = 0;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("TIDEGATE_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    ahead_ns = &nothing;
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof *ahead_ns, PROT_READ, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED)
            ahead_ns = mapped;
        close(file);
    }
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result;
    long long ns;

    if (!real_gettime)
        begin();
    result = real_gettime(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        ns = now->tv_sec * SECOND_NS + now->tv_nsec + *ahead_ns;
        now->tv_sec = ns / SECOND_NS;
        now->tv_nsec = ns % SECOND_NS;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where)
{
    struct timespec exact;

    clock_gettime(CLOCK_REALTIME_COARSE, &exact);
    if (where)
        *where = exact.tv_sec;
    return exact.tv_sec;
}
