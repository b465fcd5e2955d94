/* base/open_line.c - see open_line.h. */
#include "base/open_line.h"

#include <signal.h>
#include <unistd.h>

static int guarded = -1; /* a signal handler can reach only globals */

static volatile sig_atomic_t is_open;

static const int numbers[] = {SIGINT, SIGTERM};
static struct sigaction before[sizeof numbers / sizeof numbers[0]]; /* the handlers that were installed before */

/* The signal raised here is delivered once this handler is left. */
static void end_line(int number)
{
    if (is_open)
        (void)!write(guarded, "\n", 1);
    is_open = 0;
    (void)sigaction(number, &before[number == numbers[0] ? 0 : 1], NULL);
    (void)raise(number);
}

void open_line_guard(int fd)
{
    const struct sigaction action = {.sa_handler = end_line};
    guarded = fd;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (sigaction(numbers[i], NULL, &before[i]) == 0 && before[i].sa_handler != SIG_IGN)
            (void)sigaction(numbers[i], &action, NULL);
}

void open_line_note(const char *text, size_t bytes)
{
    if (bytes > 0)
        is_open = text[bytes - 1] != '\n';
}
