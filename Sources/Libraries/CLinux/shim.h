// Only what Swift's Glibc module lacks. Not _GNU_SOURCE: it would define some of Glibc's types a second time, otherwise.
#include <linux/filter.h>
#include <linux/stat.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

// Declared by glibc under _GNU_SOURCE only.
extern int accept4(int socket, struct sockaddr *address, socklen_t *length, int flags);
extern long syscall(long number, ...);
extern int syncfs(int descriptor);
extern int pipe2(int descriptors[2], int flags);
extern int renameat2(int folder, const char *path, int target_folder, const char *target, unsigned int flags);

// Variadic functions and the function-like macros of <sys/wait.h> are not imported; `environ` is shared mutable state.
static inline int mayfly_open(const char *path, int flags, mode_t mode) { return open(path, flags, mode); }
static inline int mayfly_fcntl(int descriptor, int command, int argument) { return fcntl(descriptor, command, argument); }
static inline int mayfly_prctl(int option, unsigned long argument) { return prctl(option, argument, 0, 0, 0); }
static inline int mayfly_has_swap(void) { struct sysinfo found; return sysinfo(&found) != 0 || found.totalswap > 0; }
static inline int mayfly_exit_status(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }
static inline char **mayfly_environment(void) { return __environ; }
static inline void mayfly_name_thread(const char *name) { prctl(PR_SET_NAME, name, 0, 0, 0); }
static inline void mayfly_default_signal(int number) { signal(number, SIG_DFL); }
static inline void mayfly_ignore_signal(int number) { signal(number, SIG_IGN); }
static inline int mayfly_exchange(const char *path, const char *other) { return renameat2(AT_FDCWD, path, AT_FDCWD, other, 2 /* RENAME_EXCHANGE */); }
// Clears the vector registers. They hold bytes that this thread copied or ciphered last, and a core has those of all threads.
static inline void mayfly_clear_vectors(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx")) {
        __asm__ volatile("vzeroall" ::: "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
                         "xmm13", "xmm14", "xmm15");
    }
#if defined(__AVX512F__)
#error "The compiler may use zmm16-31 for this target. Declare them as clobbers."
#endif
    // Baseline x86-64 code never uses zmm16-31, so no clobbers are declared.
    if (__builtin_cpu_supports("avx512f")) {
        __asm__ volatile(".irp n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n"
                         "vpxorq %zmm\\n, %zmm\\n, %zmm\\n\n"
                         ".endr");
    }
#endif
}
// glibc's `statx` and the kernel's `struct statx` can't both be declared. -1: errno tells why.
static inline int mayfly_is_mount_point(const char *path) {
    struct statx found;
    if (syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &found) != 0) return -1;
    return (found.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}
