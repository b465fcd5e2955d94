/* tests/unit/test_batch_speed.c - the cost of a batch besides the device: lines are read, parsed, tokenized, scheduled,
 * their results written and synced, as in `lockstep batch`, while steps take no time and tokens are arbitrary. Counts
 * processor time of all threads together, as for a single core, whatever else runs on the machine. */
#include "tests/unit/unit.h"

#include "base/signals.h"
#include "tests/support/batch_alone.h"
#include "tests/support/batching.h"
#include "tests/support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define N_LINES  20000
#define N_OUTPUT 16
#define N_SEQS   256
#define BOUND    200000 /* prompts per minute */
#define MEMORY   2000   /* bytes per line: each takes about 10 KB while it is in flight, and 1024 are */

static double cpu_seconds(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the largest memory that the process has had, in bytes. */
static double peak_bytes(void)
{
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
    return 1024.0 * (double)u.ru_maxrss;
}

/* Writes prompts of about 100 tokens, all different. */
static void write_input(const char *dir)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    for (int i = 0; i < N_LINES; i++)
        fprintf(
            f,
            "{\"custom_id\":\"request-%d\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"max_tokens\":%d,"
            "\"temperature\":0,\"prompt\":\"Tale %d. Once upon a time, in a small village by the sea, there lived a "
            "young girl named Lily. She had a little dragon who was afraid of the dark. Every evening the old clock in "
            "the tower struck nine, and the dragon hid under her bed. One day they met a fox, who knew a song about "
            "the moon, and they went up the hill to hear it. The wind was cold, the stars were bright, and all the "
            "owls of the forest had come to listen.\"}}\n",
            i, N_OUTPUT, i);
    fclose(f);
    files_write(dir, "in.jsonl", text, bytes);
    free(text);
}

static double prompts_per_minute(const char *dir, bool plain)
{
    static struct batch_alone a;
    struct err e = {0};
    const char *const more[] = {"--sync-seconds", "1", plain ? "--plain" : NULL, NULL};
    double before = cpu_seconds(), memory = peak_bytes();
    batch_alone_open(&a, dir, plain ? "out-1.jsonl" : "out-0.jsonl", more, N_SEQS);
    while (batch_alone_turn(&a))
        continue;
    assert_int_equal(batch_alone_close(&a, &e), 0);
    double seconds = cpu_seconds() - before;
    expect_none(&e);
    memory = (peak_bytes() - memory) / N_LINES;
    print_message(
        "# %d prompts, %d tokens out each, %s lines: %.0f a minute on one core (%d steps, %.2f s of it); %.0f "
        "more bytes of memory a line\n",
        N_LINES, N_OUTPUT, plain ? "plain" : "OpenAI", N_LINES / seconds * 60, (int)a.n_steps, seconds, memory);
    if (getenv("LOCKSTEP_SANITIZED") == NULL)
        assert_true(memory < MEMORY);
    return N_LINES / seconds * 60;
}

static void is_fast(void **state)
{
    (void)state;
    char dir[256];
    files_make_dir(dir);
    write_input(dir);
    for (int plain = 0; plain < 2; plain++) {
        struct batch_results r;
        double rate = prompts_per_minute(dir, plain != 0);
        batching_read(&r, dir, plain ? "out-1.jsonl" : "out-0.jsonl");
        assert_int_equal(r.n, N_LINES);
        assert_int_equal(r.n_twice + r.n_strange, 0);
        assert_true(strlen(batching_text(json_object_get(r.by_id, "request-7"))) > N_OUTPUT);
        batching_free(&r);
        if (getenv("LOCKSTEP_SANITIZED") == NULL)
            assert_true(rate >= BOUND);
    }
    files_remove_dir(dir);
}

int main(void)
{
    struct err e = {0};
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_fast)};
    if (signals_open(true, &e) != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
