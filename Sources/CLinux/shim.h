// Asks glibc for accept4, pipe2, gettid and the like.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Variadic functions and the function-like macros of <sys/wait.h> are not imported.
static inline int mayfly_open(const char *path, int flags, mode_t mode) { return open(path, flags, mode); }
static inline int mayfly_fcntl(int descriptor, int command, int argument) { return fcntl(descriptor, command, argument); }
static inline int mayfly_prctl(int option, unsigned long argument) { return prctl(option, argument, 0, 0, 0); }
static inline int mayfly_exit_status(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }
