/* tests/e2e/test_expert_parallel.c - --expert-parallel: greedy text is the same with columns of every expert and with
 * whole experts, also on more ranks than experts; each rank's share is reported; a model without experts is refused. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "qwen2moe-6" /* a shared expert with its gate */

static char dir[256];

/* Returns the token ids of a greedy completion; the caller frees them. */
static char *generate(int ranks, const char *weights, const char *option)
{
    struct process_setup setup = {.ranks = ranks};
    struct process p;
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", dir, "--prompt-ids", "5,1,17,9,30,2", "--max-tokens", "20",
                                 "--ignore-eos", "--temperature", "0", "--json", "--device", "cpu", "--quantization",
                                 weights, option, NULL});
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    json_t *o = json_loads(p.text[PROCESS_OUT], 0, NULL);
    char *ids = json_dumps(json_object_get(o, "token_ids"), JSON_ENCODE_ANY | JSON_COMPACT);
    case_check(ids != NULL && strlen(ids) > 40, "no tokens: %s", p.text[PROCESS_OUT]);
    json_decref(o);
    process_free(&p);
    return ids != NULL ? ids : strdup("");
}

/* weights: "fp8", whose scales belong to whole rows however these are cut, or "none". */
static void same_text(int ranks, const char *weights)
{
    case_begin("whole experts on %d ranks, quantised: %s: the text that one rank gives", ranks, weights);
    char *one = generate(1, weights, NULL), *columns = generate(ranks, weights, NULL);
    char *whole = generate(ranks, weights, "--expert-parallel");
    case_check(strcmp(one, columns) == 0 && strcmp(one, whole) == 0, "%s, in columns %s, whole %s", one, columns,
               whole);
    free(one);
    free(columns);
    free(whole);
    case_end();
}

/* Every expert is on one rank with all its columns, and the weights take as many bytes in all as in columns. */
static void shares(void)
{
    json_int_t bytes[2] = {0, 0};
    case_begin("inspect --expert-parallel");
    for (int whole = 0; whole < 2; whole++) {
        struct process p;
        process_run(&p, &(struct process_setup){.ranks = 0},
                    (const char *[]){"inspect", "--model", dir, "--ranks", "4", "--json",
                                     whole ? "--enable-expert-parallel" : NULL, NULL});
        json_t *o = json_loads(p.text[PROCESS_OUT], 0, NULL), *x = json_object_get(o, "experts"), *rank;
        json_int_t next = 0, all = json_integer_value(json_object_get(x, "number"));
        size_t i;
        json_array_foreach(json_object_get(o, "ranks"), i, rank)
        {
            json_t *mine = json_object_get(rank, "experts"), *columns = json_object_get(rank, "expert_columns");
            json_int_t begin = json_integer_value(json_array_get(mine, 0));
            case_check(begin == (whole ? next : 0), "rank %zu begins at expert %lld", i, (long long)begin);
            next = json_integer_value(json_array_get(mine, 1));
            if (whole)
                case_check(json_integer_value(json_array_get(columns, 0)) == 0 &&
                               json_equal(json_array_get(columns, 1), json_object_get(x, "columns")),
                           "rank %zu lacks columns", i);
            bytes[whole] += json_integer_value(json_object_get(rank, "weight_bytes"));
        }
        case_check(p.status == 0 && all > 0 && next == all, "the last expert is %lld of %lld", (long long)next,
                   (long long)all);
        json_decref(o);
        process_free(&p);
    }
    case_check(bytes[0] > 0 && bytes[0] == bytes[1], "%lld bytes in columns, %lld whole", (long long)bytes[0],
               (long long)bytes[1]);
    case_end();
}

/* `text` advises one rank instead of two if its figures, rounded to microseconds, say that this is clearly faster. */
static void check_advice(const char *text)
{
    const char *now_at = strstr(text, " sums take "), *best_at = strstr(text, " 0 sums, ");
    double now = now_at != NULL ? strtod(now_at + strlen(" sums take "), NULL) : 0;
    double best = best_at != NULL ? strtod(best_at + strlen(" 0 sums, "), NULL) : now;
    bool advised = strstr(text, "would decode faster with --tensor-parallel 1,") != NULL;
    case_check(now > 0 && (advised ? best - 0.001 <= 0.8 * (now + 0.001) : best + 0.001 >= 0.8 * (now - 0.001)),
               "%g and %g ms, %s: %s", now, best, advised ? "advised" : "not advised", text);
}

/* Sums that cost a second, and sums that cost nothing. */
static void pace(void)
{
    static const char *const sum_us[2] = {"1e6", "0"};
    static const char *const said[2] = {"--tensor-parallel 1 would be faster", "no smaller or larger number is faster"};
    struct process p;
    for (int i = 0; i < 2; i++) {
        case_begin("inspect with sums of %s us: %s", sum_us[i], said[i]);
        process_run(&p, &(struct process_setup){.ranks = 0},
                    (const char *[]){"inspect", "--model", dir, "--ranks", "2", "--read-rate", "1M", "--sum-us",
                                     sum_us[i], NULL});
        case_check(p.status == 0 && strstr(p.text[PROCESS_OUT], said[i]) != NULL, "status %d: %s", p.status,
                   p.text[PROCESS_OUT]);
        process_free(&p);
        case_end();
    }
    case_begin("generate --verbose reports the cost of sums, and whether another number of ranks is clearly faster");
    process_run(&p, &(struct process_setup){.ranks = 2},
                (const char *[]){"generate", "--model", dir, "--prompt-ids", "5,1", "--max-tokens", "2", "--verbose",
                                 "--device", "cpu", NULL});
    case_check(p.status == 0 && strstr(p.text[PROCESS_ERR], "with --tensor-parallel 2: ") != NULL &&
                   strstr(p.text[PROCESS_ERR], "us a sum (measured)") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    check_advice(p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

static void refused(void)
{
    static const char *const command[] = {"generate", "inspect"};
    for (int i = 0; i < 2; i++) {
        struct process p;
        case_begin("%s refuses whole experts of a model without experts", command[i]);
        process_run(&p, &(struct process_setup){.ranks = i == 0 ? 2 : 0},
                    (const char *[]){command[i], "--model", models_demo(), "--expert-parallel",
                                     i == 0 ? "--prompt" : NULL, "Once", NULL});
        case_check(p.status == 2 && strstr(p.text[PROCESS_ERR], "--expert-parallel: the model (llama) has no experts"),
                   "status %d: %s", p.status, p.text[PROCESS_ERR]);
        process_free(&p);
        case_end();
    }
}

int main(void)
{
    models_fixture(dir, MODEL);
    same_text(2, "none");
    same_text(3, "none");
    same_text(3, "fp8");
    same_text(8, "none");
    shares();
    pace();
    refused();
    files_remove_dir(dir);
    return cases_done();
}
