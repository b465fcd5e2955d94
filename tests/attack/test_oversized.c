/* tests/attack/test_oversized.c - small messages that ask for replies of many gigabytes, by every possible field; and
 * many requests at once for the largest allowed reply, on a server whose address space is limited to little more than
 * it had when ready. An honest client's answers stay correct and in time, and the memory is returned. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/honest.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <zmq.h>

#define SLACK      ((size_t)64 << 20)  /* growth of rank 0 that is allowed in the end, in bytes */
#define ROOM       ((size_t)350 << 20) /* bytes of address space beyond the server's own */
#define ANSWER_S   0.5
#define COMPANY_S  5.0 /* seconds, behind prompts that are being scored */
#define IDS        250
#define LONG_TOKEN 1107 /* " grandmother" */

static struct serving s;
static struct honest h;

/* Makes {"prompt": [[5, 5, ..], ..], MORE}: n prompts of n_ids ids each. */
static char *many_prompts(int n, int n_ids, const char *more)
{
    size_t room = (size_t)n * ((size_t)n_ids * 2 + 4) + strlen(more) + 100, at = 0;
    char *text = malloc(room);
    at += (size_t)snprintf(text + at, room - at, "{\"prompt\": [");
    for (int i = 0; i < n; i++) {
        text[at++] = i > 0 ? ',' : ' ';
        for (int k = 0; k < n_ids; k++) {
            text[at++] = k > 0 ? ',' : '[';
            text[at++] = '5';
        }
        text[at++] = ']';
    }
    (void)snprintf(text + at, room - at, "], %s}", more);
    return text;
}

/* Makes {"op": OP, FIELD: "aa..", MORE} of this many bytes. */
static char *long_text(const char *field, char letter, size_t bytes, const char *more)
{
    char *text = malloc(bytes + strlen(more) + 100);
    int at = sprintf(text, "{\"%s\": \"", field);
    memset(text + at, letter, bytes);
    (void)sprintf(text + (size_t)at + bytes, "\", %s}", more);
    return text;
}

/* Makes {"token_ids": [1, 1, ..], MORE}: a token whose text is far longer than its id. */
static char *long_ids(size_t n, const char *more)
{
    char *text = malloc(5 * n + strlen(more) + 100);
    size_t at = (size_t)sprintf(text, "{\"token_ids\": [");
    for (size_t i = 0; i < n; i++)
        at += (size_t)sprintf(text + at, "%s%d", i > 0 ? "," : "", LONG_TOKEN);
    (void)sprintf(text + at, "], %s}", more);
    return text;
}

/* The message is refused at once, and the reply names the field at fault. */
static void check_refused(char *message, const char *field)
{
    struct talk t;
    double asked = seconds_now();
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_send(&t, message, strlen(message), false);
    json_t *reply = talk_hear(&t, 60);
    double took = seconds_now() - asked;
    printf("# %zu bytes, %.40s..: %.0f in %.3f s: %s: %s\n", strlen(message), message, talk_number(reply, "code"), took,
           talk_text(reply, "error/field"), talk_text(reply, "error/message"));
    case_check(talk_number(reply, "code") == 413 && strcmp(talk_text(reply, "error/field"), field) == 0 &&
                   strstr(talk_text(reply, "error/message"), "expected at most") != NULL,
               "%.200s..: code %.0f, field %s, expected 413, %s", message, talk_number(reply, "code"),
               talk_text(reply, "error/field"), field);
    json_decref(reply);
    talk_close(&t);
    free(message);
}

static void amplifiers(void)
{
    case_begin("messages that ask for too large replies are refused, on %d ranks", s.ranks);
    if (honest_start(&h, s.endpoint)) {
        check_refused(many_prompts(1, 900, "\"max_tokens\": 1, \"prompt_logprobs\": 20, \"n\": 128"),
                      "prompt_logprobs");
        check_refused(many_prompts(1, 900, "\"max_tokens\": 1, \"prompt_logprobs\": 20, \"n\": 128, \"stream\": true"),
                      "prompt_logprobs");
        check_refused(many_prompts(600, IDS, "\"max_tokens\": 1, \"prompt_logprobs\": 20"), "prompt_logprobs");
        check_refused(many_prompts(1, 3, "\"max_tokens\": 1000, \"logprobs\": 20, \"n\": 128"), "logprobs");
        check_refused(many_prompts(2000, 3, "\"max_tokens\": 1000"), "max_tokens");
        check_refused(many_prompts(16, 900, "\"max_tokens\": 1, \"echo\": true, \"n\": 128"), "echo");
        check_refused(long_text("prompt", '~', 6 << 20, "\"op\": \"tokenize\", \"return_token_strs\": true"), "prompt");
        check_refused(long_ids(2000000, "\"op\": \"detokenize\""), "token_ids");
        honest_stop(&h, "amplifiers", ANSWER_S);
    }
    case_end();
}

struct answers {
    int n_ok, n_busy, n_other;
    double bytes; /* of the longest reply */
};

/* Each client sends the message `each` times and reads the answers. */
static void ask_all(struct talk *t, int clients, int each, const char *message, struct answers *got)
{
    for (int k = 0; k < clients * each; k++)
        talk_send(&t[k % clients], message, strlen(message), false);
    for (int k = 0; k < clients * each; k++) {
        json_t *reply = talk_hear(&t[k % clients], 120);
        bool ok = strcmp(talk_text(reply, "status"), "ok") == 0, busy = talk_number(reply, "code") == 429;
        char *text = reply != NULL ? json_dumps(reply, JSON_COMPACT) : NULL;
        double bytes = text != NULL ? (double)strlen(text) : 0;
        got->n_ok += ok;
        got->n_busy += busy;
        got->n_other += !ok && !busy;
        got->bytes = bytes > got->bytes ? bytes : got->bytes;
        free(text);
        json_decref(reply);
    }
}

/* Several clients ask at once for the largest allowed replies, and read them. */
static void at_the_limit(void)
{
    enum { CLIENTS = 4, EACH = 1 };
    struct talk t[CLIENTS];
    struct answers got = {0};
    case_begin("replies of the largest allowed size, with %zu MiB of address space to spare, on %d ranks", ROOM >> 20,
               s.ranks);
    double before = serving_resident(&s, 0);
    char *message = many_prompts(15, IDS, "\"max_tokens\": 1, \"prompt_logprobs\": 20");
    if (honest_start(&h, s.endpoint)) {
        for (int i = 0; i < CLIENTS; i++)
            talk_open(&t[i], ZMQ_DEALER, s.endpoint, NULL, NULL);
        for (int round = 0; round < (s.ranks == 1 ? 2 : 1); round++) /* only rank 0 answers */
            ask_all(t, CLIENTS, EACH, message, &got);
        for (int i = 0; i < CLIENTS; i++)
            talk_close(&t[i]);
        honest_stop(&h, "replies at the limit", COMPANY_S);
    }
    case_check(got.n_ok >= CLIENTS && got.n_other == 0, "%d answered, %d refused as busy, %d others", got.n_ok,
               got.n_busy, got.n_other);
    case_check(serving_await(&s, "open_requests", 1, 30), "requests are still open");
    double grown = 0, until = seconds_now() + process_patience(5); /* memory is returned once a second */
    while ((grown = serving_resident(&s, 0) - before) >= (double)SLACK && seconds_now() < until)
        (void)nanosleep(&(struct timespec){0, 10000000}, NULL);
    printf("# %d answers of up to %.1f MiB for %zu bytes, %d refused as busy: rank 0 has grown by %.1f MiB\n", got.n_ok,
           got.bytes / (1 << 20), strlen(message), got.n_busy, grown / (1 << 20));
    case_check(grown < (double)SLACK || process_sanitized(), "rank 0 has grown by %.1f MiB", grown / (1 << 20));
    free(message);
    case_end();
}

/* One client keeps the engine full for many seconds: another client's request takes only a few steps more than it needs
 * alone. */
static void beside_a_greedy_client(void)
{
    enum { REQUESTS = 14, TOKENS = 8, ASKED = 5, WAIT = 25 };
    struct talk t;
    case_begin("%d requests of one client do not keep others out of the engine, on %d ranks", REQUESTS, s.ranks);
    char *message = many_prompts(30, IDS, "\"max_tokens\": 1, \"prompt_logprobs\": 2");
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    for (int i = 0; i < REQUESTS; i++)
        talk_send(&t, message, strlen(message), false);
    for (double until = seconds_now() + process_patience(60);
         serving_metric(&s, "num_requests_waiting") < 50 && seconds_now() < until;)
        (void)nanosleep(&(struct timespec){0, 1000000}, NULL);
    double before = serving_metric(&s, "engine_steps_total");
    for (int i = 0; i < ASKED; i++) {
        json_t *reply =
            talk_ask(s.endpoint, "{\"prompt\": \"Once upon a time\", \"max_tokens\": 8, \"ignore_eos\": true}");
        case_check(talk_number(reply, "usage/completion_tokens") == TOKENS, "no answer: %s",
                   talk_text(reply, "error/message"));
        json_decref(reply);
    }
    double each = (serving_metric(&s, "engine_steps_total") - before) / ASKED,
           open = serving_metric(&s, "open_requests");
    printf("# a request of %d tokens beside %.0f large ones took %.1f steps\n", TOKENS, open - 1, each);
    case_check(each < TOKENS + WAIT, "%.1f steps for %d tokens", each, TOKENS);
    talk_close(&t);
    case_check(serving_await(&s, "open_requests", 1, 60), "requests are still open");
    free(message);
    case_end();
}

/* Limits rank 0 to ROOM bytes of address space more than it has. */
static void limit_space(void)
{
    unsigned long long kib = 0;
    char line[128], path[64];
    pid_t pid = process_of_rank(&s.p, 0);
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "VmSize: %llu kB", &kib) == 1)
            break;
    if (f != NULL)
        (void)fclose(f);
    const struct rlimit limit = {(kib << 10) + ROOM, (kib << 10) + ROOM};
    case_check(kib > 0 && prlimit(pid, RLIMIT_AS, &limit, NULL) == 0, "the limit was not set");
}

int main(void)
{
    const char *model = models_shallow();
    for (int ranks = 1; ranks <= 2; ranks++) {
        case_begin("a server on %d ranks", ranks);
        bool started = case_check(
            serving_start_model(&s, model, ranks, NULL,
                                (const char *[]){"--kv-cache-memory-bytes", "32M", "--max-reply-bytes", "8M", NULL}),
            "no server");
        if (started && !process_sanitized())
            limit_space();
        case_end();
        if (!started)
            continue;
        amplifiers();
        at_the_limit();
        beside_a_greedy_client();
        case_begin("the server still ends with status 0");
        int status = serving_stop(&s);
        case_check(status == 0, "status %d", status);
        case_end();
    }
    return cases_done();
}
