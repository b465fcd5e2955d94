/* tests/e2e/test_serve.c - `lockstep serve` under mpirun with the demo model, on 1, 2 and 3 ranks (arguments: a device
 * and the most ranks, else the CPU and 3): the replies that clients get, and their independence from other clients. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define LONG "\"max_tokens\": 900, \"ignore_eos\": true, \"temperature\": 0"

static struct serving s;

/* Writes the token ids of choice 0 into `text`. */
static void ids_of(const json_t *reply, char *text, size_t bytes)
{
    char *dump =
        json_dumps(json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "token_ids"), JSON_COMPACT);
    (void)snprintf(text, bytes, "%s", dump != NULL ? dump : "none");
    free(dump);
}

/* Writes the greedy output of `lockstep generate` for a prompt. */
static void by_generate(const char *prompt, int n, char *text, size_t bytes)
{
    struct process_setup setup = {.ranks = 1};
    struct process p;
    char tokens[16];
    (void)snprintf(tokens, sizeof tokens, "%d", n);
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", models_demo(), "--prompt", prompt, "--max-tokens", tokens,
                                 "--temperature", "0", "--json", NULL});
    json_t *o = json_loads(p.text[PROCESS_OUT], 0, NULL);
    char *dump = json_dumps(json_object_get(o, "token_ids"), JSON_COMPACT);
    (void)snprintf(text, bytes, "%s", dump != NULL ? dump : "nothing");
    free(dump);
    json_decref(o);
    process_free(&p);
}

static void one_reply(void)
{
    char want[2000], found[2000];
    struct talk t;
    by_generate("Once upon a time", 24, want, sizeof want);
    case_begin("a REQ client gets one reply, the tokens of generate, on %d ranks", s.ranks);
    talk_open(&t, ZMQ_REQ, s.endpoint, NULL, NULL);
    talk_say(&t, "{\"prompt\": \"Once upon a time\", \"max_tokens\": 24, \"temperature\": 0, \"request_id\": \"a\"}");
    json_t *reply = talk_hear(&t, 30);
    ids_of(reply, found, sizeof found);
    case_check(strcmp(found, want) == 0, "tokens %s, expected %s", found, want);
    case_check(strcmp(talk_text(reply, "status"), "ok") == 0 && strcmp(talk_text(reply, "request_id"), "a") == 0 &&
                   strcmp(talk_text(reply, "choices/0/finish_reason"), "length") == 0 &&
                   talk_number(reply, "usage/completion_tokens") == 24,
               "the reply differs");
    json_decref(reply);
    talk_say(&t, "{\"op\": \"health\"}"); /* a second reply to the first message would come first */
    reply = talk_hear(&t, 30);
    case_check(strcmp(talk_text(reply, "state"), "ready") == 0, "the next reply is not health's");
    json_decref(reply);
    case_end();
    talk_close(&t);
}

static void stream(const char *what)
{
    struct talk t;
    char whole[4000] = "", message[300];
    int n = 0, finals = 0;
    (void)snprintf(message, sizeof message, "{%s, \"max_tokens\": 30, \"temperature\": 0}", what);
    json_t *alone = talk_ask(s.endpoint, message);
    case_begin("a DEALER client gets a stream of the same text, on %d ranks: %s", s.ranks, what);
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_say(&t, "{%s, \"max_tokens\": 30, \"temperature\": 0, \"stream\": true}", what);
    while (finals == 0) {
        json_t *event = talk_hear(&t, 30);
        if (!case_check(event != NULL, "no event %d", n))
            break;
        case_check(talk_number(event, "seq") == n, "event %d has number %g", n, talk_number(event, "seq"));
        finals += strcmp(talk_text(event, "event"), "final") == 0;
        strncat(whole, talk_text(event, "choices/0/text"), sizeof whole - strlen(whole) - 1);
        json_decref(event);
        n++;
    }
    case_check(n > 10, "only %d events", n);
    case_check(strcmp(whole, talk_text(alone, "choices/0/text")) == 0, "\"%s\", expected \"%s\"", whole,
               talk_text(alone, "choices/0/text"));
    talk_say(&t, "{\"op\": \"health\"}");
    json_t *last = talk_hear(&t, 30);
    case_check(strcmp(talk_text(last, "op"), "health") == 0, "a message came after the final event");
    json_decref(last);
    json_decref(alone);
    case_end();
    talk_close(&t);
}

/* Sends the same request among 20 others of mixed lengths, some sampled, some cancelled. */
static void busy_batch(void)
{
    char want[2000], found[2000] = "";
    struct talk t;
    const char *request = "{\"prompt\": \"In a village by the sea\", \"max_tokens\": 40, \"temperature\": 0, "
                          "\"request_id\": \"the-one\"}";
    json_t *alone = talk_ask(s.endpoint, request);
    ids_of(alone, want, sizeof want);
    json_decref(alone);
    case_begin("the same tokens within a busy batch, on %d ranks", s.ranks);
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    for (int i = 0; i < 20; i++) {
        talk_say(&t, "{\"prompt\": \"Tom %d\", \"max_tokens\": %d, \"temperature\": 0.9, \"seed\": %d}", i, 10 + 7 * i,
                 i);
        if (i == 10)
            talk_say(&t, "%s", request);
    }
    for (int i = 0; i < 21; i++) {
        json_t *reply = talk_hear(&t, 60);
        case_check(strcmp(talk_text(reply, "status"), "ok") == 0, "reply %d is not ok", i);
        if (strcmp(talk_text(reply, "request_id"), "the-one") == 0)
            ids_of(reply, found, sizeof found);
        json_decref(reply);
    }
    case_check(strcmp(found, want) == 0, "tokens %s, expected %s", found, want);
    case_end();
    talk_close(&t);
}

static void check_error(const char *request, int code, const char *field)
{
    json_t *reply = talk_ask(s.endpoint, request);
    char *dump = json_dumps(reply, JSON_COMPACT);
    case_check(strcmp(talk_text(reply, "status"), "error") == 0 && talk_number(reply, "code") == code &&
                   strcmp(talk_text(reply, "error/field"), field) == 0,
               "%s: %s, expected %d of %s", request, dump != NULL ? dump : "nothing", code, field);
    free(dump);
    json_decref(reply);
}

static void errors(void)
{
    case_begin("errors name the field");
    check_error("{\"prompt\": \"x\", \"max_tokns\": 3}", 400, "max_tokns");
    check_error("{\"prompt\": \"x\", \"temperature\": \"hot\"}", 400, "temperature");
    check_error("{\"prompt\": \"x\", \"stream\": true}", 400, "stream"); /* a REQ client receives only one reply */
    check_error("{\"prompt\": \"x\", \"max_tokens\": 100000}", 413, "max_tokens");
    check_error("{\"op\": \"cancel\", \"request_id\": \"nobody\"}", 404, "request_id");
    check_error("{\"op\": \"shutdown\"}", 400, "op"); /* over TCP without CURVE */
    check_error("{\"op\": \"drain\"}", 400, "op");
    json_t *reply = talk_ask(s.endpoint, "this is no JSON");
    case_check(talk_number(reply, "code") == 400, "no JSON: code %g", talk_number(reply, "code"));
    json_decref(reply);
    case_end();
}

static void cancel(void)
{
    struct talk t;
    int cancelled = 0, acknowledged = 0;
    case_begin("cancel ends a stream with 499, and its blocks are free, on %d ranks", s.ranks);
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_say(&t, "{\"prompt\": \"Long ago\", %s, \"stream\": true, \"request_id\": \"long\"}", LONG);
    json_decref(talk_hear(&t, 30));
    talk_say(&t, "{\"op\": \"cancel\", \"request_id\": \"long\"}");
    for (int i = 0; i < 2000 && !cancelled; i++) {
        json_t *event = talk_hear(&t, 10);
        if (!case_check(event != NULL, "no final event"))
            break;
        acknowledged += strcmp(talk_text(event, "op"), "cancel") == 0 && strcmp(talk_text(event, "status"), "ok") == 0;
        cancelled = strcmp(talk_text(event, "event"), "final") == 0 && talk_number(event, "code") == 499 &&
                    strcmp(talk_text(event, "choices/0/finish_reason"), "cancelled") == 0;
        json_decref(event);
    }
    case_check(acknowledged && cancelled, "acknowledged %d, cancelled %d", acknowledged, cancelled);
    case_check(serving_await(&s, "kv_blocks_used", 0, 30), "blocks are still held");
    case_end();
    talk_close(&t);
}

static void leave(void)
{
    struct talk t;
    double before = serving_metric(&s, "lost_clients_total");
    case_begin("a client that leaves ends its requests, on %d ranks", s.ranks);
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    for (int i = 0; i < 6; i++) /* some stream, some reply only at their end */
        talk_say(&t, "{\"prompt\": \"Long ago\", %s, \"stream\": %s}", LONG, i % 2 == 0 ? "true" : "false");
    json_decref(talk_hear(&t, 30));
    case_check(serving_metric(&s, "kv_blocks_used") > 0, "no blocks were ever held");
    double started = seconds_now();
    talk_close(&t);
    case_check(serving_await(&s, "kv_blocks_used", 0, 30), "blocks are still held");
    case_check(process_in_time(seconds_now() - started, 1), "only after %.3f s", seconds_now() - started);
    case_check(serving_metric(&s, "lost_clients_total") == before + 1, "the requests are not counted");
    case_check(serving_await(&s, "open_requests", 1, 30), "requests are still open"); /* 1: the question itself */
    case_end();
}

static void run_out_of_time(void)
{
    bool has_text = false;
    case_begin("timeout_ms: 408 with the text so far, on %d ranks", s.ranks);
    for (int ms = 60; ms < 600 && !has_text; ms *= 2) { /* a busy machine may not have made a token after 60 ms */
        char text[200];
        (void)snprintf(text, sizeof text, "{\"prompt\": \"Long ago\", " LONG ", \"timeout_ms\": %d}", ms);
        json_t *reply = talk_ask(s.endpoint, text);
        case_check(talk_number(reply, "code") == 408 &&
                       strcmp(talk_text(reply, "choices/0/finish_reason"), "timeout") == 0,
                   "code %g, %s", talk_number(reply, "code"), talk_text(reply, "choices/0/finish_reason"));
        has_text = strlen(talk_text(reply, "choices/0/text")) > 0;
        json_decref(reply);
    }
    case_check(process_sanitized() || has_text, "the reply has no text");
    case_end();
}

static void same_name(void)
{
    struct talk t;
    case_begin("a request_id that is in use is refused");
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_say(&t, "{\"prompt\": \"Long ago\", %s, \"stream\": true, \"request_id\": \"mine\"}", LONG);
    json_decref(talk_hear(&t, 30));
    talk_say(&t, "{\"prompt\": \"x\", \"request_id\": \"mine\"}");
    json_t *m = NULL;
    while ((m = talk_hear(&t, 30)) != NULL && talk_number(m, "code") < 0)
        json_decref(m);
    case_check(talk_number(m, "code") == 400 && strcmp(talk_text(m, "error/field"), "request_id") == 0,
               "it is accepted");
    json_decref(m);
    case_end();
    talk_close(&t);
}

/* A text of megabytes is parsed, encoded and refused, or its tokens are written, while another client's tokens and
 * health requests go on. Returns the longest wait for one of these, in seconds. */
static double wait_beside_large_text(bool tokenize)
{
    enum { BYTES = 4 << 20 };
    static const char words[] = "Once upon a time there was a little fox. ";
    struct talk t, large;
    char *text = malloc(BYTES + 200);
    double longest = 0;
    int n = snprintf(text, 100, "{\"prompt\": \"");
    while (n < BYTES)
        n += snprintf(text + n, 100, "%s", words);
    n += snprintf(text + n, 100, "\", %s}",
                  tokenize ? "\"op\": \"tokenize\", \"return_token_strs\": true" : "\"request_id\": \"large\"");
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_open(&large, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_say(&t, "{\"prompt\": \"Long ago\", %s, \"stream\": true}", LONG);
    json_decref(talk_hear(&t, 30));
    talk_send(&large, text, (size_t)n, false);
    json_t *answer = NULL;
    for (double last = seconds_now(); answer == NULL;) {
        json_t *event = talk_hear(&t, 30);
        double now = seconds_now();
        longest = now - last > longest ? now - last : longest;
        bool ended = event == NULL || strcmp(talk_text(event, "event"), "final") == 0;
        json_decref(event);
        if (ended) {
            answer = talk_hear(&large, 30);
            break;
        }
        double asked = seconds_now();
        json_decref(talk_ask(s.endpoint, "{\"op\": \"health\"}"));
        last = seconds_now();
        longest = last - asked > longest ? last - asked : longest;
        answer = talk_hear(&large, 0);
    }
    case_check(tokenize ? talk_number(answer, "count") > BYTES / 8 : talk_number(answer, "code") == 413,
               "code %g, %g tokens", talk_number(answer, "code"), talk_number(answer, "count"));
    json_decref(answer);
    free(text);
    talk_close(&t);
    talk_close(&large);
    return longest;
}

/* Tries three times at most: the machine itself may stall for a moment. */
static void large_text(bool tokenize)
{
    double longest = INFINITY;
    case_begin("%s of 4 MiB delays no client, on %d ranks", tokenize ? "tokenize" : "a prompt", s.ranks);
    for (int i = 0; i < 3 && longest > 0.25; i++)
        longest = wait_beside_large_text(tokenize);
    case_check(process_in_time(longest, 0.25), "a token or an answer came after %.3f s", longest);
    case_end();
}

static void several(void)
{
    json_t *reply;
    case_begin("several prompts and candidates in one request, on %d ranks", s.ranks);
    reply =
        talk_ask(s.endpoint, "{\"prompt\": [\"Once upon a time\", \"The little fox\"], \"n\": 3, \"max_tokens\": 5, "
                             "\"seed\": 4}");
    case_check(json_array_size(json_object_get(reply, "choices")) == 6, "%zu choices",
               json_array_size(json_object_get(reply, "choices")));
    case_check(talk_number(reply, "usage/completion_tokens") <= 30 && talk_number(reply, "choices/5/index") == 5,
               "the reply differs");
    json_t *again = talk_ask(s.endpoint, "{\"prompt\": \"The little fox\", \"n\": 1, \"max_tokens\": 5, \"seed\": 6}");
    case_check(strcmp(talk_text(reply, "choices/5/text"), talk_text(again, "choices/0/text")) == 0,
               "candidate 2 of seed 4: \"%s\", seed 6: \"%s\"", talk_text(reply, "choices/5/text"),
               talk_text(again, "choices/0/text"));
    json_decref(reply);
    json_decref(again);
    case_end();
}

static void tokens_and_texts(void)
{
    char request[2000];
    case_begin("tokenize and detokenize are inverse to each other");
    json_t *none = talk_ask(s.endpoint, "{\"op\": \"tokenize\", \"prompt\": \"\", \"add_special_tokens\": false}");
    case_check(strcmp(talk_text(none, "status"), "ok") == 0 && talk_number(none, "count") == 0,
               "an empty text: status %s, %g tokens", talk_text(none, "status"), talk_number(none, "count"));
    json_decref(none);
    json_t *there = talk_ask(s.endpoint, "{\"op\": \"tokenize\", \"prompt\": \"The little fox\"}");
    char *ids = json_dumps(json_object_get(there, "token_ids"), JSON_COMPACT);
    (void)snprintf(request, sizeof request,
                   "{\"op\": \"detokenize\", \"skip_special_tokens\": true, \"token_ids\": %s}", ids);
    json_t *back = talk_ask(s.endpoint, request);
    case_check(strcmp(talk_text(back, "text"), "The little fox") == 0, "\"%s\" from %s", talk_text(back, "text"), ids);
    free(ids);
    json_decref(there);
    json_decref(back);
    case_end();
}

/* Prometheus can parse the text, and the counters match the requests. */
static void metrics(void)
{
    static const char *const names[] = {"e2e_request_latency_seconds_count", "time_to_first_token_seconds_count",
                                        "inference_request_success_total", "request_prompt_tokens_count"};
    double before[4], output = serving_metric(&s, "generation_tokens_total");
    for (int i = 0; i < 4; i++)
        before[i] = serving_metric(&s, names[i]);
    double longest = serving_metric(&s, "request_max_num_generation_tokens_sum"),
           computed = serving_metric(&s, "request_prefill_kv_computed_tokens_sum");
    for (int i = 0; i < 3; i++)
        json_decref(talk_ask(s.endpoint, "{\"prompt\": \"One\", \"max_tokens\": 7, \"ignore_eos\": true}"));
    case_begin("metrics add up, on %d ranks", s.ranks);
    longest = serving_metric(&s, "request_max_num_generation_tokens_sum") - longest;
    computed = serving_metric(&s, "request_prefill_kv_computed_tokens_sum") - computed;
    case_check(longest == 21 && computed > 0 && computed <= 9, "longest choices: %g, computed: %g", longest, computed);
    for (int i = 0; i < 4; i++)
        case_check(serving_metric(&s, names[i]) == before[i] + 3, "%s: %g after %g", names[i],
                   serving_metric(&s, names[i]), before[i]);
    case_check(serving_metric(&s, "generation_tokens_total") == output + 21, "output tokens: %g after %g",
               serving_metric(&s, "generation_tokens_total"), output);
    double total = serving_metric(&s, "inference_request_duration_seconds_total"),
           parts = serving_metric(&s, "inference_queue_duration_seconds_total") +
                   serving_metric(&s, "inference_compute_duration_seconds_total") +
                   serving_metric(&s, "inference_overhead_duration_seconds_total");
    case_check(fabs(total - parts) < 1e-6 * total, "%g s in all, the parts are %g", total, parts);
    case_check(serving_metric(&s, "prompt_tokens_by_source_total") == serving_metric(&s, "prompt_tokens_total"),
               "prompt tokens by source: %g of %g", serving_metric(&s, "prompt_tokens_by_source_total"),
               serving_metric(&s, "prompt_tokens_total"));
    case_check(serving_metric(&s, "num_requests_waiting_by_reason") == 0, "a request is still waiting");
    case_check(serving_metric(&s, "rank_steps_total") > 0, "no steps are counted by rank");
    case_check(serving_metric(&s, "ranks") == s.ranks, "the number of ranks differs");
    case_end();
}

static void full_queue(void)
{
    struct talk t;
    int ok = 0, busy = 0, hint = 0, said = 0;
    case_begin("a full queue: 429 with retry_after_ms and what was counted");
    if (!case_check(serving_start(&s, 1, NULL, (const char *[]){"--max-batch", "1", "--max-queue", "2", NULL}),
                    "no server")) {
        case_end();
        return;
    }
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    for (int i = 0; i < 8; i++)
        talk_say(&t, "{\"prompt\": \"Once\", \"max_tokens\": 20, \"ignore_eos\": true}");
    for (int i = 0; i < 8; i++) {
        json_t *reply = talk_hear(&t, 30);
        ok += strcmp(talk_text(reply, "status"), "ok") == 0;
        busy += talk_number(reply, "code") == 429;
        hint += talk_number(reply, "retry_after_ms") > 0;
        said += strcmp(talk_text(reply, "error/message"),
                       "the queue is full: 3 sequences run or wait, and this request has 1, expected at most 3 "
                       "together: 1 at once and 2 waiting (--max-queue)") == 0;
        json_decref(reply);
    }
    case_check(ok == 3 && busy == 5 && hint == 5 && said == 5,
               "%d ok, %d refused, %d of them with retry_after_ms, %d with the counts", ok, busy, hint, said);
    case_end();
    talk_close(&t);
    (void)serving_stop(&s);
}

int main(int argc, char **argv)
{
    char dir[256] = "";
    int most = models_for_device(dir, argc, argv, 3);
    for (int ranks = 1; ranks <= most; ranks++) {
        if (!serving_start(&s, ranks, NULL, NULL)) {
            case_begin("serve starts on %d ranks", ranks);
            case_check(false, "it did not start");
            case_end();
            continue;
        }
        one_reply();
        stream("\"prompt\": \"The little fox\"");
        stream("\"prompt\": \"The \\\"little\\\" fox\\n\", \"echo\": true");
        stream("\"prompt\": [0, 379, 380, 259, 347], \"echo\": true");
        busy_batch();
        several();
        cancel();
        leave();
        run_out_of_time();
        metrics();
        if (ranks == 2) {
            errors();
            same_name();
            large_text(false);
            large_text(true);
            tokens_and_texts();
        }
        (void)serving_stop(&s);
    }
    full_queue();
    if (dir[0] != '\0')
        files_remove_dir(dir);
    return cases_done();
}
