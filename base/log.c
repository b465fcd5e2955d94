/* base/log.c - see log.h. */
#include "base/log.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static struct {
    bool speaks, verbose;
    double started;
} state;

void log_open(bool speaks, bool verbose)
{
    state.speaks = speaks;
    state.verbose = verbose;
    state.started = seconds_now();
}

static void say(const char *head, const char *format, va_list args)
{
    char line[1024];
    int n = snprintf(line, sizeof line, "lockstep: %s%s", head, head[0] != '\0' ? ": " : "");
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    if (n > (int)sizeof line - 2)
        n = (int)sizeof line - 2;
    line[n] = '\n';
    (void)!write(STDERR_FILENO, line, (size_t)n + 1);
}

void log_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (state.speaks)
        say("warning", format, args);
    va_end(args);
}

void log_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (state.speaks)
        say("", format, args);
    va_end(args);
}

void log_info(const char *format, ...)
{
    char head[32];
    va_list args;
    va_start(args, format);
    (void)snprintf(head, sizeof head, "%.3f s", seconds_now() - state.started);
    if (state.speaks && state.verbose)
        say(head, format, args);
    va_end(args);
}
