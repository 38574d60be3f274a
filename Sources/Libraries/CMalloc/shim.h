#include <malloc.h>
#include <string.h>

// What glibc's own `malloc` and `free` are called beside those names, for programs that put others in their place.
extern void *__libc_malloc(unsigned long size);
extern void __libc_free(void *block);
