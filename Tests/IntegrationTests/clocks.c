// Preloaded by tests: moves the clocks of a process, at its start or while it runs. Test and process map a file with the offsets (TEST_CLOCKS).
// epoll_wait returns within 10 ms of a change. Also counts SQLite's checkpoints that emptied the write-ahead log.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

// Same layout as `Clocks` in clocks.py.
struct control {
    _Atomic int64_t passed;    // milliseconds that all clocks are ahead, as if the machine had slept
    _Atomic int64_t leaps;     // further milliseconds of the wall clock
    _Atomic int64_t scrubbed;  // checkpoints that emptied the log
};

static struct control none, *control = &none;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TEST_CLOCKS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (map != MAP_FAILED) control = map;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

int clock_gettime(clockid_t clock, struct timespec *result) {
    REAL(int, clock_gettime, clockid_t, struct timespec *);
    int answer = real(clock, result);
    if (answer != 0 || clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID) return answer;
    // A process that reads the wall clock and then the boot clock must get one offset for both, or it would see a leap.
    static _Thread_local int64_t seen;
    static _Thread_local int is_pair;
    int64_t ahead = control->passed;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        seen = ahead;
        is_pair = 1;
        ahead += control->leaps;
    } else if (clock == CLOCK_BOOTTIME) {
        if (is_pair) ahead = seen;
        is_pair = 0;
    }
    int64_t nanoseconds = result->tv_nsec + ahead % 1000 * 1000000;
    result->tv_sec += ahead / 1000 + (nanoseconds >= 1000000000) - (nanoseconds < 0);
    result->tv_nsec = (nanoseconds + 1000000000) % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict result, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    result->tv_sec = now.tv_sec;
    result->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return (time_t)-1;
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}

int epoll_wait(int epoll, struct epoll_event *events, int room, int timeout) {
    REAL(int, epoll_wait, int, struct epoll_event *, int, int);
    const int slice = 10;
    int64_t before = control->passed + control->leaps;
    while (timeout < 0 || timeout > slice) {
        int count = real(epoll, events, room, slice);
        // The caller reads the clocks and waits again.
        if (count != 0 || control->passed + control->leaps != before) return count;
        if (timeout > 0) timeout -= slice;
    }
    return real(epoll, events, room, timeout);
}

int sqlite3_wal_checkpoint_v2(void *database, const char *name, int mode, int *frames, int *done) {
    REAL(int, sqlite3_wal_checkpoint_v2, void *, const char *, int, int *, int *);
    int code = real(database, name, mode, frames, done);
    if (code == 0 && mode == 3) control->scrubbed++;
    return code;
}
