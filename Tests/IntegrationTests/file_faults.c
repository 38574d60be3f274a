// Preloaded by tests: makes one chosen call on files below TEST_FAULTS_BELOW fail, or wait. Test and process map a file (TEST_FAULTS) that selects the
// call at run time, so one process can meet many faults.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FAILS = 1, WRITES_HALF = 2, WRITES_HALF_AND_FAILS = 3, DIES = 4, DONE_AND_FAILS = 5, WAITS = 6 };

// Same layout as `Faults` in faults.py.
struct control {
    _Atomic int64_t left;    // calls up to and including the one that is struck; 0: none; -1: each
    _Atomic int64_t kind;
    _Atomic int64_t error;   // of WAITS: for how many milliseconds; -1: until another fault, or none, is chosen
    _Atomic int64_t calls;   // calls so far
    _Atomic int64_t struck;  // struck calls so far
    char name[32];           // of the last struck call
    char only[32];           // if set: only calls of this name count; "change": only those that change something or make it durable
    char place[256];         // of the last struck call's file
};

static struct control *control;
static const char *below;
static _Atomic char watched[65536];  // by descriptor: whether its file is below
static _Atomic(DIR *) folders[64];
static _Atomic int half;  // a descriptor whose next write fails

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TEST_FAULTS");
    below = getenv("TEST_FAULTS_BELOW");
    int file = path && below ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    half = -1;
    if (map != MAP_FAILED) control = map;
}

static int lies_below(const char *path) {
    size_t length;
    if (!control || !path) return 0;
    length = strlen(below);
    return strncmp(path, below, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int is_watched(int file) { return control && file >= 0 && file < 65536 && watched[file]; }

static int is_meant(const char *name) {
    static const char *const looks[] = {"open", "close", "pread", "fstat", "stat", "lstat", "access", "opendir", "readdir"};
    if (control->only[0] == 0) return 1;
    if (strcmp(control->only, "change") != 0) return strcmp(control->only, name) == 0;
    for (size_t look = 0; look < sizeof looks / sizeof *looks; look++)
        if (strcmp(looks[look], name) == 0) return 0;
    return 1;
}

// Returns 0, or how this call is struck.
static int64_t fate(const char *name, const char *place) {
    control->calls++;
    if (!is_meant(name)) return 0;
    if (control->left == 0 || (control->left > 0 && --control->left > 0)) return 0;
    strncpy(control->name, name, sizeof control->name - 1);
    strncpy(control->place, place ? place : "", sizeof control->place - 1);
    control->struck++;
    if (control->kind == DIES) _exit(137);
    if (control->kind == WAITS) {
        for (int64_t left = control->error; left != 0 && control->left != 0; left -= left > 0) usleep(1000);
        return 0;
    }
    errno = (int)control->error;
    return control->kind;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

// A call that may fail; by `kind` it may be done all the same.
#define STRIKE(name, place, failed, call) \
    do { \
        int64_t kind = fate(name, place); \
        if (kind == DONE_AND_FAILS) { \
            int error = errno; \
            (void)!(call); \
            errno = error; \
        } \
        if (kind) return failed; \
    } while (0)

int open(const char *path, int flags, ...) {
    REAL(int, open, const char *, int, ...);
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (!lies_below(path)) {
        int file = real(path, flags, mode);
        if (file >= 0 && file < 65536) watched[file] = 0;
        return file;
    }
    if (fate("open", path)) return -1;
    int file = real(path, flags, mode);
    if (file >= 0 && file < 65536) watched[file] = 1;
    return file;
}

int close(int file) {
    REAL(int, close, int);
    if (is_watched(file)) {
        watched[file] = 0;
        // A failing close closes the descriptor.
        if (fate("close", "")) {
            int error = errno;
            real(file);
            errno = error;
            return -1;
        }
    }
    return real(file);
}

ssize_t pread(int file, void *bytes, size_t count, off_t offset) {
    REAL(ssize_t, pread, int, void *, size_t, off_t);
    if (is_watched(file) && fate("pread", "")) return -1;
    return real(file, bytes, count, offset);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    if (!is_watched(file)) return real(file, bytes, count, offset);
    if (half == file) {
        half = -1;
        errno = (int)control->error;
        return -1;
    }
    int64_t kind = fate("pwrite", "");
    if (kind == WRITES_HALF || kind == WRITES_HALF_AND_FAILS) {
        if (kind == WRITES_HALF_AND_FAILS) half = file;
        return real(file, bytes, count / 2 + 1 < count ? count / 2 + 1 : count, offset);
    }
    if (kind == DONE_AND_FAILS) (void)!real(file, bytes, count, offset);
    if (kind) {
        errno = (int)control->error;
        return -1;
    }
    return real(file, bytes, count, offset);
}

#define ON_FILE(name) \
    int name(int file) { \
        REAL(int, name, int); \
        if (is_watched(file)) STRIKE(#name, "", -1, real(file)); \
        return real(file); \
    }
ON_FILE(fsync)
ON_FILE(fdatasync)
ON_FILE(syncfs)

int ftruncate(int file, off_t size) {
    REAL(int, ftruncate, int, off_t);
    if (is_watched(file)) STRIKE("ftruncate", "", -1, real(file, size));
    return real(file, size);
}

int fchmod(int file, mode_t mode) {
    REAL(int, fchmod, int, mode_t);
    if (is_watched(file)) STRIKE("fchmod", "", -1, real(file, mode));
    return real(file, mode);
}

int fstat(int file, struct stat *status) {
    REAL(int, fstat, int, struct stat *);
    if (is_watched(file) && fate("fstat", "")) return -1;
    return real(file, status);
}

#define ON_STATUS(name) \
    int name(const char *path, struct stat *status) { \
        REAL(int, name, const char *, struct stat *); \
        if (lies_below(path) && fate(#name, path)) return -1; \
        return real(path, status); \
    }
ON_STATUS(stat)
ON_STATUS(lstat)

int access(const char *path, int mode) {
    REAL(int, access, const char *, int);
    if (lies_below(path) && fate("access", path)) return -1;
    return real(path, mode);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    if (lies_below(path)) STRIKE("mkdir", path, -1, real(path, mode));
    return real(path, mode);
}

#define ON_PATH(name) \
    int name(const char *path) { \
        REAL(int, name, const char *); \
        if (lies_below(path)) STRIKE(#name, path, -1, real(path)); \
        return real(path); \
    }
ON_PATH(unlink)
ON_PATH(rmdir)

int fchmodat(int at, const char *path, mode_t mode, int flags) {
    REAL(int, fchmodat, int, const char *, mode_t, int);
    if (lies_below(path)) STRIKE("fchmodat", path, -1, real(at, path, mode, flags));
    return real(at, path, mode, flags);
}

int renameat2(int at, const char *path, int target_at, const char *target, unsigned flags) {
    REAL(int, renameat2, int, const char *, int, const char *, unsigned);
    if (lies_below(path)) STRIKE("renameat2", path, -1, real(at, path, target_at, target, flags));
    return real(at, path, target_at, target, flags);
}

int rename(const char *path, const char *target) {
    REAL(int, rename, const char *, const char *);
    if (lies_below(path)) STRIKE("rename", path, -1, real(path, target));
    return real(path, target);
}

DIR *opendir(const char *path) {
    REAL(DIR *, opendir, const char *);
    if (!lies_below(path)) return real(path);
    if (fate("opendir", path)) return NULL;
    DIR *folder = real(path);
    for (int place = 0; folder && place < 64; place++) {
        DIR *none = NULL;
        if (atomic_compare_exchange_strong(&folders[place], &none, folder)) break;
    }
    return folder;
}

struct dirent *readdir(DIR *folder) {
    REAL(struct dirent *, readdir, DIR *);
    for (int place = 0; control && place < 64; place++)
        if (folders[place] == folder && fate("readdir", "")) return NULL;
    return real(folder);
}

int closedir(DIR *folder) {
    REAL(int, closedir, DIR *);
    for (int place = 0; place < 64; place++)
        if (folders[place] == folder) folders[place] = NULL;
    return real(folder);
}
