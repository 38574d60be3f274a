// Preloaded by tests: switches off the protections that TEST_OFF names, separated by commas, so that a test can show the effect of each.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static int is_off(const char *name) {
    const char *list = getenv("TEST_OFF");
    size_t length = strlen(name);
    for (const char *at = list ? strstr(list, name) : NULL; at; at = strstr(at + 1, name))
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0')) return 1;
    return 0;
}

// Read once: these are called often, the first of them before the process is initialised.
#define OFF(name) ({ static int known; if (!known) known = is_off(name) ? 1 : 2; known == 1; })
#define REAL(function) ({ static __typeof__(&function) real; if (!real) real = (__typeof__(&function))dlsym(RTLD_NEXT, #function); real; })

void explicit_bzero(void *block, size_t size) {
    if (OFF("explicit_bzero")) return;
    memset(block, 0, size);
    __asm__ volatile("" : : "r"(block) : "memory");
}

void sodium_memzero(void *block, size_t size);
void sodium_memzero(void *block, size_t size) {
    if (OFF("sodium_memzero")) return;
    memset(block, 0, size);
    __asm__ volatile("" : : "r"(block) : "memory");
}

void OPENSSL_cleanse(void *block, size_t size);
void OPENSSL_cleanse(void *block, size_t size) {
    if (OFF("OPENSSL_cleanse")) return;
    memset(block, 0, size);
    __asm__ volatile("" : : "r"(block) : "memory");
}

int prctl(int option, ...) {
    va_list arguments;
    va_start(arguments, option);
    unsigned long values[4];
    for (int i = 0; i < 4; i++) values[i] = va_arg(arguments, unsigned long);
    va_end(arguments);
    // Some systems let only its parent trace a process, unless the process allows others.
    if (option == PR_SET_DUMPABLE && OFF("prctl")) return REAL(prctl)(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0), 0;
    return REAL(prctl)(option, values[0], values[1], values[2], values[3]);
}

int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    int mode = va_arg(arguments, int);
    va_end(arguments);
    if (strstr(path, "coredump_filter") && OFF("coredump_filter")) return errno = ENOENT, -1;
    return REAL(open)(path, flags, mode);
}

sighandler_t signal(int number, sighandler_t handler) {
    if (handler == SIG_DFL && OFF("signal")) return SIG_DFL;
    return REAL(signal)(number, handler);
}

int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit) {
    if (resource == RLIMIT_CORE && OFF("setrlimit")) return 0;
    return REAL(setrlimit)(resource, limit);
}

int madvise(void *start, size_t size, int advice) {
    if (advice == MADV_DONTDUMP && OFF("madvise")) return 0;
    return REAL(madvise)(start, size, advice);
}

int mlock(const void *start, size_t size) {
    if (OFF("mlock")) return 0;
    return REAL(mlock)(start, size);
}
