// Preloaded by tests: appends the path of each file that a process creates or opens for writing to TEST_FILES, one a line.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int notes = -1;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TEST_FILES");
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    if (path) notes = real(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static void note(const char *call, const char *path) {
    char line[4200];
    int length = snprintf(line, sizeof line, "%s %s\n", call, path ? path : "");
    if (notes >= 0 && length > 0) (void)!write(notes, line, (size_t)length);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)
#define MAKES(flags) ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE)
#define MODE(flags) \
    va_list list; \
    va_start(list, flags); \
    mode_t mode = MAKES(flags) ? va_arg(list, mode_t) : 0; \
    va_end(list); \
    if (MAKES(flags) || (flags & O_ACCMODE) != O_RDONLY) note("open", path)

#define ON_OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...); \
        MODE(flags); \
        return real(path, flags, mode); \
    }
ON_OPEN(open)
ON_OPEN(open64)

#define ON_OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(int, name, int, const char *, int, ...); \
        MODE(flags); \
        return real(folder, path, flags, mode); \
    }
ON_OPENAT(openat)
ON_OPENAT(openat64)

#define ON_FOPEN(name) \
    FILE *name(const char *path, const char *mode) { \
        REAL(FILE *, name, const char *, const char *); \
        if (strpbrk(mode, "wa+")) note("fopen", path); \
        return real(path, mode); \
    }
ON_FOPEN(fopen)
ON_FOPEN(fopen64)

int creat(const char *path, mode_t mode) {
    REAL(int, creat, const char *, mode_t);
    note("creat", path);
    return real(path, mode);
}

int mkstemp(char *path) {
    REAL(int, mkstemp, char *);
    note("mkstemp", path);
    return real(path);
}

FILE *tmpfile(void) {
    REAL(FILE *, tmpfile, void);
    note("tmpfile", "");
    return real();
}

int memfd_create(const char *name, unsigned flags) {
    REAL(int, memfd_create, const char *, unsigned);
    note("memfd_create", name);
    return real(name, flags);
}

int shm_open(const char *name, int flags, mode_t mode) {
    REAL(int, shm_open, const char *, int, mode_t);
    note("shm_open", name);
    return real(name, flags, mode);
}
