/* base/protocol_types.c - see protocol_types.h. */
#include "base/protocol_types.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Makes client text safe for messages: one line, and no partial character where it was cut. */
static void make_plain(char *text)
{
    size_t n = strlen(text);
    for (size_t at = 0; (at += utf8_invalid_at(text + at, n - at)) < n;)
        text[at] = '?';
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

enum protocol_code protocol_blame(const struct err *e)
{
    return e->code == ERR_INPUT || e->code == ERR_UNSUPPORTED ? PROTOCOL_BAD_REQUEST : PROTOCOL_INTERNAL;
}

int protocol_fail(struct protocol_error *error, enum protocol_code code, const char *field, const char *format, ...)
{
    va_list list;
    if (error->code != 0)
        return -1;
    error->code = code;
    (void)snprintf(error->field, sizeof error->field, "%s", field);
    va_start(list, format);
    (void)vsnprintf(error->message, sizeof error->message, format, list);
    va_end(list);
    make_plain(error->field);
    make_plain(error->message);
    return -1;
}
