// Preloaded by tests: clocks that are moved at run time, so that a running broker lives through hours, days and leaps. By how much is said in
// a file that both sides have mapped (TEST_CLOCKS). Waits are short, so that whoever waits for a time sees that it has come.
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

// As `Clocks` in clocks.py has it, in milliseconds.
struct control {
    _Atomic int64_t passed;  // all clocks stand so far ahead
    _Atomic int64_t leaps;   // and the wall clock so much more
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TEST_CLOCKS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (map != MAP_FAILED) control = map;
}

int clock_gettime(clockid_t clock, struct timespec *result) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, result);
    if (answer != 0 || !control) return answer;
    // Who looks at the wall clock and then at the other must not see time pass in between: that would be a leap.
    static _Thread_local int64_t seen;
    static _Thread_local int is_pair;
    int64_t ahead = 0;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        seen = control->passed;
        is_pair = 1;
        ahead = seen + control->leaps;
    } else if (clock == CLOCK_BOOTTIME) {
        ahead = is_pair ? seen : control->passed;
        is_pair = 0;
    } else if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE) {
        ahead = control->passed;
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

int epoll_wait(int file, struct epoll_event *events, int count, int timeout) {
    static int (*real)(int, struct epoll_event *, int, int);
    if (!real) real = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    return real(file, events, count, timeout < 0 || timeout > 20 ? 20 : timeout);
}
