/* base/err.c - see err.h. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int err_set(struct err *e, enum err_code code, const char *file, int line, const char *format, ...)
{
    if (e->code != ERR_NONE)
        return -1;
    e->code = code;
    size_t used = 0;
    if (code == ERR_INTERNAL)
        used = (size_t)snprintf(e->text, sizeof e->text, "%s:%d: ", file, line);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(e->text + used, sizeof e->text - used, format, args);
    va_end(args);
    for (char *c = e->text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return -1;
}

void *err_calloc(struct err *e, unsigned long n, unsigned long size, const char *what)
{
    void *p = calloc(n > 0 ? n : 1, size);
    if (p == NULL)
        ERR(e, ERR_MEMORY, "out of host memory: %s needs %lu x %lu bytes", what, n, size);
    return p;
}

const char *err_code_name(enum err_code code)
{
    switch (code) {
    case ERR_NONE:
        return "success";
    case ERR_REQUEST:
        return "requests failed";
    case ERR_USAGE:
        return "usage error";
    case ERR_INPUT:
        return "bad input";
    case ERR_UNSUPPORTED:
        return "not supported";
    case ERR_IO:
        return "input/output error";
    case ERR_MEMORY:
        return "out of memory";
    case ERR_DEVICE:
        return "device error";
    case ERR_COMM:
        return "communication error";
    case ERR_PREFLIGHT:
        return "unfit node";
    case ERR_RESUME:
        return "to be resumed";
    case ERR_INTERNAL:
        break;
    }
    return "internal error";
}
