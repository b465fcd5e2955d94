/* tests/e2e/test_bench.c - `lockstep bench` measures what it was asked for, and says so as a table and as JSON. */
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* {median, lowest, highest}, all above 0 and in order. */
static void check_rates(const json_t *o, const char *key)
{
    const json_t *r = json_object_get(o, key);
    double median = json_number_value(json_array_get(r, 0));
    double lowest = json_number_value(json_array_get(r, 1)), highest = json_number_value(json_array_get(r, 2));
    case_check(json_array_size(r) == 3 && lowest > 0 && lowest <= median && median <= highest, "%s: %g, %g .. %g", key,
               median, lowest, highest);
}

static void check_json(const struct process *p, int ranks)
{
    json_t *o = json_loads(p->text[PROCESS_OUT], 0, NULL), *l = json_object_get(o, "latency");
    case_check(p->status == 0 && o != NULL, "status %d: %s%s", p->status, p->text[PROCESS_OUT], p->text[PROCESS_ERR]);
    check_rates(o, "prefill_tokens_per_second");
    check_rates(o, "decode_tokens_per_second");
    check_rates(l, "milliseconds");
    case_check(json_integer_value(json_object_get(o, "ranks")) == ranks, "ranks: %s", p->text[PROCESS_OUT]);
    case_check(json_integer_value(json_object_get(l, "input")) == 4 &&
                   json_integer_value(json_object_get(l, "output")) == 3 &&
                   json_integer_value(json_object_get(l, "batch")) == 2,
               "latency: %s", p->text[PROCESS_OUT]);
    double share = json_number_value(json_object_get(o, "decode_share_of_read_limit"));
    case_check(share > 0 && json_number_value(json_object_get(o, "read_bytes_per_second")) > 1e8, "share %g", share);
    json_decref(o);
}

static void measures(int ranks, bool dummy)
{
    struct process_setup setup = {.ranks = ranks};
    struct process p;
    char config[400];
    (void)snprintf(config, sizeof config, "%s/config.json", models_demo());
    case_begin("bench of %s on %d rank(s)", dummy ? "a config with noise" : "the demo", ranks);
    process_run(&p, &setup,
                (const char *[]){"bench",
                                 dummy ? "--config" : "--model",
                                 dummy ? config : models_demo(),
                                 "--load-format",
                                 dummy ? "dummy" : "auto",
                                 "--n-prompt",
                                 "20",
                                 "--n-gen",
                                 "5",
                                 "--n-depth",
                                 "7",
                                 "--batch",
                                 "2",
                                 "--max-batch-tokens",
                                 "9",
                                 "--latency",
                                 "4:3",
                                 "--repetitions",
                                 "3",
                                 "--json",
                                 NULL});
    check_json(&p, ranks);
    case_end();
    process_free(&p);
}

static void table(void)
{
    struct process_setup setup = {.ranks = 2};
    struct process p;
    case_begin("bench as a table, decode alone");
    process_run(&p, &setup,
                (const char *[]){"bench", "--model", models_demo(), "--n-prompt", "0", "--n-gen", "3", NULL});
    case_check(p.status == 0 && strstr(p.text[PROCESS_OUT], "tg3 @ 1 x 1") != NULL &&
                   strstr(p.text[PROCESS_OUT], "of the read limit") != NULL &&
                   strstr(p.text[PROCESS_OUT], "pp") == NULL,
               "status %d: %s%s", p.status, p.text[PROCESS_OUT], p.text[PROCESS_ERR]);
    case_end();
    process_free(&p);
}

static void refused(const char *what, const char *const *arguments)
{
    struct process_setup setup = {.ranks = 2};
    struct process p;
    case_begin("bench refuses %s", what);
    process_run(&p, &setup, arguments);
    case_check(p.status == ERR_USAGE && process_count_lines(p.text[PROCESS_ERR]) == 1 && p.bytes[PROCESS_OUT] == 0,
               "status %d: %s%s", p.status, p.text[PROCESS_OUT], p.text[PROCESS_ERR]);
    case_end();
    process_free(&p);
}

int main(void)
{
    measures(1, false);
    measures(3, false);
    measures(2, true);
    table();
    refused("--config without noise", (const char *[]){"bench", "--config", "scripts/configs/llama-1b.json", NULL});
    refused("no model", (const char *[]){"bench", NULL});
    refused("half a latency", (const char *[]){"bench", "--model", models_demo(), "--latency", "5:x", NULL});
    refused("nothing to do",
            (const char *[]){"bench", "--model", models_demo(), "--n-prompt", "0", "--n-gen", "0", NULL});
    char dir[256];
    models_fixture(dir, "gpt2-3h");
    refused("more tokens than positions", (const char *[]){"bench", "--model", dir, "--n-prompt", "20000", NULL});
    files_remove_dir(dir);
    return cases_done();
}
