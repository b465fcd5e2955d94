/* tests/fail/block_signals.c - preloaded into the ranks: SIGTERM stays pending in every thread, as if none had got a
 * processor to handle it yet. */
#include <signal.h>
#include <stddef.h>

__attribute__((constructor)) static void block(void)
{
    sigset_t ends;
    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &ends, NULL);
}
