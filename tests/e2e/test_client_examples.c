/* tests/e2e/test_client_examples.c - lockstep-client against a fake server, as a table of options, sent message, output
 * and exit status. */
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/client.h"

#include <stdlib.h>
#include <string.h>

struct example {
    const char *name;
    const char *argument[40];
    const char *input;   /* standard input */
    int status;          /* expected */
    const char *out;     /* the whole of standard output; NULL: not checked */
    const char *words;   /* expected in standard error, which is one line; NULL: it is empty */
    const char *request; /* JSON: members that the last message other than a cancel must have; NULL: not checked */
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
    {"words after --",
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
    {"a missing answer",
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
    {"drain", {"drain", "--endpoint", "E"}, NULL, 0, NULL, NULL, "{\"op\": \"drain\"}"},
    {"shutdown", {"shutdown", "--endpoint", "E"}, NULL, 0, NULL, NULL, "{\"op\": \"shutdown\"}"},
    {"an operation without an answer",
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
    {"raw requests, one of which fails",
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
    {"an invalid endpoint",
     {"--endpoint", "nowhere", "x"},
     NULL,
     ERR_USAGE,
     "",
     "found \"nowhere\", expected tcp://ADDRESS:PORT",
     NULL},
    {"an invalid number",
     {"--endpoint", "E", "--max-tokens", "ten", "x"},
     NULL,
     ERR_USAGE,
     "",
     "--max-tokens: found \"ten\"",
     NULL},
    {"an infinite number",
     {"--endpoint", "E", "--top-p", "inf", "x"},
     NULL,
     ERR_USAGE,
     "",
     "--top-p: found \"inf\"",
     NULL},
    {"invalid ids", {"--endpoint", "E", "--prompt-ids", "1,,2"}, NULL, ERR_USAGE, "", "expected token ids", NULL},
    {"an invalid bias", {"--endpoint", "E", "--logit-bias", "5", "x"}, NULL, ERR_USAGE, "", "expected ID:BIAS", NULL},
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
    {"a missing file of requests",
     {"send", "--endpoint", "E", "/nowhere/r.jsonl"},
     NULL,
     ERR_IO,
     "",
     "/nowhere/r.jsonl",
     NULL},
};

/* Tells whether every member of `want` is in `have`. */
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

static void run_example(const struct example *x)
{
    struct fake_server s = {0};
    struct process p;
    case_begin("%s", x->name);
    fake_server_start(&s, "tcp://127.0.0.1:*");
    client_start(&p, &s, &(struct process_setup){.input = x->input}, x->argument);
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == x->status, "status %d, expected %d: %s", p.status, x->status, p.text[PROCESS_ERR]);
    case_check(process_in_time(p.seconds, CLIENT_SECONDS / 4), "took %.1f s", p.seconds);
    client_check_output(&p, x->out, x->words);
    if (x->request != NULL) {
        json_t *want = json_loads(x->request, 0, NULL);
        char *have = json_dumps(client_last_request(&s), JSON_COMPACT);
        case_check(want != NULL && contains(client_last_request(&s), want), "sent %s", have != NULL ? have : "nothing");
        free(have);
        json_decref(want);
    }
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

int main(void)
{
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++)
        run_example(&examples[i]);
    return cases_done();
}
