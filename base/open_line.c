/* base/open_line.c - see open_line.h. */
#include "base/open_line.h"

#include <signal.h>
#include <unistd.h>

static int guarded = -1; /* a handler has no other way to its data */

static volatile sig_atomic_t is_open;

/* SA_RESETHAND has set the default action again: that of the signal raised here, once this handler is left. */
static void end_line(int number)
{
    if (is_open)
        (void)!write(guarded, "\n", 1);
    is_open = 0;
    (void)raise(number);
}

void open_line_guard(int fd)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    guarded = fd;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction action = {.sa_handler = end_line, .sa_flags = (int)SA_RESETHAND}, before;
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            (void)sigaction(numbers[i], &action, NULL);
    }
}

void open_line_note(const char *text, size_t bytes)
{
    if (bytes > 0)
        is_open = text[bytes - 1] != '\n';
}
