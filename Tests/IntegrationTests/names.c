// Preloaded by tests: resolves the host names of TEST_NAMES="name=address,…" instead of the system's resolver. The address "hang" never comes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real) real = (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(RTLD_NEXT, "getaddrinfo");
    char names[1024] = "", *rest;
    const char *given = getenv("TEST_NAMES");
    if (given) strncat(names, given, sizeof names - 1);
    for (char *entry = strtok_r(names, ",", &rest); entry && name; entry = strtok_r(NULL, ",", &rest)) {
        char *address = strchr(entry, '=');
        if (!address) continue;
        *address++ = 0;
        if (strcmp(entry, name) == 0 && strcmp(address, "hang") == 0) sleep(3600);
        if (strcmp(entry, name) == 0) return real(address, service, hints, found);
    }
    return real(name, service, hints, found);
}
