#include <malloc.h>
#include <nghttp2/nghttp2.h>
#include <string.h>
