/* tests/e2e/test_client.c - lockstep-client against a server of the test's own: what it sends for its options, what it
 * prints, how it ends. No sleep: the server's thread tells what it has received. */
#include "base/clock.h"
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/fake_server.h"
#include "tests/support/files.h"
#include "tests/support/process.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define CLIENT  "lockstep-client"
#define SECONDS 20.0 /* for what should take none */

static char folder[256];

/* Run the client against the fake server: argument[0..] with "E" standing for the endpoint. */
static void run(struct process *p, struct fake_server *s, const struct process_setup *setup,
                const char *const *arguments)
{
    const char *argument[60];
    int n = 0;
    struct process_setup mine = setup != NULL ? *setup : (struct process_setup){0};
    for (; arguments[n] != NULL; n++)
        argument[n] = strcmp(arguments[n], "E") == 0 ? s->endpoint : arguments[n];
    argument[n] = NULL;
    mine.program = CLIENT;
    process_start(p, &mine, argument);
}

#define LIST(...)         \
    (const char *[])      \
    {                     \
        __VA_ARGS__, NULL \
    }

struct example {
    const char *name;
    const char *argument[40];
    const char *input;   /* standard input */
    int status;          /* expected */
    const char *out;     /* the whole of standard output; NULL: not looked at */
    const char *words;   /* in standard error, which is one line; NULL: it is empty */
    const char *request; /* JSON: these members at least, of the last message but a cancel; NULL: not looked at */
};

static const struct example examples[] = {
    {"a prompt",
     {"--endpoint", "E", "--max-tokens", "3", "Hello"},
     NULL,
     0,
     "w0 w1 w2\n",
     NULL,
     "{\"op\": \"generate\", \"prompt\": \"Hello\", \"max_tokens\": 3}"},
    {"a prompt with the command named",
     {"generate", "--endpoint", "E", "--max-tokens", "1", "health"},
     NULL,
     0,
     "w0\n",
     NULL,
     "{\"prompt\": \"health\"}"},
    {"a stream",
     {"--endpoint", "E", "--stream", "--max-tokens", "3", "Hello"},
     NULL,
     0,
     "w0 w1 w2\n",
     NULL,
     "{\"prompt\": \"Hello\", \"stream\": true}"},
    {"a prompt from standard input",
     {"--endpoint", "E", "--max-tokens", "1", "-"},
     "two\nlines\n",
     0,
     "w0\n",
     NULL,
     "{\"prompt\": \"two\\nlines\\n\"}"},
    {"words behind --",
     {"--endpoint", "E", "--max-tokens", "1", "--", "--help"},
     NULL,
     0,
     "w0\n",
     NULL,
     "{\"prompt\": \"--help\"}"},
    {"token ids",
     {"--endpoint", "E", "--max-tokens", "1", "--prompt-ids", "5,6,7"},
     NULL,
     0,
     "w0\n",
     NULL,
     "{\"prompt\": [5, 6, 7]}"},
    {"a chat",
     {"--endpoint", "E", "--chat", "--system", "Be brief.", "--max-tokens", "1", "Hi"},
     NULL,
     0,
     "w0\n",
     NULL,
     "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"content\": \"Hi\"}]}"},
    {"every number",
     {"--endpoint",
      "E",
      "--max-tokens",
      "1",
      "--min-tokens",
      "1",
      "--temperature",
      "0.5",
      "--top-k",
      "7",
      "--top-p",
      "0.9",
      "--min-p",
      "0.1",
      "--seed",
      "12",
      "--repetition-penalty",
      "1.5",
      "--presence-penalty",
      "-1",
      "--frequency-penalty",
      "0.25",
      "--n",
      "1",
      "--best-of",
      "2",
      "--priority",
      "-3",
      "--timeout-ms",
      "900",
      "--logprobs",
      "2",
      "--prompt-logprobs",
      "0",
      "--json",
      "x"},
     NULL,
     0,
     NULL,
     NULL,
     "{\"max_tokens\": 1, \"min_tokens\": 1, \"temperature\": 0.5, \"top_k\": 7, \"top_p\": 0.9, \"min_p\": 0.1, "
     "\"seed\": 12, \"repetition_penalty\": 1.5, \"presence_penalty\": -1.0, \"frequency_penalty\": 0.25, \"n\": 1, "
     "\"best_of\": 2, \"priority\": -3, \"timeout_ms\": 900, \"logprobs\": 2, \"prompt_logprobs\": 0}"},
    {"everything else",
     {"--endpoint",
      "E",
      "--max-tokens",
      "1",
      "--stop",
      "a",
      "--stop",
      "\n\n",
      "--stop-token-ids",
      "1,2",
      "--eos-token-id",
      "3",
      "--logit-bias",
      "5:-100,6:2.5",
      "--ignore-eos",
      "--include-stop-str-in-output",
      "--echo",
      "--use-beam-search",
      "--num-beams",
      "4",
      "--length-penalty",
      "0.5",
      "--early-stopping",
      "never",
      "--skip-special-tokens",
      "false",
      "--field",
      "do_sample=false",
      "--request-id",
      "mine",
      "x"},
     NULL,
     0,
     NULL,
     NULL,
     "{\"stop\": [\"a\", \"\\n\\n\"], \"stop_token_ids\": [1, 2], \"eos_token_id\": [3], \"logit_bias\": {\"5\": "
     "-100.0, \"6\": 2.5}, \"ignore_eos\": true, \"include_stop_str_in_output\": true, \"echo\": true, "
     "\"use_beam_search\": true, \"num_beams\": 4, \"length_penalty\": 0.5, \"early_stopping\": \"never\", "
     "\"skip_special_tokens\": false, \"do_sample\": false, \"request_id\": \"mine\"}"},
    {"JSON",
     {"--endpoint", "E", "--json", "--request-id", "r", "--max-tokens", "1", "x"},
     NULL,
     0,
     "{\"status\":\"ok\",\"request_id\":\"r\",\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":1},\"choices\":[{"
     "\"index\":0,\"text\":\"w0\",\"token_ids\":[0],\"finish_reason\":\"length\"}]}\n",
     NULL,
     NULL},
    {"log-probabilities that would not be shown",
     {"--endpoint", "E", "--logprobs", "2", "x"},
     NULL,
     ERR_USAGE,
     "",
     "\"logprobs\" is shown with --json only",
     NULL},
    {"lengths beside those of a dataset",
     {"bench", "--endpoint", "E", "--dataset", "x", "--random-input-len", "5"},
     NULL,
     ERR_USAGE,
     "",
     "lengths are those of --dataset",
     NULL},
    {"an error",
     {"--endpoint", "E", "refuse"},
     NULL,
     ERR_REQUEST,
     "",
     "error 400: prompt: a text that is refused",
     NULL},
    {"a stream that fails",
     {"--endpoint", "E", "--stream", "part"},
     NULL,
     ERR_REQUEST,
     "w0 w1\n",
     "error 503: shutting down",
     NULL},
    {"an answer that does not come",
     {"--endpoint", "E", "--timeout", "0.2", "wait"},
     NULL,
     ERR_COMM,
     "w0 w1\n",
     "no answer within 0.2 s",
     NULL},
    {"a server that dies", {"--endpoint", "E", "vanish"}, NULL, ERR_COMM, "", "the server is gone", NULL},
    {"health",
     {"health", "--endpoint", "E", "--request-id", "h"},
     NULL,
     0,
     "{\"status\":\"ok\",\"request_id\":\"h\",\"state\":\"health\"}\n",
     NULL,
     "{\"op\": \"health\"}"},
    {"models", {"models", "--endpoint", "E"}, NULL, 0, NULL, NULL, "{\"op\": \"models\"}"},
    {"metrics", {"metrics", "--endpoint", "E"}, NULL, 0, NULL, NULL, "{\"op\": \"metrics\"}"},
    {"tokenize",
     {"tokenize", "--endpoint", "E", "a text"},
     NULL,
     0,
     "7,8\n",
     NULL,
     "{\"op\": \"tokenize\", \"prompt\": \"a text\"}"},
    {"tokenize a chat",
     {"tokenize", "--endpoint", "E", "--chat", "a text"},
     NULL,
     0,
     "7,8\n",
     NULL,
     "{\"op\": \"tokenize\", \"messages\": [{\"role\": \"user\", \"content\": \"a text\"}]}"},
    {"detokenize",
     {"detokenize", "--endpoint", "E", "7,8"},
     NULL,
     0,
     "seven eight\n",
     NULL,
     "{\"op\": \"detokenize\", \"token_ids\": [7, 8]}"},
    {"cancel nobody",
     {"cancel", "--endpoint", "E", "--request-id", "none"},
     NULL,
     ERR_REQUEST,
     "",
     "error 404: request_id: no such request",
     NULL},
    {"drain", {"drain", "--endpoint", "E"}, NULL, 0, NULL, NULL, "{\"op\": \"drain\"}"},
    {"shutdown", {"shutdown", "--endpoint", "E"}, NULL, 0, NULL, NULL, "{\"op\": \"shutdown\"}"},
    {"silence to an operation",
     {"--endpoint", "E", "--timeout", "0.2", "silence"},
     NULL,
     ERR_COMM,
     "",
     "no answer within 0.2 s",
     NULL},
    {"raw requests",
     {"send", "--endpoint", "E", "--max-concurrency", "1", "-"},
     "{\"op\":\"health\",\"request_id\":\"a\"}\n\n{\"op\":\"drain\",\n\"request_id\":\"b\"} ",
     0,
     "{\"status\":\"ok\",\"request_id\":\"a\",\"state\":\"health\"}\n{\"status\":\"ok\",\"request_id\":\"b\",\"state\":"
     "\"drain\"}\n",
     NULL,
     NULL},
    {"raw requests of which one fails",
     {"--endpoint", "E", "--file", "-"},
     "{\"prompt\":\"refuse\"}\n{\"op\":\"health\"}",
     ERR_REQUEST,
     NULL,
     "1 of 2 requests",
     NULL},
    {"raw requests that are not JSON",
     {"--endpoint", "E", "--file", "-"},
     "{\"op\":\"health\"}\n{\"op\"",
     ERR_INPUT,
     NULL,
     "request 2: not valid JSON",
     NULL},

    {"an unknown option", {"--endpoint", "E", "--warp", "9", "x"}, NULL, ERR_USAGE, "", "no option \"--warp\"", NULL},
    {"an option of another command",
     {"health", "--endpoint", "E", "--top-k", "9"},
     NULL,
     ERR_USAGE,
     "",
     "\"--top-k\"",
     NULL},
    {"two prompts", {"--endpoint", "E", "x", "y"}, NULL, ERR_USAGE, "", "\"y\" beside \"x\"", NULL},
    {"no prompt", {"--endpoint", "E"}, NULL, ERR_USAGE, "", "generate needs PROMPT|-", NULL},
    {"no endpoint", {"x"}, NULL, ERR_USAGE, "", "--endpoint E or --rendezvous FILE", NULL},
    {"an endpoint that is none", {"--endpoint", "nowhere", "x"}, NULL, ERR_USAGE, "", "endpoint \"nowhere\"", NULL},
    {"a number that is none",
     {"--endpoint", "E", "--max-tokens", "ten", "x"},
     NULL,
     ERR_USAGE,
     "",
     "--max-tokens: found \"ten\"",
     NULL},
    {"a number that is infinite",
     {"--endpoint", "E", "--top-p", "inf", "x"},
     NULL,
     ERR_USAGE,
     "",
     "--top-p: found \"inf\"",
     NULL},
    {"ids that are none", {"--endpoint", "E", "--prompt-ids", "1,,2"}, NULL, ERR_USAGE, "", "expected token ids", NULL},
    {"a bias that is none",
     {"--endpoint", "E", "--logit-bias", "5", "x"},
     NULL,
     ERR_USAGE,
     "",
     "expected ID:BIAS",
     NULL},
    {"a field that is not JSON",
     {"--endpoint", "E", "--field", "a=b", "x"},
     NULL,
     ERR_USAGE,
     "",
     "expected NAME=JSON",
     NULL},
    {"a prompt that is not UTF-8", {"--endpoint", "E", "\xff"}, NULL, ERR_INPUT, "", "not UTF-8", NULL},
    {"a system text without a chat",
     {"--endpoint", "E", "--system", "a", "x"},
     NULL,
     ERR_USAGE,
     "",
     "--system needs --chat",
     NULL},
    {"cancel without a name", {"cancel", "--endpoint", "E"}, NULL, ERR_USAGE, "", "cancel needs --request-id", NULL},
    {"a file of requests that is not there",
     {"send", "--endpoint", "E", "/nowhere/r.jsonl"},
     NULL,
     ERR_IO,
     "",
     "/nowhere/r.jsonl",
     NULL},
};

/* Every member of `want` is in `have`. */
static bool contains(const json_t *have, const json_t *want)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)want, key, value)
    {
        if (!json_equal(json_object_get(have, key), value))
            return false;
    }
    return true;
}

/* The last message that is no cancel of ours. */
static const json_t *last_request(const struct fake_server *s)
{
    const json_t *last = NULL;
    for (int i = 0; i < s->n_received; i++)
        if (json_object_get(s->received[i], "op") == NULL ||
            strcmp(json_string_value(json_object_get(s->received[i], "op")), "cancel") != 0)
            last = s->received[i];
    return last;
}

static void check_output(const struct process *p, const char *out, const char *words)
{
    case_check(out == NULL || strcmp(p->text[PROCESS_OUT], out) == 0, "standard output: %s", p->text[PROCESS_OUT]);
    case_check(words != NULL ? strstr(p->text[PROCESS_ERR], words) != NULL : p->bytes[PROCESS_ERR] == 0,
               "standard error: %s", p->text[PROCESS_ERR]);
    case_check(process_count_lines(p->text[PROCESS_ERR]) <= 1, "more than one line: %s", p->text[PROCESS_ERR]);
}

static void run_example(const struct example *x)
{
    struct fake_server s = {0};
    struct process p;
    case_begin("%s", x->name);
    fake_server_start(&s, "tcp://127.0.0.1:*");
    run(&p, &s, &(struct process_setup){.input = x->input}, x->argument);
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == x->status, "status %d, expected %d: %s", p.status, x->status, p.text[PROCESS_ERR]);
    case_check(p.seconds < SECONDS, "took %.1f s", p.seconds);
    check_output(&p, x->out, x->words);
    if (x->request != NULL) {
        json_t *want = json_loads(x->request, 0, NULL);
        char *have = json_dumps(last_request(&s), JSON_COMPACT);
        case_check(want != NULL && contains(last_request(&s), want), "sent %s", have != NULL ? have : "nothing");
        free(have);
        json_decref(want);
    }
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

/* Until the server has so many messages. */
static void await_messages(struct process *p, const struct fake_server *s, int n)
{
    for (double started = seconds_now(); s->n_received < n && !p->ended && seconds_now() - started < SECONDS;)
        process_watch(p, 0.01, (size_t)-1);
}

static void interrupt(int number)
{
    struct fake_server s = {0};
    struct process p;
    case_begin("signal %d cancels the request", number);
    fake_server_start(&s, "tcp://127.0.0.1:*");
    run(&p, &s, NULL, LIST("--endpoint", "E", "--request-id", "mine", "wait"));
    await_messages(&p, &s, 1);
    (void)kill(p.pid, number);
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == 130, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    check_output(&p, "w0 w1\n", NULL);
    const json_t *last = s.n_received == 2 ? s.received[1] : NULL;
    case_check(last != NULL && strcmp(json_string_value(json_object_get(last, "op")), "cancel") == 0 &&
                   strcmp(json_string_value(json_object_get(last, "request_id")), "mine") == 0,
               "%d messages, the second is no cancel", s.n_received);
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

/* Text that streams to a terminal, and none of it in one piece when it goes to a pipe. */
static void terminal(void)
{
    struct fake_server s = {0};
    struct process p;
    case_begin("a terminal gets a stream");
    fake_server_start(&s, "tcp://127.0.0.1:*");
    run(&p, &s, &(struct process_setup){.terminal = {true, false}},
        LIST("--endpoint", "E", "--max-tokens", "4", "Hello"));
    process_wait(&p);
    fake_server_stop(&s);
    check_output(&p, "w0 w1 w2 w3\n", NULL);
    case_check(json_is_true(json_object_get(last_request(&s), "stream")), "no stream was asked for");
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

static void nobody(void)
{
    struct process p;
    case_begin("no server");
    process_run(&p, &(struct process_setup){.program = CLIENT},
                LIST("--endpoint", "tcp://127.0.0.1:9", "--connect-timeout", "0.3", "x"));
    case_check(p.status == ERR_COMM && p.seconds < SECONDS, "status %d in %.1f s", p.status, p.seconds);
    check_output(&p, "", "no server answers within 0.3 s");
    case_end();
    process_free(&p);
}

/* Key files and rendezvous files as the server writes them. */
static void write_keys(const char *name, const struct fake_server *s, const char *public, const char *secret)
{
    json_t *o = json_pack("{s:s, s:s, s:s}", "server_public_key", s->public_key, "client_public_key", public,
                          "client_secret_key", secret);
    char *text = json_dumps(o, 0);
    files_write(folder, name, text, strlen(text));
    free(text);
    json_decref(o);
}

struct keyed {
    const char *name, *key; /* file; NULL: none */
    const char *out, *words;
    int status;
};

static void curve(void)
{
    static const struct keyed table[] = {
        {"the job's key", "good.json", "w0\n", NULL, 0},
        {"a key that is not on the list", "stranger.json", "", "(or it does not know our key)", ERR_COMM},
        {"no key", NULL, "", "wants CURVE", ERR_COMM},
        {"a key file that is none", "bad.json", "", "\"client_public_key\"", ERR_INPUT},
    };
    struct fake_server s = {.curve = true};
    char public[41], secret[41];
    (void)zmq_curve_keypair(public, secret);
    fake_server_start(&s, "tcp://127.0.0.1:*");
    write_keys("good.json", &s, s.client_public, s.client_secret);
    write_keys("stranger.json", &s, public, secret);
    write_keys("bad.json", &s, "short", secret);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct process p;
        char path[300];
        const char *argument[] = {"--endpoint", "E", "--connect-timeout", "1", "--max-tokens", "1", "x", NULL,
                                  path,         NULL};
        (void)snprintf(path, sizeof path, "%s/%s", folder, table[i].key != NULL ? table[i].key : "");
        argument[7] = table[i].key != NULL ? "--curve-key" : NULL;
        case_begin("CURVE: %s", table[i].name);
        run(&p, &s, NULL, argument);
        process_wait(&p);
        case_check(p.status == table[i].status, "status %d: %s", p.status, p.text[PROCESS_ERR]);
        if (i == 1) /* libzmq tells of the refusal, or the connection just closes */
            check_output(&p, table[i].out, "our key");
        else
            check_output(&p, table[i].out, table[i].words);
        case_end();
        process_free(&p);
    }
    fake_server_stop(&s);
    fake_server_free(&s);
}

/* The file comes after the client has begun to wait for it. */
static void rendezvous(void)
{
    struct fake_server s = {0};
    struct process p;
    char path[300], text[400];
    case_begin("a rendezvous file that comes late");
    (void)snprintf(path, sizeof path, "%s/rendezvous.json", folder);
    process_start(&p, &(struct process_setup){.program = CLIENT}, LIST("--rendezvous", path, "--max-tokens", "1", "x"));
    process_watch(&p, 0.1, 1);
    case_check(!p.ended, "it did not wait");
    fake_server_start(&s, "tcp://127.0.0.1:*");
    int n = snprintf(text, sizeof text, "{\"endpoint\": \"%s\", \"pid\": 1}\n", s.endpoint);
    files_write(folder, "rendezvous.tmp", text, (size_t)n);
    (void)snprintf(text, sizeof text, "%s/rendezvous.tmp", folder);
    case_check(rename(text, path) == 0, "cannot rename");
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    check_output(&p, "w0\n", NULL);
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

static double real_of(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Lengths are exact, the first request warms up, and the rate is kept. */
static void bench_random(void)
{
    struct fake_server s = {0};
    struct process p;
    case_begin("bench of random prompts at a rate");
    fake_server_start(&s, "ipc://@lockstep-test-client");
    run(&p, &s, NULL,
        LIST("bench", "--endpoint", "E", "--num-prompts", "40", "--random-input-len", "17", "--random-output-len", "5",
             "--request-rate", "100", "--json"));
    process_wait(&p);
    fake_server_stop(&s);
    json_t *o = json_loads(p.text[PROCESS_OUT], 0, NULL);
    check_output(&p, NULL, NULL);
    case_check(p.status == 0 && real_of(o, "completed") == 40 && real_of(o, "failed") == 0, "status %d: %s", p.status,
               p.text[PROCESS_OUT]);
    case_check(real_of(o, "total_input_tokens") == 40 * 17 && real_of(o, "total_output_tokens") == 40 * 5, "tokens: %s",
               p.text[PROCESS_OUT]);
    case_check(real_of(o, "duration") >= 0.35 && real_of(o, "mean_ttft_ms") > 0 &&
                   real_of(o, "p99_e2el_ms") >= real_of(o, "p50_ttft_ms"),
               "times: %s", p.text[PROCESS_OUT]);
    case_check(s.n_received == 42, "%d messages: models, a warm-up, 40 requests", s.n_received);
    for (int i = 2; i < s.n_received; i++)
        case_check(json_array_size(json_object_get(s.received[i], "prompt")) == 17 &&
                       json_is_true(json_object_get(s.received[i], "ignore_eos")) &&
                       json_integer_value(json_object_get(s.received[i], "max_tokens")) == 5,
                   "request %d is of another shape", i);
    case_end();
    json_decref(o);
    fake_server_free(&s);
    process_free(&p);
}

static void bench_dataset(void)
{
    struct fake_server s = {0};
    struct process p;
    char path[300];
    const char *lines = "{\"prompt\": \"one\", \"output_len\": 2}\n\n{\"prompt\": [1, 2], \"output_len\": 4}\n"
                        "{\"prompt\": \"refuse\", \"output_len\": 1}\n";
    case_begin("bench of a dataset, of which some fail");
    files_write(folder, "set.jsonl", lines, strlen(lines));
    (void)snprintf(path, sizeof path, "%s/set.jsonl", folder);
    fake_server_start(&s, "tcp://127.0.0.1:*");
    run(&p, &s, NULL,
        LIST("bench", "--endpoint", "E", "--dataset", path, "--num-prompts", "7", "--max-concurrency", "2",
             "--progress", "never"));
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == ERR_REQUEST && strstr(p.text[PROCESS_ERR], "2 of 7 requests failed") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(strstr(p.text[PROCESS_OUT], "Successful requests                                 5\n") != NULL &&
                   strstr(p.text[PROCESS_OUT], "Total generated tokens                             14\n") != NULL &&
                   strstr(p.text[PROCESS_OUT], "at most 2 open") != NULL,
               "%s", p.text[PROCESS_OUT]);
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

static void top(void)
{
    struct fake_server s = {0};
    struct process p;
    case_begin("top --once");
    fake_server_start(&s, "tcp://127.0.0.1:*");
    run(&p, &s, NULL, LIST("top", "--endpoint", "E", "--once", "--interval", "0.5"));
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(strstr(p.text[PROCESS_OUT], "3 running, 2 waiting") != NULL &&
                   strstr(p.text[PROCESS_OUT], "25.0 %") != NULL && strstr(p.text[PROCESS_OUT], "\x1b") == NULL &&
                   strstr(p.text[PROCESS_OUT], "\n0                     7            -            -            -\n") !=
                       NULL,
               "%s", p.text[PROCESS_OUT]);
    double rate = 0; /* 100 tokens between two readings, 0.5 s and a little apart */
    const char *at = strstr(p.text[PROCESS_OUT], "prompt, ");
    case_check(at != NULL && sscanf(at, "prompt, %lf generated", &rate) == 1 && rate > 20 && rate <= 200,
               "%.1f tokens/s", rate);
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

static void help(void)
{
    static const char *const commands[] = {"generate",   "send",   "health", "models",   "metrics", "tokenize",
                                           "detokenize", "cancel", "drain",  "shutdown", "bench",   "top"};
    struct process p;
    case_begin("help of the program and of every command");
    process_run(&p, &(struct process_setup){.program = CLIENT}, LIST("--help"));
    case_check(p.status == 0 && p.bytes[PROCESS_ERR] == 0, "status %d", p.status);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        struct process one;
        char usage[64];
        case_check(strstr(p.text[PROCESS_OUT], commands[i]) != NULL, "%s is not in the overview", commands[i]);
        process_run(&one, &(struct process_setup){.program = CLIENT}, LIST(commands[i], "--help"));
        (void)snprintf(usage, sizeof usage, "Usage: lockstep-client %s", commands[i]);
        case_check(one.status == 0 && strstr(one.text[PROCESS_OUT], usage) == one.text[PROCESS_OUT] &&
                       strstr(one.text[PROCESS_OUT], "--rendezvous FILE") != NULL,
                   "%s: %s", commands[i], one.text[PROCESS_OUT]);
        process_free(&one);
    }
    case_end();
    process_free(&p);
}

/* The dynamic loader lists what it would load. */
static void libraries(void)
{
    struct process p;
    case_begin("no MPI and no CUDA is needed");
    process_run(&p, &(struct process_setup){.program = CLIENT, .env = LIST("LD_TRACE_LOADED_OBJECTS=1")}, LIST("x"));
    const char *out = p.text[PROCESS_OUT];
    case_check(strstr(out, "libzmq") != NULL && strstr(out, "libmpi") == NULL && strstr(out, "cuda") == NULL &&
                   strstr(out, "nccl") == NULL,
               "%s", out);
    case_end();
    process_free(&p);
}

int main(void)
{
    files_make_dir(folder);
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++)
        run_example(&examples[i]);
    interrupt(SIGINT);
    interrupt(SIGTERM);
    terminal();
    nobody();
    curve();
    rendezvous();
    bench_random();
    bench_dataset();
    top();
    help();
    libraries();
    files_remove_dir(folder);
    return cases_done();
}
