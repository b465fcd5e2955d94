/* tests/support/cases.c - see cases.h. */
#include "tests/support/cases.h"

#include <stdarg.h>
#include <stdio.h>

static char name[200];
static bool good;
static int n_cases, n_failed;

void case_begin(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(name, sizeof name, format, args);
    va_end(args);
    good = true;
}

bool case_check(bool ok, const char *format, ...)
{
    char text[2000];
    va_list args;
    if (ok)
        return true;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\n')
            *c = '|';
    printf("# %s: %s\n", name, text);
    good = false;
    return false;
}

void case_end(void)
{
    n_cases++;
    n_failed += !good;
    printf("%s %d - %s\n", good ? "ok" : "not ok", n_cases, name);
    (void)fflush(stdout);
}

void case_skip(const char *skipped, const char *reason)
{
    printf("ok %d - %s # SKIP %s\n", ++n_cases, skipped, reason);
}

int cases_done(void)
{
    printf("1..%d\n", n_cases);
    return n_failed > 0 || n_cases == 0;
}
