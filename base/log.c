/* base/log.c - see log.h. */
#include "base/log.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 1024
#define TIME_BYTES 48

static struct {
    bool speaks, verbose, times;
    double started;
    int fd; /* of the file; 0: there is none */
    char host[64];
    int rank;
} state;

void log_open(bool speaks, bool verbose)
{
    state.speaks = speaks;
    state.verbose = verbose;
    state.started = seconds_now();
}

void log_times(void)
{
    state.times = true;
}

int log_file(const char *path, const char *host, int rank, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return ERR(e, ERR_IO, "%.200s: cannot open: %s", path, strerror(errno));
    state.rank = rank;
    (void)snprintf(state.host, sizeof state.host, "%s", host);
    state.fd = fd;
    return 0;
}

/* line[0..n) and a newline, which replaces the last byte if there is no room. */
static void write_line(int fd, char *line, size_t bytes, int n)
{
    size_t end = n < (int)bytes - 1 ? (size_t)n : bytes - 2;
    line[end] = '\n';
    (void)!write(fd, line, end + 1);
}

static void tell_time(char text[TIME_BYTES])
{
    struct timespec now;
    struct tm utc;
    char second[24];
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    (void)strftime(second, sizeof second, "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(text, TIME_BYTES, "%s.%03ldZ ", second, now.tv_nsec / 1000000);
}

static void file_line(const char *level, const char *text)
{
    char line[LINE_BYTES + 160], when[TIME_BYTES];
    if (state.fd == 0)
        return;
    tell_time(when);
    int n = snprintf(line, sizeof line, "%s%s rank %d %s: %s", when, state.host, state.rank, level, text);
    write_line(state.fd, line, sizeof line, n);
}

/* head: printed between "lockstep: " and the text on standard error; shown: whether it is printed there. */
static void say_line(const char *level, const char *head, bool shown, const char *format, va_list args)
{
    char text[LINE_BYTES], line[LINE_BYTES], when[TIME_BYTES] = "";
    if (!shown && state.fd == 0)
        return;
    (void)vsnprintf(text, sizeof text, format, args);
    file_line(level, text);
    if (shown && state.times)
        tell_time(when);
    if (shown)
        write_line(STDERR_FILENO, line, sizeof line, snprintf(line, sizeof line, "%slockstep: %s%s", when, head, text));
}

void log_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_line("warning", "warning: ", state.speaks, format, args);
    va_end(args);
}

void log_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say_line("note", "", state.speaks, format, args);
    va_end(args);
}

void log_info(const char *format, ...)
{
    char head[32];
    va_list args;
    va_start(args, format);
    (void)snprintf(head, sizeof head, "%.3f s: ", seconds_now() - state.started);
    say_line("info", head, state.speaks && state.verbose, format, args);
    va_end(args);
}

void log_fatal(const char *text)
{
    file_line("fatal", text);
}
