// Speaks when a process that ends lets its libraries tidy up: other threads may still be using them then.
#include <unistd.h>

__attribute__((destructor)) static void late(void) { (void)!write(2, "tidied up\n", 10); }
