// Preloaded by tests into broker and simulator: appends the plain text of each TLS session to the file CAPTURE. Each record is written whole
// before the process continues, so a `kill -9` loses none.
// A record: monotonic time in ns (u64), session (u64), kind (u32: 0 made, 1 read, 2 written), length (u32), bytes; in native byte order.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;
enum { made, received, sent };

static void record(const SSL *session, uint32_t kind, const void *bytes, int count) {
    static atomic_int file = -1;
    if (file < 0) {
        const char *path = getenv("CAPTURE");
        if (!path) abort();
        file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (file < 0) abort();
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct {
        uint64_t time, session;
        uint32_t kind, length;
    } head = {(uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, (uint64_t)(uintptr_t)session, kind, (uint32_t)count};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)bytes, (size_t)count}};
    if (writev(file, parts, 2) != (ssize_t)(sizeof head + (size_t)count)) abort();
}

static SSL *(*real_new)(SSL_CTX *);
static int (*real_read)(SSL *, void *, int);
static int (*real_write)(SSL *, const void *, int);

__attribute__((constructor)) static void find(void) {
    real_new = (SSL *(*)(SSL_CTX *))dlsym(RTLD_NEXT, "SSL_new");
    real_read = (int (*)(SSL *, void *, int))dlsym(RTLD_NEXT, "SSL_read");
    real_write = (int (*)(SSL *, const void *, int))dlsym(RTLD_NEXT, "SSL_write");
}

SSL *SSL_new(SSL_CTX *context) {
    SSL *session = real_new(context);
    if (session) record(session, made, "", 0);
    return session;
}

int SSL_read(SSL *session, void *bytes, int most) {
    int count = real_read(session, bytes, most);
    if (count > 0) record(session, received, bytes, count);
    return count;
}

int SSL_write(SSL *session, const void *bytes, int count) {
    // OpenSSL may accept a part only. The caller sends it afterwards.
    int taken = real_write(session, bytes, count);
    if (taken > 0) record(session, sent, bytes, taken);
    return taken;
}
