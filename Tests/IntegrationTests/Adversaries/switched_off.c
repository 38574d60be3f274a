// Preloaded by tests: switches off one protection of a library or the system (TEST_SWITCHED_OFF), so that its test must fail. Each call reports
// success.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int off(const char *protection) {
    const char *which = getenv("TEST_SWITCHED_OFF");
    return which && strcmp(which, protection) == 0;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

// secure_delete: freed rows and pages keep their bytes.
int sqlite3_exec(void *database, const char *sql, void *call, void *context, char **error) {
    REAL(int, sqlite3_exec, void *, const char *, void *, void *, char **);
    static const char on[] = "secure_delete = ON;", off_text[] = "secure_delete=OFF; ";
    char *place, *copy;
    int code;
    if (!off("secure_delete") || !strstr(sql, on)) return real(database, sql, call, context, error);
    copy = strdup(sql);
    place = strstr(copy, on);
    memcpy(place, off_text, sizeof on - 1);
    code = real(database, copy, call, context, error);
    free(copy);
    return code;
}

// truncate: the write-ahead log keeps its bytes.
int sqlite3_wal_checkpoint_v2(void *database, const char *name, int mode, int *frames, int *done) {
    REAL(int, sqlite3_wal_checkpoint_v2, void *, const char *, int, int *, int *);
    return off("truncate") ? 0 : real(database, name, mode, frames, done);
}

// zeroing: keys aren't overwritten with zeros.
ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    if (off("zeroing")) {
        char link[64], path[4096] = "";
        const char *start = bytes;
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/keys/") && count > 0 && start[0] == 0 &&
            memcmp(start, start + 1, count - 1) == 0)
            return (ssize_t)count;
    }
    return real(file, bytes, count, offset);
}

// locking: memory that holds secrets may be swapped out.
int mlock(const void *start, size_t count) {
    REAL(int, mlock, const void *, size_t);
    return off("locking") ? 0 : real(start, count);
}
