/* tests/e2e/test_gateway_doors.c - paths of SageMaker, Text Generation Inference and Triton at lockstep-gateway, and
 * those that manage models, in front of a fake server. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/front.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ENDPOINT "/endpoints/any/invocations"
#define SHORT    "\"parameters\":{\"max_new_tokens\":2}"
#define GREEDY   "\"parameters\":{\"max_new_tokens\":2,\"temperature\":0}"

static struct fake_server fake;
static struct web_gateway gate;

static void passes(const char *path, const char *fields, const char *body, const char *message, const char *answer)
{
    front_passes(&fake, &gate, path, fields, body, message, FRONT_PARTS(answer));
}

/* ---------------------------------------------------------------- SageMaker */

static void bodies(void)
{
    static const char *const paths[] = {"/invocations", ENDPOINT, "/models/fake/invoke"};
    for (int i = 0; i < 3; i++) {
        bool named = i == 2;
        passes(paths[i], "", "{\"inputs\":\"a\"," SHORT "}", "{\"inputs\":\"a\"," GREEDY "}",
               "{\"generated_text\":\"w0 w1\"}");
        passes(paths[i], "Content-Type: text/plain\r\n", "Once",
               "{\"inputs\":\"Once\",\"parameters\":{\"top_k\":50,\"max_new_tokens\":256}}",
               "[{\"generated_text\":\"Oncew0");
        passes(paths[i], "", "{\"text\":[\"a\"],\"seq_length\":4}",
               "{\"top_k\":50,\"prompt\":\"a\",\"max_tokens\":2,\"echo\":true}", "{\"outputs\":[\"w0 w1\"]}");
        passes(paths[i], "", "{\"prompt\":\"a\",\"max_tokens\":1}", "{\"prompt\":\"a\",\"max_tokens\":1}",
               "\"object\":\"text_completion\"");
        passes(paths[i], "X-Amzn-SageMaker-Target-Model: fake.tar.gz\r\n",
               named ? "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1}"
                     : "{\"model\":\"other\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1}",
               "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
               "\"object\":\"chat.completion\"");
    }
    front_refuses(&gate, "/invocations", "", "{\"max_tokens\":1}", 400,
                  FRONT_PARTS("{\"code\":400,", "expected one of messages, prompt, inputs, text"));
    front_refuses(&gate, "/invocations", "", "{\"prompt\":\"refuse\"}", 400, FRONT_PARTS("{\"error\":{\"message\":"));
    front_refuses(&gate, "/models/other/invoke", "", "{\"inputs\":\"a\"}", 404, FRONT_PARTS("{\"code\":404,"));
}

/* Requests as boto3 makes them. */
static void endpoints(void)
{
    struct web_answer a;
    static const struct {
        const char *what, *fields, *body, *head;
        int status;
        const char *part;
    } asked[] = {
        {"attributes are returned", "X-Amzn-SageMaker-Custom-Attributes: a=b\r\n", "{\"inputs\":\"a\"," SHORT "}",
         "\r\nx-amzn-sagemaker-custom-attributes: a=b\r\n", 200, "{\"generated_text\":\"w0 w1\"}"},
        {"the model's errors", "", "{\"inputs\":7}", "\r\nx-amzn-errortype: ModelError\r\n", 424,
         "{\"Message\":\"inputs: found an integer, expected a text or a list of texts\",\"OriginalStatusCode\":400,"
         "\"OriginalMessage\":\""},
        {"an unknown model", "X-Amzn-SageMaker-Target-Model: other\r\n", "{\"inputs\":\"a\"}",
         "\r\nx-amzn-errortype: ValidationError\r\n", 400,
         "{\"Message\":\"model: \\\"other\\\" is not served here, expected \\\"fake\\\"\"}"},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        case_begin("an endpoint: %s", asked[i].what);
        web_ask(&gate, "POST", ENDPOINT, asked[i].fields, asked[i].body, &a);
        front_check(&a, asked[i].status, asked[i].part);
        case_check(strstr(a.head, asked[i].head) != NULL, "%s", a.head);
        web_free(&a);
        case_end();
    }
}

/* Joins the payloads of a stream's messages. false: a length is invalid. */
static bool payloads(const struct web_answer *a, char *all, size_t bytes, int *n)
{
    size_t used = 0;
    *n = 0;
    for (size_t at = 0; at < a->bytes; ++*n) {
        const unsigned char *m = (const unsigned char *)a->body + at;
        size_t left = a->bytes - at;
        size_t total = left < 16 ? 0 : (size_t)m[0] << 24 | (size_t)m[1] << 16 | (size_t)m[2] << 8 | m[3];
        size_t head = left < 16 ? 0 : (size_t)m[4] << 24 | (size_t)m[5] << 16 | (size_t)m[6] << 8 | m[7];
        if (total < 16 + head || total > left)
            return false;
        used +=
            (size_t)snprintf(all + used, bytes - used, "%.*s", (int)(total - head - 16), (const char *)m + 12 + head);
        at += total;
    }
    return true;
}

static void endpoint_streams(void)
{
    static const struct {
        const char *body;
        int n;
        const char *type, *part;
    } asked[] = {
        {"{\"inputs\":\"a\"," SHORT ",\"stream\":true}", 2, "application/jsonlines", "\"generated_text\":\"w0 w1\""},
        {"{\"prompt\":\"a\",\"max_tokens\":2,\"stream\":true}", 4, "text/event-stream; charset=utf-8",
         "data: [DONE]\n\n"},
        {"{\"inputs\":\"a\"," SHORT "}", 1, "application/json", "{\"generated_text\":\"w0 w1\"}"},
        {"{\"inputs\":\"part\",\"stream\":true}", 3, "application/jsonlines",
         "{\"ErrorCode\":\"service_unavailable\",\"Message\":\"shutting down\"}"},
    };
    struct web_answer a;
    char all[8000], head[200];
    int n = 0;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        case_begin("an endpoint's stream: %s", asked[i].body);
        web_ask(&gate, "POST", ENDPOINT "-response-stream", "", asked[i].body, &a);
        (void)snprintf(head, sizeof head, "X-Amzn-SageMaker-Content-Type: %s\r\n", asked[i].type);
        case_check(a.status == 200 && strstr(a.head, head) != NULL &&
                       strstr(a.head, "Content-Type: application/vnd.amazon.eventstream\r\n") != NULL,
                   "%s", a.head);
        case_check(payloads(&a, all, sizeof all, &n) && n == asked[i].n && strstr(all, asked[i].part) != NULL,
                   "%d messages: %s", n, all);
        web_free(&a);
        case_end();
    }
    case_begin("an endpoint's stream that is refused is an answer with a status");
    web_ask(&gate, "POST", ENDPOINT "-response-stream", "", "{\"inputs\":\"refuse\",\"stream\":true}", &a);
    front_check(&a, 424, "{\"Message\":\"prompt: a text that is refused\",\"OriginalStatusCode\":400,");
    web_free(&a);
    case_end();
}

/* ---------------------------------------------------------------- Text Generation Inference */

static void tgi(void)
{
    passes("/generate", "", "{\"inputs\":\"a\"," SHORT ",\"stream\":true}", "{\"inputs\":\"a\"," GREEDY "}",
           "{\"generated_text\":\"w0 w1\"}");
    passes("/generate", "", "{\"inputs\":\"a\"}",
           "{\"inputs\":\"a\",\"parameters\":{\"temperature\":0,\"max_new_tokens\":100}}", "{\"generated_text\":\"w0");
    passes("/generate", "",
           "{\"inputs\":\"a\",\"parameters\":{\"top_p\":0.5,\"max_new_tokens\":1,\"stop\":[\"q\"],\"details\":true}}",
           "{\"inputs\":\"a\",\"parameters\":{\"top_p\":0.5,\"max_new_tokens\":1,\"stop\":[\"q\"],\"include_stop_str_"
           "in_output\":true},"
           "\"logprobs\":0}",
           "\"tokens\":[{\"id\":0,\"text\":\"w0\",\"logprob\":-0.5,\"special\":false}]");
    static const char formed[] = "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":1,\"response_format\":{\"type\":"
                                 "\"json_schema\",\"json_schema\":{\"name\":\"grammar\",\"schema\":{\"type\":"
                                 "\"object\"}}},\"temperature\":0}}";
    passes("/generate", "",
           "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":1,\"grammar\":{\"type\":\"json\",\"value\":{\"type\":"
           "\"object\"}}}}",
           formed, "w0");
    passes("/generate", "",
           "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":1,\"grammar\":{\"type\":\"json\",\"value\":"
           "\"{\\\"type\\\":\\\"object\\\"}\"}}}",
           formed, "w0");
    passes("/generate", "",
           "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":1,\"grammar\":{\"type\":\"regex\",\"value\":\"a+\"}}}",
           "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":1,\"structured_outputs\":{\"regex\":\"a+\"},"
           "\"temperature\":0}}",
           "w0");
    front_refuses(&gate, "/generate", "",
                  "{\"inputs\":\"a\",\"parameters\":{\"grammar\":{\"type\":\"json\",\"value\":\"{\"}}}", 422,
                  FRONT_PARTS("{\"error\":\"parameters.grammar.value: found a string, expected a JSON schema\""));
    front_refuses(&gate, "/generate", "", "{\"inputs\":\"a\",\"parameters\":{\"grammar\":{\"type\":\"x\"}}}", 422,
                  FRONT_PARTS("{\"error\":\"parameters.grammar: found an object, expected one of the types json"));
    front_refuses(&gate, "/generate", "",
                  "{\"inputs\":\"refuse parameters.response_format\",\"parameters\":{\"grammar\":{\"type\":\"json\","
                  "\"value\":{}}}}",
                  422, FRONT_PARTS("{\"error\":\"parameters.grammar: refused\""));
    front_refuses(&gate, "/generate", "", "{\"inputs\":\"a\",\"parameters\":{\"truncate\":5}}", 422,
                  FRONT_PARTS("{\"error\":\"truncate: not implemented: inputs are read whole"));
    passes("/", "", "{\"inputs\":\"a\"," SHORT "}", "{\"inputs\":\"a\"," GREEDY "}",
           "[{\"generated_text\":\"w0 w1\"}]");
    front_passes(
        &fake, &gate, "/generate_stream", "", "{\"inputs\":\"a\"," SHORT "}",
        "{\"inputs\":\"a\"," GREEDY ",\"stream\":true,\"logprobs\":0}",
        FRONT_PARTS("data: {\"index\":1,\"token\":{\"id\":0,\"text\":\"w0\",\"logprob\":-0.5,\"special\":false},"
                    "\"generated_text\":null,\"details\":null}\n\n",
                    "data: {\"index\":2,\"token\":{\"id\":1,\"text\":\" w1\",\"logprob\":-0.5,\"special\":false},"
                    "\"generated_text\":\"w0 w1\",\"details\":{\"finish_reason\":\"length\",\"generated_tokens\":2,"));
    front_refuses(&gate, "/generate", "", "{\"inputs\":\"refuse\"}", 422,
                  FRONT_PARTS("{\"error\":\"prompt: a text that is refused\",\"error_type\":\"validation\"}"));
    struct web_answer a;
    case_begin("a stream that fails ends with an error, and /info");
    web_ask(&gate, "POST", "/generate_stream", "", "{\"inputs\":\"part\"}", &a);
    front_check(&a, 200, "data: {\"error\":\"shutting down\",\"error_type\":\"unhealthy\"}\n\n");
    web_free(&a);
    web_ask(&gate, "GET", "/info", "", "", &a);
    front_check(&a, 200, "{\"model_id\":\"fake\",\"model_sha\":null,");
    web_free(&a);
    case_end();
}

/* ---------------------------------------------------------------- Triton */

static void triton(void)
{
    static const char generate[] = "/v2/models/fake/generate", text[] = "\"text_output\":\"w0 w1 w2 w3 w4 w5";
    passes(generate, "",
           "{\"id\":\"7\",\"text_input\":\"a\",\"stop_words\":[\"q\"],\"bad_words\":\"\",\"pad_id\":2,\"top_k\":1}",
           "{\"text_input\":\"a\",\"stop\":[\"q\"],\"top_k\":1}",
           "{\"id\":\"7\",\"model_name\":\"fake\",\"model_version\":\"1\",");
    passes("/v2/models/fake/versions/1/generate", "",
           "{\"text_input\":\"a\",\"parameters\":{\"stream\":false,\"temperature\":0,\"stop_words\":[]}}",
           "{\"text_input\":\"a\",\"temperature\":0}", text);
    front_passes(&fake, &gate, "/v2/models/fake/generate_stream", "",
                 "{\"text_input\":\"a\",\"max_tokens\":2,\"stream\":true}",
                 "{\"text_input\":\"a\",\"max_tokens\":2,\"stream\":true}",
                 FRONT_PARTS("data: {\"model_name\":\"fake\",\"model_version\":\"1\",\"text_output\":\"w0\"}\n\n",
                             "\"text_output\":\" w1\"}\n\n"));
    front_refuses(&gate, generate, "", "{\"text_input\":\"a\",\"stream\":true}", 400,
                  FRONT_PARTS("{\"error\":\"stream: found a boolean"));
    front_refuses(&gate, generate, "", "{\"text_input\":[\"a\"]}", 400,
                  FRONT_PARTS("{\"error\":\"text_input: found an array"));
    front_refuses(&gate, generate, "", "{\"text_input\":\"refuse\"}", 400, FRONT_PARTS("{\"error\":\"prompt: a text"));
    front_refuses(&gate, "/v2/models/x/generate", "", "{\"text_input\":\"a\"}", 404, FRONT_PARTS("{\"error\":"));
    front_refuses(&gate, "/v2/repository/models/x/load", "", "{}", 400,
                  FRONT_PARTS("{\"error\":\"loading models is not"));
    front_refuses(&gate, "/v2/repository/models/fake/unload", "", "{}", 400,
                  FRONT_PARTS("{\"error\":\"unloading models"));
}

/* ---------------------------------------------------------------- metadata and statistics */

/* Unknown paths and wrong methods: the error's form is that of the path's API. */
static void forms_of_errors(void)
{
    static const struct {
        const char *method, *path, *fields;
        int status;
        const char *begin, *head;
    } asked[] = {
        {"GET", "/v2/nothing", "", 404, "{\"error\":\"no such path: GET /v2/nothing\"}", ""},
        {"PUT", "/v2/models/fake/generate", "", 405, "{\"error\":\"PUT is not served here, expected POST, GET\"}",
         "\r\nAllow: POST, GET\r\n"},
        {"DELETE", "/v2", "", 405, "{\"error\":\"DELETE is", ""},
        {"GET", "/v2x", "", 404, "{\"error\":{\"message\":", ""},
        {"GET", "/v1/messages", "", 405, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",",
         "\r\nrequest-id: "},
        {"POST", "/v1/messages/batches", "", 404, "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",",
         "\r\nrequest-id: "},
        {"GET", "/v1/files", "anthropic-version: 2023-06-01\r\n", 404, "{\"type\":\"error\",", "\r\nrequest-id: "},
        {"GET", "/v1/files", "", 404, "{\"error\":{\"message\":\"no such path: GET /v1/files\",", ""},
        {"GET", "/generate", "", 405, "{\"error\":\"GET is not served here, expected POST\",\"error_type\":", ""},
        {"GET", "/generate_stream", "", 405, "{\"error\":\"GET is", ""},
        {"GET", "/endpoints/e/invocations", "", 400, "{\"Message\":\"GET is not served here",
         "\r\nx-amzn-errortype: ValidationError\r\n"},
        {"POST", "/endpoints/e", "", 400, "{\"Message\":\"no such path: POST", ""},
        {"GET", "/predictions/fake", "", 405, "{\"code\":405,", ""},
        {"PATCH", "/models/fake", "", 405, "{\"code\":405,", ""},
    };
    struct web_answer a;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        case_begin("the error of %s %s", asked[i].method, asked[i].path);
        web_ask(&gate, asked[i].method, asked[i].path, asked[i].fields, "", &a);
        case_check(a.status == asked[i].status && strncmp(a.body, asked[i].begin, strlen(asked[i].begin)) == 0, "%d %s",
                   a.status, a.body);
        case_check(strstr(a.head, asked[i].head) != NULL, "%s", a.head);
        web_free(&a);
        case_end();
    }
}

/* Requests of one path with several methods are one figure: with two of the same name no figure could be read. */
static void figures_of_paths(void)
{
    static const char figure[] = "\nlockstep_gateway_requests_total{route=\"/models/{}\",end=\"4xx\"}";
    struct web_answer a;
    case_begin("the figures of a path with several methods");
    web_ask(&gate, "GET", "/metrics", "", "", &a);
    const char *first = strstr(a.body, figure);
    case_check(first != NULL && strstr(first + 1, figure) == NULL, "%s", a.body);
    web_free(&a);
    case_end();
}

static void views(void)
{
    static const struct {
        const char *method, *path, *body;
        int status;
        const char *answer;
    } asked[] = {
        {"GET", "/ping", "", 200, "{\"health\":\"healthy!\"}"},
        {"GET", "/models", "", 200,
         "{\"models\":[{\"modelName\":\"fake\",\"modelUrl\":\"fake\",\"status\":\"READY\"}]}"},
        {"GET", "/models?next_page_token=1&limit=5", "", 200, "{\"models\":[]}"},
        {"GET", "/models/fake", "", 200, "{\"modelName\":\"fake\","},
        {"GET", "/models/other", "", 404,
         "\"error\":\"the model \\\"other\\\" is not served here, expected \\\"fake\\\"\"}"},
        {"POST", "/models", "{\"model_name\":\"fake\",\"url\":\"/opt\"}", 409, "is loaded already"},
        {"POST", "/models", "{\"model_name\":\"x\",\"url\":\"/opt\"}", 400, "loading models is not implemented"},
        {"POST", "/models?url=x&model_name=y", "", 400, "loading models is not implemented"},
        {"PUT", "/models/fake?min_worker=2", "", 400, "scaling models is not implemented"},
        {"DELETE", "/models/fake", "", 400, "unloading models is not implemented"},
        {"DELETE", "/models/other", "", 404, "is not served here"},
        {"GET", "/v2", "", 200, "{\"name\":\"lockstep-gateway\",\"version\":"},
        {"GET", "/v2/health/live", "", 200, ""},
        {"GET", "/v2/health/ready", "", 200, ""},
        {"GET", "/v2/models/fake", "", 200,
         "{\"name\":\"fake\",\"versions\":[\"1\"],\"platform\":\"lockstep\",\"inputs\":[{"},
        {"GET", "/v2/models/x", "", 404, "{\"error\":\"Request for unknown model: 'x' is not found\"}"},
        {"GET", "/v2/models/fake/ready", "", 200, ""},
        {"GET", "/v2/models/x/ready", "", 400, ""},
        {"POST", "/v2/models/fake/infer", "{}", 400, "{\"error\":\"tensors are not supported: expected"},
        {"POST", "/v2/models/x/infer", "{}", 404, "{\"error\":\"Request for unknown model: 'x' is not found\"}"},
        {"GET", "/v2/models/fake/config", "", 200, "\"decoupled\":true"},
        {"GET", "/v2/models/stats", "", 200,
         "{\"model_stats\":[{\"name\":\"fake\",\"version\":\"1\",\"last_inference\":"},
        {"POST", "/v2/repository/index", "{}", 200,
         "[{\"name\":\"fake\",\"version\":\"1\",\"state\":\"READY\",\"reason\":\"\"}]"},
        {"POST", "/v2/repository/models/fake/load", "{}", 200, ""},
    };
    struct web_answer a;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        case_begin("%s %s", asked[i].method, asked[i].path);
        web_ask(&gate, asked[i].method, asked[i].path, "", asked[i].body, &a);
        front_check(&a, asked[i].status, asked[i].answer);
        web_free(&a);
        case_end();
    }
}

/* The statistics count good and bad requests. */
static void statistics(void)
{
    struct web_answer a;
    json_t *before = NULL, *after = NULL;
    static const char *const names[] = {"success", "fail"};
    case_begin("statistics count");
    web_ask(&gate, "GET", "/v2/models/fake/stats", "", "", &a);
    before = json_loads(a.body, 0, NULL);
    web_free(&a);
    web_ask(&gate, "POST", "/v2/models/fake/generate", "", "{\"text_input\":\"a\"}", &a);
    web_free(&a);
    web_ask(&gate, "POST", "/v2/models/fake/generate", "", "{\"text_input\":\"refuse\"}", &a);
    web_free(&a);
    web_ask(&gate, "GET", "/v2/models/fake/stats", "", "", &a);
    after = json_loads(a.body, 0, NULL);
    for (int i = 0; i < 2; i++) {
        json_int_t count[2] = {-1, -1};
        (void)json_unpack(before, "{s:[{s:{s:{s:I}}}]}", "model_stats", "inference_stats", names[i], "count",
                          &count[0]);
        (void)json_unpack(after, "{s:[{s:{s:{s:I}}}]}", "model_stats", "inference_stats", names[i], "count", &count[1]);
        case_check(count[0] >= 0 && count[1] == count[0] + 1, "%s: %lld, then %lld: %s", names[i], (long long)count[0],
                   (long long)count[1], a.body);
    }
    web_free(&a);
    json_decref(before);
    json_decref(after);
    case_end();
}

/* With keys, the name of an AWS access key is the key: boto3 can send no other. */
static void keys(void)
{
    char dir[256], path[300];
    struct web_answer a;
    static const struct {
        const char *fields;
        int status;
    } asked[] = {
        {"", 403},
        {"Authorization: AWS4-HMAC-SHA256 Credential=one-key/20261124/us-east-1/sagemaker/aws4_request, "
         "Signature=0\r\n",
         200},
        {"Authorization: AWS4-HMAC-SHA256 Credential=one-ke/20261124/us-east-1/sagemaker/aws4_request\r\n", 403},
        {"Authorization: AWS4-HMAC-SHA256 Credential=/20261124\r\n", 403}};
    files_make_dir(dir);
    files_write_text(dir, "keys", "one-key\n");
    (void)snprintf(path, sizeof path, "%s/keys", dir);
    (void)chmod(path, 0600);
    web_start(&gate, true, FRONT_PARTS("--backend", fake.endpoint, "--api-keys", path));
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        case_begin("an endpoint with keys: request %zu gets %d", i, asked[i].status);
        web_ask(&gate, "POST", ENDPOINT, asked[i].fields, "{\"inputs\":\"a\"," SHORT "}", &a);
        front_check(&a, asked[i].status, "");
        web_free(&a);
        case_end();
    }
    front_stop(&gate);
    files_remove_dir(dir);
}

int main(void)
{
    front_begin(&fake, &gate);
    bodies();
    endpoints();
    endpoint_streams();
    tgi();
    triton();
    views();
    figures_of_paths();
    forms_of_errors();
    statistics();
    front_stop(&gate);
    keys();
    front_end(&fake);
    return cases_done();
}
