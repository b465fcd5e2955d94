/* tests/e2e/test_client.c - lockstep-client against a server of the test's own: signals, keys, rendezvous files, bench,
 * top, help. Nothing sleeps: the server's thread reports what it has received. */
#include "base/clock.h"
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/client.h"
#include "tests/support/files.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

/* Clears the screen, and reverses the direction of the text after it; as it is, and as a label of metrics. */
#define TURNED        "\xe2\x80\xaegpj.exe\xc2\x9b"
#define HOSTILE_NAME  "\x1b[2Jevil\"\\" TURNED
#define HOSTILE_LABEL "\x1b[2Jevil\\\"\\\\" TURNED

static char folder[256];

/* Waits until the server has received this many messages. */
static void await_messages(struct process *p, const struct fake_server *s, int n)
{
    for (double started = seconds_now(); s->n_received < n && !p->ended && seconds_now() - started < CLIENT_SECONDS;)
        process_watch(p, 0.01, (size_t)-1);
}

static void interrupt(int number)
{
    struct fake_server s = {0};
    struct process p;
    case_begin("signal %d cancels the request", number);
    fake_server_start(&s, "tcp://127.0.0.1:*");
    client_start(&p, &s, NULL, CLIENT_WORDS("--endpoint", "E", "--request-id", "mine", "wait"));
    await_messages(&p, &s, 1);
    (void)kill(p.pid, number);
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == 130, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    client_check_output(&p, "w0 w1\n", NULL);
    const json_t *last = s.n_received == 2 ? s.received[1] : NULL;
    case_check(last != NULL && strcmp(json_string_value(json_object_get(last, "op")), "cancel") == 0 &&
                   strcmp(json_string_value(json_object_get(last, "request_id")), "mine") == 0,
               "%d messages, the second is not a cancel", s.n_received);
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

/* Text streams to a terminal, and arrives in one piece in a pipe. */
static void terminal(void)
{
    struct fake_server s = {0};
    struct process p;
    case_begin("a terminal gets a stream");
    fake_server_start(&s, "tcp://127.0.0.1:*");
    client_start(&p, &s, &(struct process_setup){.terminal = {true, false}},
                 CLIENT_WORDS("--endpoint", "E", "--max-tokens", "4", "Hello"));
    process_wait(&p);
    fake_server_stop(&s);
    client_check_output(&p, "w0 w1 w2 w3\n", NULL);
    case_check(json_is_true(json_object_get(client_last_request(&s), "stream")), "the client did not ask for a stream");
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

/* A word that looks like a command is not sent; after -- it is a prompt. */
static void slip(const char *word, const char *says)
{
    struct fake_server s = {0};
    struct process p;
    case_begin("the word %s is %s", word, says != NULL ? "no prompt" : "a prompt after --");
    fake_server_start(&s, "tcp://127.0.0.1:*");
    client_start(&p, &s, NULL,
                 says != NULL ? CLIENT_WORDS("--endpoint", "E", "--max-tokens", "1", word)
                              : CLIENT_WORDS("--endpoint", "E", "--max-tokens", "1", "--", word));
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == (says != NULL ? ERR_USAGE : 0) && s.n_received == (says == NULL),
               "status %d, %d messages: %s", p.status, s.n_received, p.text[PROCESS_ERR]);
    client_check_output(&p, says != NULL ? "" : "w0\n", says);
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

/* One choice fails; the text of the other is printed nevertheless. */
static void fails_partly(void)
{
    struct fake_server s = {0};
    struct process p;
    case_begin("one of two choices fails, the other is printed");
    fake_server_start(&s, "tcp://127.0.0.1:*");
    client_start(&p, &s, NULL, CLIENT_WORDS("--endpoint", "E", "partly"));
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == ERR_REQUEST, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    client_check_output(&p, "[0] w0\n[1]  w1\n", "choice 1: error 500: out of \"room\"");
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

static void slips(void)
{
    slip("drian", "did you mean drain?");
    slip("Halth", "did you mean health?");
    slip("drain", "the command comes first");
    slip("help", "did you mean --help?");
    slip("drian", NULL);
    slip("help", NULL);
}

/* The line names the program once. */
static void unknown_option(void)
{
    struct process p;
    case_begin("an unknown option without a command");
    process_run(&p, &(struct process_setup){.program = CLIENT}, CLIENT_WORDS("--endpont", "E", "Hi"));
    case_check(p.status == ERR_USAGE &&
                   strcmp(p.text[PROCESS_ERR], "lockstep-client: no option \"--endpont\": did you mean --endpoint? "
                                               "(see: lockstep-client --help)\n") == 0,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_end();
    process_free(&p);
}

/* Options and words of a command that is misspelt, or behind options with values, are not blamed for it. */
static void misplaced_command(void)
{
    static const struct {
        const char *words[8], *says;
    } cases[] = {
        {{"--endpoint", "E", "bench", "--num-prompts", "5"}, "the command comes first: lockstep-client bench ..."},
        {{"--num-prompts", "5", "bench", "-e", "E"}, "the command comes first: lockstep-client bench ..."},
        {{"-e", "E", "top", "--once"}, "the command comes first: lockstep-client top ..."},
        {{"--prompt", "Hi", "-e", "E", "tokenize"}, "the command comes first: lockstep-client tokenize ..."},
        {{"-r", "FILE", "send", "lines.jsonl"}, "the command comes first: lockstep-client send ..."},
        {{"--file=lines.jsonl", "health"}, "the command comes first: lockstep-client health ..."},
        {{"bnech", "-e", "E", "--num-prompts", "5"}, "no command \"bnech\", did you mean bench?"},
        {{"-e", "E", "Hi", "--once"}, "no option \"--once\" (see: lockstep-client --help)"},
        {{"-e", "E", "--model", "top", "Hi", "you"}, "found \"you\" beside \"Hi\", expected 1 at most"},
        {{"-e", "E", "--", "top", "ten"}, "found \"ten\" beside \"top\", expected 1 at most"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct process p;
        case_begin("words in a wrong order: %s %s ...", cases[i].words[0], cases[i].words[1]);
        process_run(&p, &(struct process_setup){.program = CLIENT}, cases[i].words);
        case_check(p.status == ERR_USAGE && strstr(p.text[PROCESS_ERR], cases[i].says) != NULL,
                   "status %d: %s, expected: %s", p.status, p.text[PROCESS_ERR], cases[i].says);
        case_end();
        process_free(&p);
    }
}

static void unknown_variable(void)
{
    static const char *const env[] = {"LOCKSTEP_CLIENT_ENDPIONT=x", "LOCKSTEP_BUILD=y", NULL};
    struct fake_server s = {0};
    struct process p;
    case_begin("a variable without an option");
    fake_server_start(&s, "tcp://127.0.0.1:*");
    client_start(&p, &s, &(struct process_setup){.env = env},
                 CLIENT_WORDS("--endpoint", "E", "--max-tokens", "1", "Hi"));
    process_wait(&p);
    fake_server_stop(&s);
    client_check_output(&p, "w0\n",
                        "LOCKSTEP_CLIENT_ENDPIONT is not an option; did you mean LOCKSTEP_CLIENT_ENDPOINT?");
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

static void nobody(void)
{
    struct process p;
    case_begin("no server");
    process_run(&p, &(struct process_setup){.program = CLIENT},
                CLIENT_WORDS("--endpoint", "tcp://127.0.0.1:9", "--connect-timeout", "0.3", "x"));
    case_check(p.status == ERR_COMM && process_in_time(p.seconds, CLIENT_SECONDS / 4), "status %d in %.1f s", p.status,
               p.seconds);
    client_check_output(&p, "", "no server answers within 0.3 s");
    case_end();
    process_free(&p);
}

/* Writes key files and rendezvous files as the server writes them. */
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
    const char *seconds;    /* allowed for the connection */
    const char *out, *words;
    int status;
};

static void curve(void)
{
    static const struct keyed table[] = {
        {"the job's key", "good.json", "300", "w0\n", NULL, 0},
        {"a key that is not on the list", "stranger.json", "1", "", "(or it does not accept this key)", ERR_COMM},
        {"no key", NULL, "300", "", "wants CURVE", ERR_COMM},
        {"an invalid key file", "bad.json", "300", "", "\"client_public_key\"", ERR_INPUT},
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
        const char *argument[] = {
            "--endpoint", "E", "--connect-timeout", table[i].seconds, "--max-tokens", "1", "x", NULL, path, NULL};
        (void)snprintf(path, sizeof path, "%s/%s", folder, table[i].key != NULL ? table[i].key : "");
        argument[7] = table[i].key != NULL ? "--curve-key" : NULL;
        case_begin("CURVE: %s", table[i].name);
        client_start(&p, &s, NULL, argument);
        process_wait(&p);
        case_check(p.status == table[i].status, "status %d: %s", p.status, p.text[PROCESS_ERR]);
        if (i == 1) /* libzmq reports the refusal, or the connection just closes */
            client_check_output(&p, table[i].out, "this key");
        else
            client_check_output(&p, table[i].out, table[i].words);
        case_end();
        process_free(&p);
    }
    fake_server_stop(&s);
    fake_server_free(&s);
}

/* The file appears after the client has begun to wait for it. */
static void rendezvous(void)
{
    struct fake_server s = {0};
    struct process p;
    char path[300], text[400];
    case_begin("a rendezvous file that appears late");
    (void)snprintf(path, sizeof path, "%s/rendezvous.json", folder);
    process_start(&p, &(struct process_setup){.program = CLIENT},
                  CLIENT_WORDS("--rendezvous", path, "--max-tokens", "1", "x"));
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
    client_check_output(&p, "w0\n", NULL);
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

static double real_of(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Lengths are exact, the first request is a warm-up, and the rate is kept. */
static void bench_random(void)
{
    struct fake_server s = {0};
    struct process p;
    case_begin("bench of random prompts at a rate");
    fake_server_start(&s, "ipc://@lockstep-test-client");
    client_start(&p, &s, NULL,
                 CLIENT_WORDS("bench", "--endpoint", "E", "--num-prompts", "40", "--random-input-len", "17",
                              "--random-output-len", "5", "--request-rate", "100", "--json"));
    process_wait(&p);
    fake_server_stop(&s);
    json_t *o = json_loads(p.text[PROCESS_OUT], 0, NULL);
    client_check_output(&p, NULL, NULL);
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
                   "request %d has other lengths", i);
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
    case_begin("bench of a dataset, some of whose requests fail");
    files_write(folder, "set.jsonl", lines, strlen(lines));
    (void)snprintf(path, sizeof path, "%s/set.jsonl", folder);
    fake_server_start(&s, "tcp://127.0.0.1:*");
    client_start(&p, &s, NULL,
                 CLIENT_WORDS("bench", "--endpoint", "E", "--dataset", path, "--num-prompts", "7", "--max-concurrency",
                              "2", "--progress", "never"));
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
    client_start(&p, &s, NULL, CLIENT_WORDS("top", "--endpoint", "E", "--once", "--interval", "0.5"));
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(strstr(p.text[PROCESS_OUT], "3 running, 2 waiting") != NULL &&
                   strstr(p.text[PROCESS_OUT], "25.0 %") != NULL && strstr(p.text[PROCESS_OUT], "\x1b") == NULL &&
                   strstr(p.text[PROCESS_OUT], "\n0                     7            -            -            -\n") !=
                       NULL,
               "%s", p.text[PROCESS_OUT]);
    double rate = 0; /* 100 tokens between two readings, which are slightly more than 0.5 s apart */
    const char *at = strstr(p.text[PROCESS_OUT], "prompt, ");
    case_check(at != NULL && sscanf(at, "prompt, %lf generated", &rate) == 1 && rate > 20 && rate <= 200,
               "%.1f tokens/s", rate);
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

/* Rank 1 and all histograms have no samples in the interval; rank 0 has 7 steps in it (fake_server.c). */
static void top_of_idle(void)
{
    static char metrics[] = "lockstep_rank_steps_total{rank=\"1\"} 20\nlockstep_rank_timed_steps_total{rank=\"1\"} 10\n"
                            "lockstep_rank_step_seconds_total{rank=\"1\"} 0.05\n"
                            "lockstep_rank_all_reduce_seconds_total{rank=\"1\"} 0.02\n"
                            "vllm:time_to_first_token_seconds_bucket{le=\"0.5\"} 0\n"
                            "vllm:time_to_first_token_seconds_bucket{le=\"1\"} 4\n"
                            "vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 4\n"
                            "vllm:time_to_first_token_seconds_sum 3\nvllm:time_to_first_token_seconds_count 4\n"
                            "lockstep_prompt_tokens_total 1234\nlockstep_request_success_total 1\n";
    struct fake_server s = {.metrics = metrics};
    struct process p;
    case_begin("top of an idle server: values since the start, marked as such");
    fake_server_start(&s, "tcp://127.0.0.1:*");
    client_start(&p, &s, NULL, CLIENT_WORDS("top", "--endpoint", "E", "--once", "--interval", "0.1"));
    process_wait(&p);
    fake_server_stop(&s);
    const char *out = p.text[PROCESS_OUT];
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(strstr(out, "\ntotal      1234 tokens of prompts, 100 generated; 1 request done since the start\n") !=
                   NULL,
               "%s", out);
    case_check(strstr(out, "\nTTFT           750.0 ms     750.0 ms     950.0 ms     995.0 ms  since the start\n") !=
                       NULL &&
                   strstr(out, "\nITL                   -            -            -            -\n") != NULL,
               "%s", out);
    case_check(strstr(out, "\n0                     7            -            -            -\n") != NULL &&
                   strstr(out, "\n1                    20       5.0 ms       2.0 ms       3.0 ms  since the start\n") !=
                       NULL,
               "%s", out);
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

static void top_of_drafts(void)
{
    static const char accepted[] = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
    char metrics[1000];
    struct fake_server s = {.metrics = metrics};
    struct process p;
    case_begin("top of a server with drafts: the share accepted at each position");
    (void)snprintf(
        metrics, sizeof metrics,
        "vllm:spec_decode_num_drafts_total{engine=\"0\"} 300\nvllm:spec_decode_num_drafts_total{engine=\"1\"} "
        "100\nvllm:spec_decode_num_draft_tokens_total{engine=\"0\"} 1000\n"
        "vllm:spec_decode_num_accepted_tokens_total{engine=\"0\"} 508\n"
        "%s{engine=\"0\",position=\"0\"} 200\n%s{engine=\"1\",position=\"0\"} 100\n"
        "%s{engine=\"0\",position=\"1\"} 200\n%s{engine=\"0\",position=\"2\"} 8\n",
        accepted, accepted, accepted, accepted);
    fake_server_start(&s, "tcp://127.0.0.1:*");
    client_start(&p, &s, NULL, CLIENT_WORDS("top", "--endpoint", "E", "--once", "--interval", "0.1"));
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == 0 &&
                   strstr(p.text[PROCESS_OUT],
                          "\ndrafts     508 of 1000 accepted; 2.27 tokens per step with drafts; by position "
                          "75 50 2 %\n") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_OUT]);
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

/* Forty models, half of them loaded; the name of the first would clear the screen. */
static json_t *many_models(void)
{
    json_t *list = json_array();
    for (int i = 0; i < 40; i++) {
        bool ready = i < 20, wanted = i == 30;
        json_t *m = json_pack("{s:s, s:o, s:i, s:i, s:i}", "state",
                              ready    ? "ready"
                              : wanted ? "loading"
                                       : "known",
                              "id", i == 0 ? json_string(HOSTILE_NAME) : json_sprintf("m%02d", i), "bytes",
                              ready ? 1572864 : 0, "running", 0, "waiting", wanted);
        (void)json_object_set_new(m, "replicas", json_integer(i == 18 ? 2 : ready));
        (void)json_object_set_new(m, "idle_s", i == 0 ? json_real(0.5) : ready ? json_integer(100 - i) : json_null());
        (void)json_array_append_new(list, m);
    }
    return list;
}

static void top_of_models(void)
{
    struct fake_server s = {.models = many_models(),
                            .metrics = "lockstep_models_known{endpoint=\"AllModels\"} 40\n"
                                       "lockstep_models_used_bytes{endpoint=\"AllModels\"} 3145728\n"
                                       "lockstep_models_memory_bytes{endpoint=\"AllModels\"} 4194304\n"
                                       "lockstep_model_loads_total{model=\"" HOSTILE_LABEL "\"} 3\n"
                                       "lockstep_models_kv_memory_bytes{endpoint=\"AllModels\"} 2097152\n"
                                       "lockstep_models_kv_free_bytes{endpoint=\"AllModels\"} 1572864\n"
                                       "lockstep_model_kv_bytes{model=\"m19\"} 524288\n"
                                       "lockstep_model_loads_total{model=\"m19\"} 2\n"};
    struct process p;
    case_begin("top of many models: those used last, a count of the rest, no control characters");
    fake_server_start(&s, "tcp://127.0.0.1:*");
    client_start(&p, &s, NULL, CLIENT_WORDS("top", "--endpoint", "E", "--once", "--interval", "0.1"));
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    const char *want = "\nmodels     20 of 40 loaded, 3.0 of 4.0 MiB on a rank; keys and values 0.5 of 2.0\n"
                       "state             bytes keys, values     last use        loads  model\n"
                       "loading               -            -          now            -  m30\n"
                       "ready           1.5 MiB            -        0.5 s            3  ?[2Jevil\"\\?gpj.exe?\n"
                       "ready           1.5 MiB      0.5 MiB       81.0 s            2  m19\n"
                       "ready x2        1.5 MiB            -       82.0 s            -  m18\n";
    case_check(strstr(p.text[PROCESS_OUT], want) != NULL, "%s", p.text[PROCESS_OUT]);
    case_check(strstr(p.text[PROCESS_OUT], "  m06\nand 24 more, 5 of them loaded\n") != NULL, "%s",
               p.text[PROCESS_OUT]);
    case_end();
    json_decref(s.models);
    fake_server_free(&s);
    process_free(&p);
}

static void help(void)
{
    static const char *const commands[] = {"generate",   "send",  "health",   "models", "metrics", "tokenize",
                                           "detokenize", "drain", "shutdown", "bench",  "top"};
    struct process p;
    case_begin("help of the program and of every command");
    process_run(&p, &(struct process_setup){.program = CLIENT}, CLIENT_WORDS("--help"));
    case_check(p.status == 0 && p.bytes[PROCESS_ERR] == 0, "status %d", p.status);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        struct process one;
        char usage[64];
        case_check(strstr(p.text[PROCESS_OUT], commands[i]) != NULL, "%s is not in the overview", commands[i]);
        process_run(&one, &(struct process_setup){.program = CLIENT}, CLIENT_WORDS(commands[i], "--help"));
        (void)snprintf(usage, sizeof usage, "Usage: lockstep-client %s", commands[i]);
        case_check(one.status == 0 && strstr(one.text[PROCESS_OUT], usage) == one.text[PROCESS_OUT] &&
                       strstr(one.text[PROCESS_OUT], "--rendezvous FILE") != NULL,
                   "%s: %s", commands[i], one.text[PROCESS_OUT]);
        process_free(&one);
    }
    case_end();
    process_free(&p);
}

/* The dynamic loader lists the libraries that it would load. */
static void libraries(void)
{
    struct process p;
    case_begin("neither MPI nor CUDA is needed");
    process_run(&p, &(struct process_setup){.program = CLIENT, .env = CLIENT_WORDS("LD_TRACE_LOADED_OBJECTS=1")},
                CLIENT_WORDS("x"));
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
    interrupt(SIGINT);
    interrupt(SIGTERM);
    terminal();
    fails_partly();
    slips();
    unknown_option();
    misplaced_command();
    unknown_variable();
    nobody();
    curve();
    rendezvous();
    bench_random();
    bench_dataset();
    top();
    top_of_idle();
    top_of_drafts();
    top_of_models();
    help();
    libraries();
    files_remove_dir(folder);
    return cases_done();
}
