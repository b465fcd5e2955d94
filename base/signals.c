/* base/signals.c - see signals.h. A handler may call hardly any function, so it only writes the signal's number into a
 * pipe. */
#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static int channel[2] = {-1, -1}; /* a handler has no other way to its data */

static volatile sig_atomic_t pending;
static atomic_bool end_asked;

static atomic_flag failed = ATOMIC_FLAG_INIT;
static struct err failure;

static atomic_bool listening, reported;

static enum signal_wish wish_of(int number)
{
    switch (number) {
    case 0:
        return WISH_FAIL;
    case SIGUSR1:
        return WISH_DRAIN;
    case SIGUSR2:
        return WISH_TELL;
    case SIGCONT:
        return WISH_SYNC;
    default:
        return WISH_END;
    }
}

static void note(int number)
{
    int kept = errno;
    unsigned char byte = (unsigned char)number;
    (void)!write(channel[1], &byte, 1); /* a full pipe contains enough requests already */
    pending = 1;
    if (wish_of(number) == WISH_END)
        atomic_store(&end_asked, true);
    errno = kept;
}

int signals_open(bool journal, struct err *e)
{
    static const int numbers[] = {SIGUSR1, SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGCONT}; /* the last two for a journal */
    size_t n = sizeof numbers / sizeof numbers[0] - (journal ? 0 : 2);
    if (pipe2(channel, O_CLOEXEC | O_NONBLOCK) != 0)
        return ERR(e, ERR_IO, "cannot create a pipe for signals: %s", strerror(errno));
    for (size_t i = 0; i < n; i++) {
        struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART}, before;
        if (numbers[i] == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN)
            continue;
        if (sigaction(numbers[i], &action, NULL) != 0)
            return ERR(e, ERR_IO, "cannot install a handler for signal %d: %s", numbers[i], strerror(errno));
    }
    return 0;
}

int signals_fd(void)
{
    return channel[0];
}

void signals_fail(const struct err *e)
{
    if (channel[1] < 0 || atomic_flag_test_and_set(&failed))
        return;
    failure = *e;
    note(0); /* through the pipe, and so after the failure */
}

const struct err *signals_failure(void)
{
    return &failure;
}

void signals_listen(bool listens)
{
    listening = listens;
}

void signals_reported(void)
{
    reported = true;
}

bool signals_unreported(void)
{
    return listening && !reported;
}

bool signals_pending(void)
{
    return pending != 0;
}

bool signals_end_asked(void)
{
    return atomic_load(&end_asked);
}

enum signal_wish signals_take(void)
{
    enum signal_wish wish = WISH_NONE;
    unsigned char byte[64];
    pending = 0;
    for (ssize_t n; (n = read(channel[0], byte, sizeof byte)) > 0;)
        for (ssize_t i = 0; i < n; i++) {
            enum signal_wish this = wish_of(byte[i]);
            wish = this > wish ? this : wish;
        }
    return wish;
}
