/* tests/e2e/test_memory_limits.c - a job that may use less memory than its host has free: by default keys and values
 * take what the limit leaves. */
#include "tests/support/cases.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Runs a batch of one line, whose 256 sequences of 1024 tokens would take 1152 MiB, under ulimit -v. */
static void check_limit(const char *name, rlim_t bytes, int ranks, int status, const char *want)
{
    const struct process_setup setup = {.ranks = ranks, .input = "{\"prompt\": \"Once\", \"max_tokens\": 2}\n"};
    const char *const batch[] = {"batch",    "--model", models_demo(), "--input", "-",
                                 "--output", "-",       "--device",    "cpu",     NULL};
    struct rlimit all, limit;
    struct process p;
    case_begin("%s, %d rank(s)", name, ranks);
    bool limited = getrlimit(RLIMIT_AS, &all) == 0;
    limit = all;
    limit.rlim_cur = bytes;
    limited = limited && setrlimit(RLIMIT_AS, &limit) == 0;
    process_run(&p, &setup, batch);
    (void)setrlimit(RLIMIT_AS, &all);
    case_check(limited, "setrlimit failed");
    case_check(p.status == status && strstr(p.text[PROCESS_ERR], want) != NULL, "status %d, expected %d and \"%s\": %s",
               p.status, status, want, p.text[PROCESS_ERR]);
    case_end();
    process_free(&p);
}

int main(void)
{
    if (process_sanitized()) {
        case_skip("memory limits", "sanitizers reserve terabytes of addresses");
        return cases_done();
    }
    check_limit("keys and values fit below ulimit -v", (rlim_t)1200 << 20, 1, 0, "1 of 1 requests");
    check_limit("keys and values fit below ulimit -v", (rlim_t)1000 << 20, 2, 0, "1 of 1 requests");
    return cases_done();
}
