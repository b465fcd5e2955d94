/* tests/e2e/test_serve_same.c - the tokens of a request to `lockstep serve` are the same alone, within a busy batch,
 * with the prefix cache and without, and after preemption, on 1, 2 and 3 ranks. Greedy, with sums in float32. */
#include "tests/support/cases.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define N_PROMPTS    7
#define N_SHARED     40 /* tokens at the beginning of all prompts but two */
#define N_NEW        44
#define N_NOISE      10 /* sampled requests beside them */
#define SMALL_BLOCKS 13 /* blocks, for prompts of 3 or 4 blocks that grow to 6 */

/* Bytes of a KV block on each of 1, 2 and 3 ranks: 6 layers, 16 tokens, 32 elements, keys and values of 4 bytes, times
 * 3, 2 or 1 of the 3 KV heads. */
#define BLOCK_BYTES(ranks) (6 * 16 * 32 * 2 * 4 * (4 - (ranks)))

static const struct shape {
    const char *name;
    bool small, caching;
} shape[] = {{"with the prefix cache", false, true},
             {"without the prefix cache", false, false},
             {"preempted, with the prefix cache", true, true},
             {"preempted, without the prefix cache", true, false}};

static struct serving s;
static char *known[N_PROMPTS]; /* token ids of each prompt, as text: from the first server, alone */

static void write_request(char *text, size_t bytes, int i)
{
    size_t n = (size_t)snprintf(text, bytes,
                                "{\"request_id\": \"same-%d\", \"max_tokens\": %d, \"temperature\": 0, "
                                "\"ignore_eos\": true, \"prompt\": [",
                                i, N_NEW);
    for (int k = 0; k < N_SHARED + 3 * i; k++) {
        int own = i % 3 == 2 || k >= N_SHARED ? 100 * i : 0;
        n += (size_t)snprintf(text + n, bytes - n, "%s%d", k > 0 ? ", " : "", 2 + (k * k * 13 + k * 7 + own) % 2000);
    }
    (void)snprintf(text + n, bytes - n, "]}");
}

/* The state of the prompt that a reply names, created if it is new. */
static void compare(const json_t *reply, const char *how)
{
    const char *id = talk_text(reply, "request_id");
    int i = strncmp(id, "same-", 5) == 0 ? atoi(id + 5) : -1;
    const json_t *ids = json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "token_ids");
    if (i < 0 || i >= N_PROMPTS)
        return;
    case_check(json_array_size(ids) == N_NEW, "%s, prompt %d: %zu tokens: %s", how, i, json_array_size(ids),
               talk_text(reply, "error/message"));
    char *text = json_dumps(ids, JSON_COMPACT);
    if (known[i] == NULL)
        known[i] = strdup(text != NULL ? text : "");
    case_check(text != NULL && strcmp(text, known[i]) == 0, "%s, prompt %d: %s, expected %s", how, i, text, known[i]);
    free(text);
}

/* Sends the first n prompts, one by one. */
static void alone(int n)
{
    char request[3000];
    for (int i = 0; i < n; i++) {
        write_request(request, sizeof request, i);
        json_t *reply = talk_ask(s.endpoint, request);
        compare(reply, "alone");
        json_decref(reply);
    }
}

/* Answers that end with their first token: so the server expects short ones, and starts more than will fit. */
static void answer_shortly(void)
{
    char request[200];
    (void)snprintf(request, sizeof request,
                   "{\"prompt\": \"Tom\", \"max_tokens\": %d, \"n\": 128, \"logit_bias\": {\"5\": 100}, "
                   "\"stop_token_ids\": [5]}",
                   N_NEW);
    json_t *reply = talk_ask(s.endpoint, request);
    const json_t *choices = json_object_get(reply, "choices");
    case_check(json_array_size(choices) == 128, "%zu answers: %s", json_array_size(choices),
               talk_text(reply, "error/message"));
    for (size_t i = 0; i < json_array_size(choices); i++)
        case_check(strcmp(talk_text(json_array_get(choices, i), "finish_reason"), "stop") == 0, "a longer answer");
    json_decref(reply);
}

static void busy(void)
{
    char request[3000];
    struct talk t;
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    for (int i = 0; i < N_PROMPTS || i < N_NOISE; i++) {
        if (i < N_NOISE)
            talk_say(&t, "{\"prompt\": \"Tom %d\", \"max_tokens\": %d, \"seed\": %d, \"stream\": %s}", i, 20 + 3 * i, i,
                     i % 2 == 0 ? "true" : "false");
        if (i < N_PROMPTS) {
            write_request(request, sizeof request, i);
            talk_say(&t, "%s", request);
        }
    }
    for (int last = 0; last < N_PROMPTS + N_NOISE;) {
        json_t *reply = talk_hear(&t, 60);
        if (!case_check(reply != NULL, "%d of %d requests have ended", last, N_PROMPTS + N_NOISE))
            break;
        last += strcmp(talk_text(reply, "event"), "tokens") != 0;
        compare(reply, "busy");
        json_decref(reply);
    }
    talk_close(&t);
}

static void check_answers(int ranks, const struct shape *how)
{
    char bytes[32];
    const char *more[8] = {"--max-batch", "12", "--max-batch-tokens", "48"};
    int n = 4;
    (void)snprintf(bytes, sizeof bytes, "%d", SMALL_BLOCKS * BLOCK_BYTES(ranks));
    if (how->small) {
        more[n++] = "--kv-cache-memory-bytes";
        more[n++] = bytes;
    }
    if (!how->caching)
        more[n++] = "--no-enable-prefix-caching";
    case_begin("the same tokens alone and busy, %s, on %d ranks", how->name, ranks);
    if (case_check(serving_start(&s, ranks, NULL, more), "no server")) {
        alone(how == shape ? N_PROMPTS : 2);
        if (how->small)
            answer_shortly();
        double preempted = serving_metric(&s, "num_preemptions_total");
        busy();
        preempted = serving_metric(&s, "num_preemptions_total") - preempted;
        case_check((preempted > 0) == how->small, "%g preempted", preempted);
        double hits = serving_metric(&s, "prefix_cache_hits_total");
        case_check((hits > 0) == how->caching, "%g tokens were found in the cache", hits);
        case_check(serving_stop(&s) == 0, "a status other than 0");
    }
    case_end();
}

int main(void)
{
    for (int ranks = 1; ranks <= 3; ranks++)
        for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++)
            check_answers(ranks, &shape[i]);
    for (int i = 0; i < N_PROMPTS; i++)
        free(known[i]);
    return cases_done();
}
