// Preloaded by tests: kills the process just before its KILL_AT-th call that changes a file, a name or what is durable; or makes its FAIL_AT-th
// such call fail with EIO.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int fails(void) {
    static atomic_long calls;
    const char *last = getenv("KILL_AT"), *bad = getenv("FAIL_AT");
    long call = atomic_fetch_add(&calls, 1) + 1;
    if (last && call == atol(last)) {
        kill(getpid(), SIGKILL);
        pause();
    }
    if (!bad || call != atol(bad)) return 0;
    errno = EIO;
    return 1;
}

#define WRAP(type, name, parameters, arguments)                                     \
    type name parameters {                                                          \
        static type(*real) parameters;                                              \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name);              \
        return fails() ? -1 : real arguments;                                       \
    }

WRAP(int, rename, (const char *from, const char *to), (from, to))
WRAP(int, renameat2, (int at, const char *from, int at2, const char *to, unsigned int flags), (at, from, at2, to, flags))
WRAP(int, unlink, (const char *path), (path))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(int, rmdir, (const char *path), (path))
WRAP(int, fsync, (int file), (file))
WRAP(int, fdatasync, (int file), (file))
WRAP(int, syncfs, (int file), (file))
WRAP(int, ftruncate, (int file, off_t size), (file, size))
WRAP(int, ftruncate64, (int file, off64_t size), (file, size))
WRAP(ssize_t, pwrite, (int file, const void *bytes, size_t size, off_t at), (file, bytes, size, at))
WRAP(ssize_t, pwrite64, (int file, const void *bytes, size_t size, off64_t at), (file, bytes, size, at))
