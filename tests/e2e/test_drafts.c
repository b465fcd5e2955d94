/* tests/e2e/test_drafts.c - `serve` and `batch` with drafts give the same tokens as without, whichever method makes the
 * drafts, and also in a batch that is killed and resumed; replies report the drafts that the server has counted. */
#include "tests/support/batching.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"
#include "tests/support/web.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zmq.h>

#define METRICS     "metrics/speculative_decoding/"
#define MOST        5 /* drafts of a sequence in a step */
#define N_LINES     60
#define N_NEW       24
#define BATCH_LIMIT 120 /* seconds */

/* With few likely tokens the text repeats itself, sometimes with variations. */
#define ONCE  "\"prompt\": \"Once upon a time\", "
#define ONE   "\"logit_bias\": {\"341\": 100}, "
#define THREE "\"logit_bias\": {\"13\": 40, \"341\": 40, \"286\": 40}, "

/* Prompts of records, which begin alike; and of few words. */
#define RECORDS                                                                                                    \
    "{\"type\": \"array\", \"minItems\": 2, \"items\": {\"type\": \"object\", \"properties\": {\"name\": "         \
    "{\"type\": \"string\", \"maxLength\": 9}, \"age\": {\"type\": \"integer\", \"maximum\": 99}}, \"required\": " \
    "[\"name\", \"age\"], \"additionalProperties\": false}}"
#define WORDS "(there |was |a ){9,25}end"

static const char ngrams[] =
    "{\"method\": \"ngram\", \"num_speculative_tokens\": 5, \"prompt_lookup_min\": 1, \"prompt_lookup_max\": 4}";

static const char suffixes[] =
    "{\"method\": \"suffix\", \"num_speculative_tokens\": 5, \"prompt_lookup_min\": 2, \"prompt_lookup_max\": 8}";

/* The model drafts for itself, on one of its ranks. */
static const char *by_model(void)
{
    static char config[400];
    (void)snprintf(config, sizeof config,
                   "{\"method\": \"draft_model\", \"model\": \"%s\", \"num_speculative_tokens\": 5, "
                   "\"draft_tensor_parallel_size\": 1}",
                   models_demo());
    return config;
}

static const char *const requests[] = {
    "{" ONCE "\"max_tokens\": 60, \"temperature\": 0}",
    "{" ONCE ONE "\"max_tokens\": 60, \"temperature\": 0, \"ignore_eos\": true}",
    "{" ONCE THREE "\"max_tokens\": 60, \"seed\": 7, \"logprobs\": 1}",
    "{\"prompt\": [\"Tom and Tom and Tom\", \"The dragon\"], " THREE
    "\"max_tokens\": 40, \"n\": 2, \"best_of\": 3, \"seed\": 3}",
    "{" ONCE THREE "\"max_tokens\": 40, \"seed\": 5, \"stop\": [\" there there\"], \"min_tokens\": 12}",
    "{" ONCE "\"max_tokens\": 12, \"num_beams\": 2}",
    "{" ONCE THREE "\"max_tokens\": 40, \"seed\": 9, \"stream\": true, \"repetition_penalty\": 1.05}",
    "{" ONCE "\"max_tokens\": 90, \"seed\": 2, \"n\": 2, \"best_of\": 3, \"structured_outputs\": {\"json\": " RECORDS
    "}}",
    "{" ONCE
    "\"max_tokens\": 70, \"temperature\": 0.7, \"seed\": 6, \"n\": 2, \"structured_outputs\": {\"json\": " RECORDS "}}",
    "{" ONCE
    "\"max_tokens\": 60, \"temperature\": 1.5, \"seed\": 8, \"logprobs\": 1, \"structured_outputs\": {\"regex\": "
    "\"" WORDS "\"}}",
    "{" ONCE "\"max_tokens\": 60, \"seed\": 8, \"stream\": true, \"prediction\": {\"type\": \"content\", \"content\": "
    "\"there was a there was\"}, \"structured_outputs\": {\"regex\": \"" WORDS "\"}}",
};

#define N_REQUESTS (sizeof requests / sizeof requests[0])

/* Sums over all replies of a server with drafts. */
static struct sums {
    double steps, tokens, accepted;
} sums;

/* ---- serve ---- */

static json_t *hear_final(struct talk *t, json_t *ids)
{
    for (;;) {
        json_t *reply = talk_hear(t, 60);
        if (reply == NULL || strcmp(talk_text(reply, "event"), "tokens") != 0)
            return reply;
        const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
        (void)json_array_extend(ids, json_object_get(choice, "token_ids"));
        json_decref(reply);
    }
}

/* The numbers of a reply are consistent; they are added to the sums. */
static void check_metrics(const json_t *reply, size_t i)
{
    double steps = talk_number(reply, METRICS "num_spec_steps"),
           tokens = talk_number(reply, METRICS "num_draft_tokens"),
           accepted = talk_number(reply, METRICS "num_accepted_draft_tokens"), n = 0, weighted = 0;
    const json_t *drafts = json_object_get(json_object_get(reply, "metrics"), "speculative_decoding"), *count,
                 *histogram = json_object_get(drafts, "acceptance_histogram");
    size_t k;
    json_array_foreach(histogram, k, count)
    {
        n += (double)json_integer_value(count);
        weighted += (double)k * (double)json_integer_value(count);
    }
    case_check(json_array_size(histogram) == MOST + 1 && n == steps && weighted == accepted && accepted <= tokens,
               "request %zu: %zu positions, %g steps of %g, %g of %g accepted", i, json_array_size(histogram), n, steps,
               weighted, accepted);
    if (steps > 0)
        case_check(fabs(talk_number(reply, METRICS "mean_acceptance_length") - 1 - accepted / steps) < 1e-9 &&
                       fabs(talk_number(reply, METRICS "draft_acceptance_rate") - accepted / tokens) < 1e-9,
                   "request %zu: other shares", i);
    sums.steps += steps;
    sums.tokens += tokens;
    sums.accepted += accepted;
}

/* Returns the tokens of all choices as text; the caller frees it. */
static char *answer(const struct serving *s, size_t i, bool drafted)
{
    struct talk t;
    json_t *ids = json_array(), *choice;
    size_t c;
    talk_open(&t, ZMQ_DEALER, s->endpoint, NULL, NULL);
    talk_say(&t, "%s", requests[i]);
    json_t *reply = hear_final(&t, ids);
    talk_close(&t);
    case_check(strcmp(talk_text(reply, "status"), "ok") == 0, "request %zu: %s", i, talk_text(reply, "error/message"));
    json_array_foreach(json_object_get(reply, "choices"), c, choice)
    {
        (void)json_array_extend(ids, json_object_get(choice, "token_ids"));
    }
    case_check((json_object_get(reply, "metrics") != NULL) == drafted, "request %zu: metrics", i);
    if (drafted)
        check_metrics(reply, i);
    if (drafted && strstr(requests[i], "structured_outputs") != NULL)
        case_check(talk_number(reply, METRICS "num_accepted_draft_tokens") > 0, "request %zu: no draft was right", i);
    char *text = json_dumps(ids, JSON_COMPACT);
    json_decref(ids);
    json_decref(reply);
    return text;
}

#define DETAILS "usage/completion_tokens_details/"

/* Asks for a text of which `known` is predicted (NULL: nothing). Returns the reply; *text is the answer, which the
 * caller frees. */
static json_t *ask_predicted(const struct serving *s, const char *known, char **text)
{
    json_t *request = json_pack("{s:s, s:i, s:i}", "prompt", "One day the small dragon", "max_tokens", 60, "seed", 4);
    if (known != NULL)
        (void)json_object_set_new(
            request, "prediction",
            json_pack("{s:s, s:[{s:s, s:s}]}", "type", "content", "content", "type", "text", "text", known));
    char *message = json_dumps(request, JSON_COMPACT);
    json_t *reply = talk_ask(s->endpoint, message);
    const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
    case_check(json_string_length(json_object_get(choice, "text")) > 0, "no text: %s",
               talk_text(reply, "error/message"));
    *text = strdup(talk_text(choice, "text"));
    free(message);
    json_decref(request);
    return reply;
}

/* A prediction does not change the text, and few of its drafts are rejected; without drafts the reply reports 0. */
static void predicted(const struct serving *s, bool drafted)
{
    char *text, *again, *other, strange[20000]; /* longer than any answer */
    json_t *plain = ask_predicted(s, NULL, &text), *reply = ask_predicted(s, text, &again);
    double accepted = talk_number(reply, DETAILS "accepted_prediction_tokens"),
           rejected = talk_number(reply, DETAILS "rejected_prediction_tokens");
    case_check(json_object_get(json_object_get(plain, "usage"), "completion_tokens_details") == NULL, "details");
    case_check(strcmp(text, again) == 0, "%s, expected %s", again, text);
    case_check(drafted ? accepted > 40 && rejected < 20 : accepted == 0 && rejected == 0, "%g accepted, %g rejected",
               accepted, rejected);
    json_decref(reply);
    (void)memset(strange, 'x', sizeof strange);
    strange[sizeof strange - 1] = '\0';
    reply = ask_predicted(s, strange, &other);
    case_check(strcmp(text, other) == 0, "%s, expected %s", other, text);
    accepted = talk_number(reply, DETAILS "accepted_prediction_tokens");
    case_check(accepted >= 0 && accepted < 20, "%g accepted", accepted);
    json_decref(reply);
    json_decref(plain);
    free(text);
    free(again);
    free(other);
}

/* The gateway passes on the server's counts. */
static void through_gateway(const struct serving *s)
{
    struct web_gateway g;
    struct web_answer a;
    static const char *const names = "\"metrics\":{\"speculative_decoding\":{\"mean_acceptance_length\":";
    web_start(&g, true, (const char *const[]){"--backend", s->endpoint, NULL});
    web_ask(&g, "POST", "/v1/completions", "", requests[0], &a);
    case_check(a.status == 200 && strstr(a.body, names) != NULL, "%d: %s", a.status, a.body);
    web_free(&a);
    web_ask(&g, "POST", "/v1/completions", "",
            "{" ONCE ONE "\"max_tokens\": 30, \"stream\": true, \"stream_options\": {\"include_usage\": true}}", &a);
    case_check(a.status == 200 && strstr(a.body, names) != NULL, "%d: %s", a.status, a.body);
    web_free(&a);
    web_ask(
        &g, "POST", "/v1/chat/completions", "",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"max_tokens\": 8, \"prediction\": {\"type\": "
        "\"content\", \"content\": \"Once upon a time\"}}",
        &a);
    case_check(a.status == 200 &&
                   strstr(a.body, "\"completion_tokens_details\":{\"accepted_prediction_tokens\":") != NULL,
               "%d: %s", a.status, a.body);
    web_free(&a);
    case_check(web_stop(&g) == 0, "the gateway's status");
}

/* size: ranks that share a model; fewer than all: there are replicas. config: of the drafts. */
static void served(int ranks, const char *size, const char *config)
{
    struct serving s;
    char *known[N_REQUESTS] = {NULL};
    sums = (struct sums){0};
    case_begin("serve on %d ranks, %s for a model: the same tokens with drafts %s, replies count their drafts", ranks,
               size, config == ngrams ? "of n-grams" : "of a model");
    if (case_check(serving_start(&s, ranks, NULL, (const char *[]){"--tensor-parallel", size, NULL}),
                   "no server without drafts")) {
        for (size_t i = 0; i < N_REQUESTS; i++)
            known[i] = answer(&s, i, false);
        predicted(&s, false);
        case_check(serving_stop(&s) == 0, "a status other than 0");
    }
    if (case_check(serving_start(&s, ranks, NULL,
                                 (const char *[]){"--tensor-parallel", size, "--speculative-config", config,
                                                  "--speculative", "always", NULL}),
                   "no server with drafts")) {
        for (size_t i = 0; i < N_REQUESTS; i++) {
            char *text = answer(&s, i, true);
            case_check(known[i] != NULL && text != NULL && strcmp(text, known[i]) == 0, "request %zu: %s, expected %s",
                       i, text, known[i]);
            free(text);
        }
        case_check(sums.accepted > 100 && sums.accepted < sums.tokens, "%g of %g accepted", sums.accepted, sums.tokens);
        case_check(serving_metric(&s, "spec_decode_num_drafts_total") == sums.steps &&
                       serving_metric(&s, "spec_decode_num_draft_tokens_total") == sums.tokens &&
                       serving_metric(&s, "spec_decode_num_accepted_tokens_total") == sums.accepted,
                   "the server has counted other values than %g, %g, %g", sums.steps, sums.tokens, sums.accepted);
        if (config == ngrams)
            predicted(&s, true);
        if (ranks == 1 && config == ngrams)
            through_gateway(&s);
        case_check(serving_stop(&s) == 0, "a status other than 0");
    }
    for (size_t i = 0; i < N_REQUESTS; i++)
        free(known[i]);
    case_end();
}

/* ---- batch ---- */

static char dir[256];

static void write_lines(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    for (int i = 0; i < N_LINES; i++)
        fprintf(f,
                "{\"custom_id\": \"r%d\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {" ONCE
                "%s\"max_tokens\": %d, \"temperature\": %s}}\n",
                i, i % 3 > 0 ? THREE : "\"structured_outputs\": {\"json\": " RECORDS "}, ", N_NEW + i % 5,
                i % 2 == 0 ? "0.4" : "0.8");
    fclose(f);
    files_write(dir, "in.jsonl", text, bytes);
    free(text);
}

static void start_batch(struct process *p, const char *output, const char *config)
{
    char input[300], path[300];
    (void)snprintf(input, sizeof input, "%s/in.jsonl", dir);
    (void)snprintf(path, sizeof path, "%s/%s", dir, output);
    const struct process_setup setup = {.ranks = 2, .limit = BATCH_LIMIT};
    const char *const arguments[] = {"batch",
                                     "--model",
                                     models_demo(),
                                     "--input",
                                     input,
                                     "--output",
                                     path,
                                     "--max-batch",
                                     "2",
                                     "--threads",
                                     "1",
                                     "--seed",
                                     "11",
                                     "--sync-seconds",
                                     "0.1",
                                     "--speculative-config",
                                     config,
                                     "--speculative",
                                     strcmp(output, "plain.jsonl") == 0 ? "off" : "always",
                                     NULL};
    process_start(p, &setup, arguments);
}

static void run_batch(const char *output, const char *config, struct batch_results *r)
{
    struct process p;
    start_batch(&p, output, config);
    process_wait(&p);
    case_check(p.status == 0, "%s: status %d: %s", output, p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    batching_read(r, dir, output);
    case_check(r->n == N_LINES && r->n_twice == 0 && r->n_strange == 0 && r->torn == 0,
               "%s: %d results, %d twice, %d unexpected", output, r->n, r->n_twice, r->n_strange);
}

/* Returns the number of accepted drafts according to the results; -1: one of them reports nothing. */
static double sum_accepted(const struct batch_results *r)
{
    double sum = 0;
    const char *id;
    json_t *result;
    json_object_foreach(r->by_id, id, result)
    {
        const json_t *body = json_object_get(json_object_get(result, "response"), "body");
        double accepted = talk_number(body, METRICS "num_accepted_draft_tokens");
        if (accepted < 0)
            return -1;
        sum += accepted;
    }
    return sum;
}

/* Kills the batch as soon as it has some results. */
static void kill_batch(const char *config)
{
    struct process p;
    struct stat st;
    struct batch_results r;
    char path[300];
    (void)snprintf(path, sizeof path, "%s/drafted.jsonl", dir);
    start_batch(&p, "drafted.jsonl", config);
    while (!p.ended && (stat(path, &st) != 0 || st.st_size == 0))
        process_watch(&p, 0.002, SIZE_MAX);
    pid_t pid = process_of_rank(&p, 0);
    case_check(pid > 0 && kill(pid, SIGKILL) == 0, "it ended before it was killed");
    process_wait(&p);
    case_check(p.status != 0 && p.n_left == 0, "status %d, %d processes are left", p.status, p.n_left);
    process_free(&p);
    batching_read(&r, dir, "drafted.jsonl");
    case_check(r.n > 0 && r.n < N_LINES, "%d results when it was killed", r.n);
    batching_free(&r);
}

/* The manifest counts the drafts of all runs, by vLLM's names. */
static void check_manifest(const char *output, bool drafted)
{
    char path[320];
    json_error_t where;
    (void)snprintf(path, sizeof path, "%s/%s.manifest.json", dir, output);
    json_t *manifest = json_load_file(path, 0, &where), *count;
    const json_t *drafts = json_object_get(manifest, "drafts"),
                 *places = json_object_get(drafts, "num_accepted_tokens_per_pos");
    double sum = 0, before = talk_number(drafts, "num_drafts");
    size_t k;
    case_check(manifest != NULL && (drafts != NULL) == drafted, "%s: drafts in the manifest", output);
    json_array_foreach(places, k, count)
    {
        double n = (double)json_integer_value(count);
        case_check(n <= before, "%g accepted at position %zu, %g at the one before", n, k, before);
        sum += before = n;
    }
    if (drafted)
        case_check(
            json_array_size(places) == MOST && sum > N_LINES && sum == talk_number(drafts, "num_accepted_tokens") &&
                sum < talk_number(drafts, "num_draft_tokens"),
            "%zu positions, %g of %g accepted", json_array_size(places), sum, talk_number(drafts, "num_draft_tokens"));
    json_decref(manifest);
}

static void batched(const char *config)
{
    struct batch_results plain, drafted;
    case_begin("batch: the same texts with drafts %s, killed and resumed", config == ngrams     ? "of n-grams"
                                                                           : config == suffixes ? "of other answers"
                                                                                                : "of a model");
    files_make_dir(dir);
    write_lines();
    run_batch("plain.jsonl", config, &plain);
    kill_batch(config);
    run_batch("drafted.jsonl", config, &drafted);
    case_check(batching_differences(&drafted, &plain) == 0, "%d texts differ", batching_differences(&drafted, &plain));
    case_check(sum_accepted(&plain) < 0 && sum_accepted(&drafted) > N_LINES, "%g and %g drafts accepted",
               sum_accepted(&plain), sum_accepted(&drafted));
    check_manifest("plain.jsonl", false);
    check_manifest("drafted.jsonl", true);
    batching_free(&plain);
    batching_free(&drafted);
    files_remove_dir(dir);
    case_end();
}

/* Clients of a server may differ, and must not see each other's answers through drafts. */
static void refused_by_serve(void)
{
    struct process p;
    const struct process_setup setup = {.ranks = 0, .limit = 60};
    case_begin("serve refuses drafts of other answers");
    process_run(&p, &setup,
                (const char *const[]){"serve", "--model", models_demo(), "--speculative-config", suffixes, NULL});
    case_check(p.status == 2 && strstr(p.text[PROCESS_ERR], "\"suffix\" drafts from other answers") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

int main(void)
{
    served(1, "1", ngrams);
    served(2, "2", ngrams);
    served(3, "3", ngrams);
    served(2, "1", ngrams);
    served(2, "2", by_model());
    served(2, "1", by_model());
    batched(ngrams);
    batched(suffixes);
    refused_by_serve();
    batched(by_model());
    return cases_done();
}
