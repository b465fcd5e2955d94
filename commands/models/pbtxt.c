/* commands/models/pbtxt.c - see pbtxt.h. */
#include "commands/models/pbtxt.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define MOST_NESTED 64

static void skip_space(struct pbtxt *p)
{
    for (;; p->at++) {
        if (*p->at == '#')
            p->at += strcspn(p->at, "\n");
        if (*p->at == '\0' || (!isspace((unsigned char)*p->at) && *p->at != ',' && *p->at != ';'))
            return;
    }
}

bool pbtxt_field(struct pbtxt *p, char key[PBTXT_KEY_BYTES], struct err *e)
{
    size_t n = 0;
    skip_space(p);
    if (*p->at == '\0' || *p->at == '}')
        return false;
    while (isalnum((unsigned char)p->at[n]) || p->at[n] == '_')
        n++;
    if (n == 0 || n >= PBTXT_KEY_BYTES) {
        ERR(e, ERR_INPUT, "%.200s: found \"%.20s\", expected the name of a field", p->what, p->at);
        return false;
    }
    (void)snprintf(key, PBTXT_KEY_BYTES, "%.*s", (int)n, p->at);
    p->at += n;
    skip_space(p);
    if (*p->at == ':')
        p->at++;
    skip_space(p);
    return true;
}

bool pbtxt_takes(struct pbtxt *p, char bracket)
{
    skip_space(p);
    bool here = *p->at == bracket;
    p->at += here;
    return here;
}

/* Returns the end of a quoted text with escapes. NULL: it does not end. */
static const char *skip_text(const char *at)
{
    char quote = *at++;
    while (*at != quote && *at != '\0' && *at != '\n')
        at += at[0] == '\\' && at[1] != '\0' ? 2 : 1;
    return *at == quote ? at + 1 : NULL;
}

int pbtxt_value(struct pbtxt *p, char value[PBTXT_VALUE_BYTES], struct err *e)
{
    skip_space(p);
    const char *from = p->at, *end;
    bool quoted = *from == '"' || *from == '\'';
    end = quoted ? skip_text(from) : from + strcspn(from, " \t\r\n,;#{}[]\"'");
    if (end == NULL)
        return ERR(e, ERR_INPUT, "%.200s: a string is not terminated", p->what);
    if (end == from)
        return ERR(e, ERR_INPUT, "%.200s: found \"%.20s\", expected a value", p->what, from);
    p->at = end;
    (void)snprintf(value, PBTXT_VALUE_BYTES, "%.*s", (int)(end - from - (quoted ? 2 : 0)), from + (quoted ? 1 : 0));
    return 0;
}

static int skip_block(struct pbtxt *p, struct err *e)
{
    int depth = 0;
    do {
        skip_space(p);
        char c = *p->at;
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        if (depth > MOST_NESTED)
            return ERR(e, ERR_INPUT, "%.200s: nested deeper than %d", p->what, MOST_NESTED);
        const char *next = c == '"' || c == '\'' ? skip_text(p->at) : p->at + 1;
        if (c == '\0' || next == NULL)
            return ERR(e, ERR_INPUT, "%.200s: a block or a string is not terminated", p->what);
        p->at = next;
    } while (depth > 0);
    return 0;
}

int pbtxt_skip(struct pbtxt *p, struct err *e)
{
    char unused[PBTXT_VALUE_BYTES];
    skip_space(p);
    return *p->at == '{' || *p->at == '[' ? skip_block(p, e) : pbtxt_value(p, unused, e);
}
