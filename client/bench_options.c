/* client/bench_options.c - see bench_options.h. */
#include "client/bench_options.h"
#include "base/opt_rows.h"

#include <math.h>

#define DEFAULT_INPUT_LEN  1024
#define DEFAULT_OUTPUT_LEN 128

#define AT(member) offsetof(struct client_bench_options, member)

static const struct opt rows[] = {
    FLAG("json", json, "print one JSON object instead of a table"),
    INTEGER("num-prompts", num_prompts, 1, 1 << 24, 1000, "requests (default 1000)"),
    REAL("request-rate", request_rate, 1e-6, INFINITY, INFINITY,
         "requests per second, arriving as a Poisson process (default inf: all at once)"),
    INTEGER("max-concurrency", max_concurrency, 0, 1 << 20, 0,
            "requests open at once, whatever the rate (default 0: no limit)"),
    INTEGER("random-input-len", input_len, 1, 1 << 24, 0, "tokens of a prompt, random ids (default 1024)"),
    INTEGER("random-output-len", output_len, 1, 1 << 24, 0,
            "tokens of an output, exactly: end-of-text tokens are ignored (default 128)"),
    REAL("random-range-ratio", range_ratio, 0, 0.999, 0,
         "draw lengths between (1 - X) and (1 + X) times these (default 0: all the same)"),
    TEXT("dataset", "FILE", dataset,
         "instead of random ids: JSON lines with \"prompt\" (a text, or token ids) and \"output_len\", in this order, "
         "repeated if there are fewer than --num-prompts"),
    FLAG("ignore-eos", ignore_eos, "with --dataset: outputs have exactly their length"),
    REAL("temperature", temperature, 0, 100, 0, "temperature of all requests (default 0: greedy)"),
    INTEGER("seed", seed, 0, 9007199254740992.0, 0, "seed of ids, lengths and arrivals (default 0)"),
    INTEGER("num-warmups", warmups, 0, 1 << 20, 1, "requests before the measurement, one by one (default 1)"),
    {"progress", "auto|always|never", OPT_CHOICE, AT(progress), 0, 0, 0, "auto|always|never",
     "progress bar on standard error (default auto: on a terminal)", NULL},
};
const struct opt_rows client_bench_rows = OPT_ROWS(rows);

int client_bench_finish(struct client_bench_options *o, struct err *e)
{
    if (o->dataset != NULL && (o->input_len > 0 || o->output_len > 0 || o->range_ratio > 0))
        return ERR(e, ERR_USAGE,
                   "--random-input-len, --random-output-len and --random-range-ratio: lengths are those of --dataset");
    if (o->ignore_eos && o->dataset == NULL)
        return ERR(e, ERR_USAGE, "--ignore-eos needs --dataset; without it end-of-text tokens are always ignored");
    o->input_len = o->input_len > 0 ? o->input_len : DEFAULT_INPUT_LEN;
    o->output_len = o->output_len > 0 ? o->output_len : DEFAULT_OUTPUT_LEN;
    return 0;
}
