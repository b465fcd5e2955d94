/* tests/unit/test_batch_sync.c - a disk that fails while a batch runs: the first sync of its output fails. From then on
 * the batch thread only waits for the device, which may be amid a long step, and must not keep a core busy meanwhile;
 * the run then ends with that failure. */
#include "tests/unit/unit.h"

#include "base/clock.h"
#include "base/signals.h"
#include "tests/support/batch_alone.h"
#include "tests/support/batching.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define N_LINES     40
#define N_SEQS      4
#define MAX_WAKEUPS 20 /* per second: it has other duties, such as the status file */

static sem_t failing;      /* posted when the batch thread is in the sync that is about to fail */
static sem_t device_still; /* posted when the device stands still, so that the sync may fail */
static sem_t woken;        /* posted every time the batch thread has waited after that */
static atomic_int n_syncs;
static _Thread_local bool has_failed; /* a sync of this thread has failed */

/* Replaces the C library's: the disk is broken. A second try would succeed, as on Linux, without having written
 * anything. */
int fdatasync(int fd)
{
    (void)fd;
    if (atomic_fetch_add(&n_syncs, 1) > 0)
        return 0;
    has_failed = true;
    (void)sem_post(&failing);
    while (sem_wait(&device_still) != 0)
        continue;
    errno = EIO;
    return -1;
}

/* Replaces ZeroMQ's: calls it, then tells the test. */
int zmq_poll(zmq_pollitem_t *item, int n, long milliseconds)
{
    int (*next)(zmq_pollitem_t *, int, long) = (int (*)(zmq_pollitem_t *, int, long))dlsym(RTLD_NEXT, "zmq_poll");
    int rc = next(item, n, milliseconds);
    if (has_failed)
        (void)sem_post(&woken);
    return rc;
}

/* Counts wake-ups of the batch thread in a second while the device stands still; at most the limit. */
static int count_wakeups(void)
{
    struct timespec until;
    int n = 0;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &until), 0);
    until.tv_sec += 1;
    while (n < MAX_WAKEUPS && sem_timedwait(&woken, &until) == 0)
        n++;
    return n;
}

/* The manifest does not rely on data of the failed sync. */
static void check_manifest(void)
{
    json_t *how = batching_manifest(folder, "out.jsonl", "state"),
           *synced = batching_manifest(folder, "out.jsonl", "synced_bytes");
    assert_string_equal(json_string_value(how), "failed");
    assert_true(json_is_integer(synced) && json_integer_value(synced) == 0);
    json_decref(how);
    json_decref(synced);
}

static void waits_after_a_failed_sync(void **state)
{
    (void)state;
    static struct batch_alone a;
    struct err e = {0};
    const char *const more[] = {"--sync-seconds", "0", "--plain", "--progress", "never", NULL};
    batching_prompts(folder, "in.jsonl", N_LINES, 4);
    batch_alone_open(&a, folder, "out.jsonl", more, N_SEQS);
    while (sem_trywait(&failing) != 0)
        assert_true(batch_alone_turn(&a));
    (void)sem_post(&device_still);
    int n_wakeups = count_wakeups(), n_later = 0;
    double began = seconds_now();
    while (batch_alone_turn(&a))
        continue;
    (void)batch_alone_close(&a, &e);
    double seconds = seconds_now() - began;
    print_message("# the batch thread woke up %s%d times in a second, and the run ended %.3f s later\n",
                  n_wakeups < MAX_WAKEUPS ? "" : "at least ", n_wakeups, seconds);
    assert_int_equal(sem_getvalue(&woken, &n_later), 0);
    assert_true(n_wakeups + n_later > 0); /* the batch thread waits in this zmq_poll */
    assert_true(n_wakeups < MAX_WAKEUPS);
    assert_true(process_in_time(seconds, 10));
    EXPECT_PARTS(&e, ERR_IO, "/out.jsonl: cannot be synced: Input/output error");
    assert_int_equal(atomic_load(&n_syncs), 1); /* the sync was not retried */
    check_manifest();
}

int main(void)
{
    struct err e = {0};
    const struct CMUnitTest tests[] = {FOLDER_TEST(waits_after_a_failed_sync)};
    if (signals_open(true, &e) != 0 || sem_init(&failing, 0, 0) != 0 || sem_init(&device_still, 0, 0) != 0 ||
        sem_init(&woken, 0, 0) != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
