/* tests/e2e/test_gateway.c - lockstep-gateway in front of fake servers: translation of requests and answers, errors,
 * clients that leave; the page and the options. */
#include "base/clock.h"
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/front.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS(...)        \
    (const char *[])      \
    {                     \
        __VA_ARGS__, NULL \
    }

static struct fake_server fake;
static struct web_gateway gate;

static void begin(const char *const *more)
{
    const char *all[40] = {"--backend", fake.endpoint};
    int n = 2;
    for (; *more != NULL && n < 39; more++)
        all[n++] = *more;
    web_start(&gate, true, all);
}

/* ---------------------------------------------------------------- requests and answers */

/* The message to the backend that a body becomes. */
static void passed(const char *path, const char *body, const char *message)
{
    front_passes(&fake, &gate, path, "", body, message, FRONT_PARTS("\"id\":"));
}

static void refused(const char *path, const char *body, int status, const char *part)
{
    front_refuses(&gate, path, "", body, status, FRONT_PARTS("{\"error\":{\"message\":", part));
}

static void packed(void)
{
    struct web_answer a;
    case_begin("a compressed body");
    web_ask(&gate, "POST", "/v1/completions", "Content-Encoding: gzip\r\n", "{\"prompt\":\"a\"}", &a);
    front_check(&a, 415, "Content-Encoding: found \\\"gzip\\\", expected none");
    web_free(&a);
    web_ask(&gate, "POST", "/v1/completions", "Content-Encoding: identity\r\n", "{\"prompt\":\"a\"}", &a);
    front_check(&a, 200, "\"text\":");
    web_free(&a);
    case_end();
}

static void large(void)
{
    struct web_answer a;
    int fd = web_connect(&gate);
    case_begin("too large a body");
    web_say_text(fd, "POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Length: 99999999\r\n\r\n");
    web_hear(fd, &a, 0);
    front_check(&a, 413, "the body is too large: expected at most 16777216 bytes (--max-body)");
    web_free(&a);
    (void)close(fd);
    case_end();
}

static void requests(void)
{
    static const char completions[] = "/v1/completions", chat[] = "/v1/chat/completions";
    passed(completions, "{\"prompt\":\"a\",\"max_tokens\":1}", "{\"prompt\":\"a\",\"max_tokens\":1}");
    passed(
        completions,
        "{\"model\":\"fake\",\"prompt\":\"a\",\"max_tokens\":1,\"user\":\"u\",\"n\":null,\"stop\":[],\"suffix\":null,"
        "\"logit_bias\":{},\"store\":true,\"stream_options\":{\"include_usage\":true},\"best_of\":1}",
        "{\"prompt\":\"a\",\"max_tokens\":1,\"best_of\":1}");
    passed(completions, "{\"prompt\":[1,2],\"max_tokens\":1,\"top_k\":5,\"stop\":[\"x\"],\"echo\":true}",
           "{\"prompt\":[1,2],\"max_tokens\":1,\"top_k\":5,\"stop\":[\"x\"],\"echo\":true}");
    passed(
        chat,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1,\"max_completion_tokens\":1,\"tools\":["
        "],"
        "\"tool_choice\":\"auto\",\"response_format\":{\"type\":\"text\"},\"modalities\":[\"text\"],"
        "\"parallel_tool_calls\":true,\"logprobs\":true,\"top_logprobs\":2}",
        "{\"max_tokens\":1,\"logprobs\":true,\"top_logprobs\":2,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    passed(
        chat,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1,\"tools\":[{\"type\":\"function\"}],"
        "\"tool_choice\":\"auto\",\"response_format\":{\"type\":\"json_object\"},\"chat_template_kwargs\":{\"a\":1}}",
        "{\"max_tokens\":1,\"tools\":[{\"type\":\"function\"}],\"tool_choice\":\"auto\",\"response_format\":{\"type\":"
        "\"json_object\"},\"chat_template_kwargs\":{\"a\":1},\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    passed(chat,
           "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1,\"tools\":[{}],"
           "\"parallel_tool_calls\":false}",
           "{\"max_tokens\":1,\"tools\":[{}],\"parallel_tool_calls\":false,\"messages\":[{"
           "\"role\":\"user\",\"content\":\"x\"}],\"tool_choice\":\"auto\"}");
    /* An answer that is sent back as an assistant's turn, and names of other servers. */
    passed(
        chat,
        "{\"messages\":[{\"role\":\"developer\",\"content\":\"d\"},{\"role\":\"assistant\",\"content\":\"a\","
        "\"refusal\":"
        "null,\"annotations\":[],\"tool_calls\":[],\"reasoning\":\"r\"},{\"role\":\"user\",\"content\":\"x\"}],"
        "\"max_tokens\":1,\"reasoning_effort\":\"high\",\"chat_template_kwargs\":{\"a\":1}}",
        "{\"max_tokens\":1,\"chat_template_kwargs\":{\"a\":1,\"reasoning_effort\":\"high\"},\"messages\":[{\"role\":"
        "\"system\","
        "\"content\":\"d\"},{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"r\"},{\"role\":\"user\","
        "\"content\":\"x\"}]}");
    passed(
        chat,
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\",\"cache_control\":{\"type\":"
        "\"ephemeral\"}},{\"type\":\"text\",\"text\":\"y\"}],\"cache_control\":null}],\"max_tokens\":1}",
        "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},"
        "{\"type\":\"text\",\"text\":\"y\"}]}]}");
    refused(completions, "{\"prompt\":\"refuse\"}", 400, "\"param\":\"prompt\",\"code\":null");
    refused(completions, "{\"max_tokens\":3}", 400, "\"param\":\"prompt\"");
    refused(completions, "{\"prompt\":\"a\",\"messages\":[]}", 400, "\"param\":\"messages\"");
    refused(completions, "{\"prompt\":\"a\",\"op\":\"shutdown\"}", 400, "\"param\":\"op\"");
    refused(completions, "{\"prompt\":\"a\",\"request_id\":\"x\"}", 400, "\"param\":\"request_id\"");
    refused(completions, "{\"prompt\":\"a\",\"stream\":\"yes\"}", 400,
            "stream: found a string, expected true or false");
    refused(completions, "{\"prompt\":\"a\",\"stream_options\":{\"every_usage\":true}}", 400,
            "\"param\":\"stream_options.every_usage\"");
    refused(completions, "{\"prompt\":\"a\",\"stream_options\":{\"continuous_usage_stats\":1}}", 400,
            "continuous_usage_stats: found an integer, expected true or false");
    refused(completions, "{\"prompt\":\"a\",\"stream\":true,\"prompt_logprobs\":0}", 400,
            "\"prompt_logprobs: a stream has none, omit one of the two\"");
    refused(chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":true,\"return_token_ids\":true}",
            400, "\"return_token_ids: a stream has none, omit one of the two\"");
    refused(completions, "{\"prompt\":\"a\",\"stream\":true,\"return_full_text\":true,\"n_probs\":1}", 400,
            "\"echo: a stream has no logprobs of it, omit one of the three\"");
    refused(completions, "{\"prompt\":\"a\",\"stream\":true,\"parameters\":{\"prompt_logprobs\":1}}", 400,
            "\"prompt_logprobs: a stream has none, omit one of the two\"");
    passed(completions, "{\"prompt\":\"a\",\"max_tokens\":1,\"return_token_ids\":true,\"prompt_logprobs\":1}",
           "{\"prompt\":\"a\",\"max_tokens\":1,\"return_token_ids\":true,\"prompt_logprobs\":1}");
    refused(completions, "{\"prompt\":\"a\",\"model\":\"gpt\"}", 404,
            "\"model: \\\"gpt\\\" is not served here, expected \\\"fake\\\"\",\"type\":\"invalid_request_error\","
            "\"param\":\"model\",\"code\":\"model_not_found\"");
    passed(chat, "{\"model\":\"tgi\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1}",
           "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    passed(completions, "{\"model\":\"dummy\",\"prompt\":\"a\",\"max_tokens\":1}",
           "{\"prompt\":\"a\",\"max_tokens\":1}");
    refused(completions, "{\"prompt\":\"a\",\"model\":7}", 400, "model: found an integer, expected a string");
    refused(chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":3}", 400,
            "\"logprobs: found an integer, expected true or false\",\"type\":\"invalid_request_error\","
            "\"param\":\"logprobs\"");
    passed(completions, "{\"prompt\":\"a\",\"max_tokens\":1,\"logprobs\":3}",
           "{\"prompt\":\"a\",\"max_tokens\":1,\"logprobs\":3}");
    refused(completions, "{\"prompt\":\"a\",", 400, "not valid JSON");
    refused(completions, "{\"prompt\":\"a\"} {\"max_tokens\":3}", 400,
            "\"the body: not one JSON value: found more text at byte 15, expected the end\","
            "\"type\":\"invalid_request_error\",\"param\":null");
    refused(completions, "[]", 400, "found an array, expected an object");
    refused(completions, "", 400, "\"invalid_request_error\"");
    passed(chat,
           "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1,\"functions\":[],"
           "\"function_call\":\"none\"}",
           "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    packed();
    large();
    refused("/v1/nothing", "{}", 404, "no such path: POST /v1/nothing");
    refused("/v1/models", "{}", 405, "POST is not served here, expected GET");
}

static json_int_t created_of(char date[40])
{
    struct web_answer a;
    web_ask(&gate, "GET", "/v1/models/fake", "", "", &a);
    const char *at = strstr(a.head, "\r\nDate: ");
    (void)snprintf(date, 40, "%.29s", at != NULL ? at + 8 : "");
    json_t *card = json_loads(a.body, 0, NULL);
    json_int_t created = json_integer_value(json_object_get(card, "created"));
    json_decref(card);
    web_free(&a);
    return created;
}

/* Clients compare the entries of models. */
static void constant(void)
{
    char first[40], now[40];
    case_begin("a model is created at one time");
    json_int_t created = created_of(first), later = created;
    (void)snprintf(now, sizeof now, "%s", first);
    for (double until = seconds_now() + WEB_SECONDS; strcmp(first, now) == 0 && seconds_now() < until; front_nap(0.05))
        later = created_of(now);
    case_check(created > 0 && strcmp(first, now) != 0 && created == later, "%lld, later %lld", (long long)created,
               (long long)later);
    case_end();
}

static void answers(void)
{
    struct web_answer a;
    case_begin("a completion");
    web_ask(&gate, "POST", "/v1/completions", "X-Request-Id: mine\r\n", "{\"prompt\":\"a\",\"max_tokens\":3}", &a);
    front_check(
        &a, 200,
        "\"model\":\"fake\",\"choices\":[{\"index\":0,\"text\":\"w0 w1 w2\",\"logprobs\":null,\"finish_reason\":"
        "\"length\"}],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":3,\"total_tokens\":3,");
    case_check(strstr(a.head, "\r\nx-request-id: mine\r\n") != NULL, "%s", a.head);
    case_check(strncmp(a.body, "{\"id\":\"cmpl-mine\",\"object\":\"text_completion\",\"created\":", 50) == 0, "%s",
               a.body);
    web_free(&a);
    case_end();
    case_begin("a chat");
    web_ask(&gate, "POST", "/v1/chat/completions", "",
            "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":2}", &a);
    front_check(&a, 200,
                "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"w0 w1\",\"refusal\":null,"
                "\"annotations\":[]},\"logprobs\":null,\"finish_reason\":\"length\"}]");
    web_free(&a);
    case_end();
    case_begin("a chat that calls tools");
    web_ask(&gate, "POST", "/v1/chat/completions", "", "{\"messages\":[{\"role\":\"user\",\"content\":\"call\"}]}", &a);
    front_check(&a, 200,
                "\"message\":{\"role\":\"assistant\",\"content\":\"I look.\",\"refusal\":null,\"annotations\":[],"
                "\"reasoning_content\":\"Hm.\",\"tool_calls\":[{\"id\":\"call_");
    front_check(
        &a, 200,
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": \\\"b c\\\"}\"}},{\"id\":");
    front_check(&a, 200, "\"finish_reason\":\"tool_calls\"");
    web_free(&a);
    case_end();
    case_begin("models, one by its name, tokens");
    web_ask(&gate, "GET", "/v1/models", "", "", &a);
    front_check(&a, 200, "{\"object\":\"list\",\"data\":[{\"id\":\"fake\",\"object\":\"model\",");
    web_free(&a);
    web_ask(&gate, "GET", "/v1/models/f%61ke", "", "", &a);
    front_check(&a, 200, "{\"id\":\"fake\",");
    web_free(&a);
    web_ask(&gate, "GET", "/v1/models/org/other", "", "", &a);
    front_check(&a, 404, "\"model_not_found\"");
    web_free(&a);
    web_ask(&gate, "POST", "/tokenize", "", "{\"prompt\":\"x\",\"model\":\"fake\"}", &a);
    front_check(&a, 200, "{\"count\":2,\"max_model_len\":null,\"tokens\":[7,8]");
    web_free(&a);
    web_ask(&gate, "POST", "/detokenize", "", "{\"tokens\":[7,8]}", &a);
    front_check(&a, 200, "{\"prompt\":\"seven eight\"}");
    web_free(&a);
    case_end();
    case_begin("the backend's metrics with its name, and the gateway's own");
    web_ask(&gate, "GET", "/metrics", "", "", &a);
    front_check(&a, 200, "lockstep_num_requests_running{backend=\"tcp://127.0.0.1:");
    front_check(&a, 200, "lockstep_gateway_requests_total{route=\"/v1/models/{}\",end=\"4xx\"} 1\n");
    web_free(&a);
    case_end();
}

#define USAGE(prompt, completion, total) \
    "{\"prompt_tokens\":" #prompt ",\"completion_tokens\":" #completion ",\"total_tokens\":" #total "}}"

/* Checks the body of a stream, except for parts that vary between runs. */
static void streams(void)
{
    struct web_answer a;
    static const char *const want[] = {
        "\"choices\":[{\"index\":0,\"text\":\"w0\",\"logprobs\":null,\"finish_reason\":null}]}\n\n",
        "\"choices\":[{\"index\":0,\"text\":\" w1\",\"logprobs\":null,\"finish_reason\":null}]}\n\n",
        "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"}]}\n\n"};
    case_begin("a stream");
    web_ask(&gate, "POST", "/v1/completions", "", "{\"prompt\":\"a\",\"max_tokens\":2,\"stream\":true}", &a);
    const char *at = a.body;
    for (int i = 0; i < 3 && at != NULL; i++)
        at = strstr(at, want[i]);
    case_check(a.status == 200 && at != NULL && strcmp(a.body + a.bytes - 14, "data: [DONE]\n\n") == 0, "%d %s",
               a.status, a.body);
    case_check(strstr(a.head, "Content-Type: text/event-stream; charset=utf-8\r\n") != NULL &&
                   strstr(a.head, "X-Accel-Buffering: no\r\n") != NULL,
               "%s", a.head);
    case_check(strstr(a.body, "usage") == NULL, "%s", a.body);
    web_free(&a);
    case_end();
    case_begin("a stream with echo that asks for no logprobs");
    web_ask(&gate, "POST", "/v1/completions", "",
            "{\"prompt\":\"a\",\"max_tokens\":1,\"stream\":true,\"echo\":true,\"return_logprob\":false}", &a);
    front_check(&a, 200, "data: [DONE]");
    web_free(&a);
    case_end();
    case_begin("a chat's stream with usage");
    web_ask(&gate, "POST", "/v1/chat/completions", "",
            "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1,\"stream\":true,\"stream_options\":"
            "{\"include_usage\":true}}",
            &a);
    front_check(&a, 200,
                "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":"
                "null}],\"usage\":null}\n\n");
    front_check(&a, 200, "{\"index\":0,\"delta\":{\"content\":\"w0\"},");
    front_check(&a, 200, "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}]");
    front_check(&a, 200, "\"choices\":[],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":1,");
    web_free(&a);
    case_end();
    case_begin("streams with the usage so far");
    web_ask(&gate, "POST", "/v1/chat/completions", "",
            "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":2,\"stream\":true,\"stream_options\":"
            "{\"include_usage\":true,\"continuous_usage_stats\":true}}",
            &a);
    front_check(&a, 200, "\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":" USAGE(9, 0, 9));
    front_check(&a, 200, "\"content\":\"w0\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":" USAGE(9, 1, 10));
    front_check(&a, 200, "\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":" USAGE(9, 2, 11));
    case_check(strstr(a.body, "\"usage\":null") == NULL, "%s", a.body);
    web_free(&a);
    web_ask(&gate, "POST", "/v1/completions", "",
            "{\"prompt\":[1,2],\"max_tokens\":1,\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":true}}",
            &a);
    front_check(&a, 200, "\"text\":\"w0\",\"logprobs\":null,\"finish_reason\":null}],\"usage\":" USAGE(9, 1, 10));
    case_check(strstr(a.body, "\"choices\":[],") == NULL, "%s", a.body);
    web_free(&a);
    case_end();
    case_begin("a stream of calls: first the name, then pieces of the arguments");
    web_ask(&gate, "POST", "/v1/chat/completions", "",
            "{\"messages\":[{\"role\":\"user\",\"content\":\"call\"}],\"stream\":true}", &a);
    static const char *const calls[] = {"{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}",
                                        "\"delta\":{\"reasoning_content\":\"",
                                        "\"delta\":{\"content\":\"",
                                        "\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_",
                                        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":",
                                        "\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"",
                                        "{\"index\":1,\"id\":\"call_",
                                        "\"delta\":{},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}",
                                        "data: [DONE]"};
    at = a.body;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0] && at != NULL; i++)
        at = strstr(at, calls[i]);
    case_check(a.status == 200 && at != NULL && strstr(a.body, "<|") == NULL, "%s", a.body);
    web_free(&a);
    case_end();
    case_begin("a stream that fails ends with an error event");
    web_ask(&gate, "POST", "/v1/completions", "", "{\"prompt\":\"part\",\"stream\":true}", &a);
    front_check(&a, 200,
                "data: {\"error\":{\"message\":\"shutting down\",\"type\":\"service_unavailable\",\"param\":null,"
                "\"code\":null}}\n\ndata: [DONE]\n\n");
    web_free(&a);
    case_end();
    case_begin("one of two choices fails, in one piece and as a stream");
    static const char *const failed[] = {
        "\"index\":0,\"text\":\"", "\"finish_reason\":\"length\"}", "\"index\":1,\"text\":\"",
        "\"finish_reason\":\"error\",\"error\":{\"code\":500,\"message\":\"out of \\\"room\\\"\"}}]"};
    for (int stream = 0; stream < 2; stream++) {
        web_ask(&gate, "POST", "/v1/completions", "",
                stream ? "{\"prompt\":\"partly\",\"n\":2,\"stream\":true}" : "{\"prompt\":\"partly\",\"n\":2}", &a);
        at = a.body;
        for (size_t i = 0; i < sizeof failed / sizeof failed[0] && at != NULL; i++)
            at = strstr(at, failed[i]);
        case_check(a.status == 200 && at != NULL, "%d %s", a.status, a.body);
        web_free(&a);
    }
    case_end();
    case_begin("a stream that is refused is an answer with a status");
    web_ask(&gate, "POST", "/v1/completions", "", "{\"prompt\":\"refuse\",\"stream\":true}", &a);
    front_check(&a, 400, "\"param\":\"prompt\"");
    web_free(&a);
    case_end();
}

/* ---------------------------------------------------------------- clients that leave */

static void leaves(bool stream)
{
    char body[100];
    case_begin("a client that leaves is cancelled, %s", stream ? "streaming" : "waiting");
    int before = fake.n_received;
    int fd = web_connect(&gate);
    (void)snprintf(body, sizeof body, "{\"prompt\":\"wait\",\"stream\":%s}", stream ? "true" : "false");
    web_post(fd, "/v1/completions", "", body);
    double until = seconds_now() + WEB_SECONDS;
    while ((fake.waiting[0] == '\0' || fake.n_received == before) && seconds_now() < until)
        front_nap(0.01);
    (void)close(fd);
    const json_t *message = front_await(&fake, "cancel", stream ? 0 : 0);
    const char *id = json_string_value(json_object_get(message, "request_id"));
    for (; (id == NULL || strcmp(id, fake.waiting) != 0) && seconds_now() < until; front_nap(0.01)) {
        message = front_await(&fake, "cancel", 0);
        id = json_string_value(json_object_get(message, "request_id"));
    }
    case_check(id != NULL && strcmp(id, fake.waiting) == 0, "\"%s\" is cancelled, expected \"%s\"", id, fake.waiting);
    case_end();
}

static void comments(void)
{
    char all[4096] = "";
    case_begin("keep-alive comments while a stream waits");
    int fd = web_connect(&gate);
    web_post(fd, "/v1/completions", "", "{\"prompt\":\"wait\",\"stream\":true}");
    case_check(web_await(fd, ": waiting\n\n", all, sizeof all) && strstr(all, "HTTP/1.1 200 OK\r\n") == all, "%s", all);
    (void)close(fd);
    case_end();
}

/* ---------------------------------------------------------------- the end, the page, options */

/* SIGTERM: open requests finish, no new client is admitted. */
static void graceful(void)
{
    char all[4096] = "";
    front_serve(&fake, "fake");
    begin(WORDS("--comment-interval", "0.1"));
    case_begin("SIGTERM: an open stream finishes, an idle connection ends at once");
    int idle = web_connect(&gate), fd = web_connect(&gate);
    web_post(fd, "/v1/completions", "", "{\"prompt\":\"wait\",\"stream\":true}");
    case_check(web_await(fd, ": waiting", all, sizeof all), "%s", all);
    (void)kill(gate.p.pid, SIGTERM);
    case_check(web_ends(idle, WEB_SECONDS), "the idle connection stays open");
    all[0] = '\0';
    case_check(web_await(fd, ": waiting", all, sizeof all), "the stream has ended: %s", all);
    (void)close(fd);
    (void)close(idle);
    case_check(web_stop(&gate) == 0, "its status is not 0");
    case_end();
    front_end(&fake);
}

/* Answers that do not finish within --grace, or before a second signal, are cut, and the log says so. */
static void cut_short(void)
{
    front_serve(&fake, "fake");
    for (int second = 0; second < 2; second++) {
        char all[4096] = "";
        const char *said =
            second ? "1 requests are cut short, by a second signal\n" : "1 requests are cut short, after --grace\n";
        begin(WORDS("--comment-interval", "0.1", "--grace", second ? "100" : "0.2"));
        case_begin("the log says: %s", said);
        int fd = web_connect(&gate);
        web_post(fd, "/v1/completions", "", "{\"prompt\":\"wait\",\"stream\":true}");
        case_check(web_await(fd, ": waiting", all, sizeof all), "%s", all);
        if (second) {
            (void)kill(gate.p.pid, SIGTERM);
            case_check(web_says(&gate, "ending: 1 connections have 100 s\n"), "%s", gate.p.text[PROCESS_ERR]);
        }
        (void)kill(gate.p.pid, SIGTERM);
        case_check(web_says(&gate, said), "%s", gate.p.text[PROCESS_ERR]);
        (void)close(fd);
        case_check(web_stop(&gate) == 0, "its status is not 0");
        case_end();
    }
    front_end(&fake);
}

/* A browser gets the page and its parts, with headers that forbid foreign scripts. */
static void page(void)
{
    static const struct {
        const char *path, *type, *part;
    } files[] = {
        {"/", "text/html; charset=utf-8", "<script type=\"module\" src=\"page/main.js\">"},
        {"/page/style.css", "text/css; charset=utf-8", ":root {"},
        {"/page/icon.svg", "image/svg+xml", "<svg "},
        {"/page/main.js", "text/javascript; charset=utf-8", "import { ask,"},
        {"/page/ask.js", "text/javascript; charset=utf-8", "export async function ask("},
        {"/page/chat.js", "text/javascript; charset=utf-8", "v1/chat/completions"},
        {"/page/markdown.js", "text/javascript; charset=utf-8", "export class Markdown"},
        {"/page/samples.js", "text/javascript; charset=utf-8", "export class Samples"},
        {"/page/live.js", "text/javascript; charset=utf-8", "export function watch("},
    };
    struct web_answer a;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        case_begin("the page: %s", files[i].path);
        web_ask(&gate, "GET", files[i].path, "", "", &a);
        front_check(&a, 200, files[i].part);
        case_check(strstr(a.head, files[i].type) != NULL, "%s", a.head);
        case_check(strstr(a.head, "\r\nContent-Security-Policy: default-src 'none'; script-src 'self';") != NULL &&
                       strstr(a.head, "\r\nX-Content-Type-Options: nosniff\r\n") != NULL,
                   "%s", a.head);
        case_check(strstr(a.body, "unsafe-") == NULL && strstr(a.body, "innerHTML") == NULL, "%s", a.body);
        web_free(&a);
        case_end();
    }
    case_begin("files that the page does not have");
    web_ask(&gate, "GET", "/page/../routes.c", "", "", &a);
    front_check(&a, 404, "the page has no file ../routes.c");
    web_free(&a);
    case_end();
    web_stop(&gate);
    begin(WORDS("--no-page"));
    case_begin("--no-page: it is not there");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        web_ask(&gate, "GET", files[i].path, "", "", &a);
        bool root = strcmp(files[i].path, "/") == 0; /* exists for another method */
        front_check(&a, root ? 405 : 404, root ? "expected POST" : "no such path");
        web_free(&a);
    }
    case_end();
    web_stop(&gate);
}

static void options(void)
{
    const struct {
        const char *const *words;
        const char *text;
    } bad[] = {
        {WORDS("--listen", "127.0.0.1:0"), "no job named: use --backend FILE"},
        {WORDS("--backend", "tcp://nowhere"), "--backend tcp://nowhere"},
        {WORDS("--backend", "http://a.example"), "expected a file, a folder, tcp://HOST:PORT or ipc:///PATH"},
        {WORDS("--backend", "x", "--allow-origin", "a.example"), "found \"a.example\", expected * or an origin"},
        {WORDS("--backend", "x", "--listen", "80"), "found \"80\", expected HOST:PORT or unix:PATH"},
        {WORDS("--backend", "x", "--api-keys", "/dev/null/x"), "/dev/null/x"},
        {WORDS("--backend", "x", "--max-body", "5"), "--max-body: found \"5\""},
        {WORDS("--bakend", "x"), "--backend"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct process p;
        case_begin("refused: %s", bad[i].text);
        process_run(&p, &(struct process_setup){.program = "lockstep-gateway"}, bad[i].words);
        case_check(p.status != 0 && strstr(p.text[PROCESS_ERR], bad[i].text) != NULL, "status %d: %s", p.status,
                   p.text[PROCESS_ERR]);
        process_free(&p);
        case_end();
    }
}

/* The log says why requests get 503: a wrong path would otherwise look like a job that has not started. */
static void nothing_ready(void)
{
    web_start(&gate, false,
              FRONT_PARTS("--log-times", "--backend", "/nowhere/r.json", "--backend", "/proc/self/net", "--backend",
                          "tcp://127.0.0.1:1"));
    static const char *const said[] = {
        "Z lockstep: warning: no backend is ready, requests get 503: /nowhere/r.json does not exist\n",
        "requests get 503: /proc/self/net has no file *.json\n",
        "requests get 503: backend tcp://127.0.0.1:1 does not answer\n"};
    for (int i = 0; i < 3; i++) {
        case_begin("a gateway without a backend says: %s", said[i]);
        case_check(web_says(&gate, said[i]), "%s", gate.p.text[PROCESS_ERR]);
        case_end();
    }
    (void)web_stop(&gate);
}

/* Its address in place of the server's is a likely mistake. */
static void wrong_client(void)
{
    char endpoint[80];
    struct process p;
    case_begin("lockstep-client at the gateway's address says that it speaks HTTP");
    (void)snprintf(endpoint, sizeof endpoint, "tcp://%s", gate.address);
    process_run(&p, &(struct process_setup){.program = "lockstep-client"},
                WORDS("health", "--endpoint", endpoint, "--connect-timeout", "1"));
    case_check(p.status == ERR_COMM && strstr(p.text[PROCESS_ERR], "lockstep-gateway speaks HTTP") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

int main(void)
{
    front_serve(&fake, "fake");
    begin(WORDS("--comment-interval", "0.1"));
    requests();
    answers();
    constant();
    streams();
    leaves(true);
    leaves(false);
    comments();
    page();
    wrong_client();
    front_end(&fake);
    graceful();
    cut_short();
    nothing_ready();
    options();
    return cases_done();
}
