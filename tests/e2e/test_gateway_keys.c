/* tests/e2e/test_gateway_keys.c - who may ask lockstep-gateway, and what it notes of them: API keys, pages of other
 * origins, the access log. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/front.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct fake_server fake;
static struct web_gateway gate;

/* Metrics have the name of a key. */
static void keys_by_name(void)
{
    struct web_answer a;
    case_begin("requests and tokens are counted by the name of a key");
    web_ask(&gate, "POST", "/v1/completions", "x-api-key: one-key\r\n", "{\"prompt\":\"a\",\"max_tokens\":2}", &a);
    front_check(&a, 200, "");
    web_free(&a);
    web_ask(&gate, "GET", "/metrics", "x-api-key: two-key\r\n", "", &a);
    front_check(&a, 200, "lockstep_gateway_key_requests_total{key=\"ann@site\"} 2\n");
    case_check(strstr(a.body, "lockstep_gateway_key_tokens_total{key=\"ann@site\",kind=\"completion\"} 2\n") != NULL,
               "%s", a.body);
    web_free(&a);
    case_end();
}

/* Asks until the answer has this status. */
static void await_status(const char *fields, int status)
{
    struct web_answer a = {0};
    for (double until = seconds_now() + WEB_SECONDS; a.status != status && seconds_now() < until;) {
        web_free(&a);
        web_ask(&gate, "GET", "/v1/models", fields, "", &a);
    }
    case_check(a.status == status, "%d", a.status);
    web_free(&a);
}

/* A changed file counts without a restart, unless it is not valid. */
static void keys_changed(const char *dir)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/keys", dir);
    case_begin("a changed file of keys is read again");
    files_write_text(dir, "keys", "one-key ann@site\nnew-key\n");
    await_status("x-api-key: new-key\r\n", 200);
    await_status("x-api-key: two-key\r\n", 401);
    case_end();
    case_begin("keys stay if the changed file is not valid");
    files_write_text(dir, "keys", "last-key two names\n");
    case_check(web_says(&gate, "/keys: line 1: expected a key of 1 to 255 characters"), "%s", gate.p.text[PROCESS_ERR]);
    await_status("x-api-key: new-key\r\n", 200);
    files_write_text(dir, "keys", "last-key\n");
    await_status("x-api-key: last-key\r\n", 200);
    case_end();
}

/* Requests that are refused before they are read whole have a line, too, as have addresses from a proxy. */
static void refused_in_log(void)
{
    static const char *const sent[] = {
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: big-1\r\nX-Forwarded-For: 10.1.2.3\r\n"
        "Content-Length: 99999999999\r\n\r\n",
        "GET /unfinished HTTP/1.1\r\nno colon\r\n\r\n", "\x16\x03\x01\r\n\r\n"};
    struct web_answer a;
    case_begin("refused requests are answered, and the gateway goes on");
    for (int i = 0; i < 3; i++) {
        int fd = web_connect(&gate);
        web_say_text(fd, sent[i]);
        web_hear(fd, &a, 0);
        front_check(&a, i == 0 ? 413 : 400, "");
        web_free(&a);
        (void)close(fd);
    }
    case_end();
}

static void keys(void)
{
    struct web_answer a;
    char dir[256], path[300], log[300];
    files_make_dir(dir);
    files_write_text(dir, "keys", "# two\none-key ann@site\n\ntwo-key\n");
    (void)snprintf(path, sizeof path, "%s/keys", dir);
    (void)snprintf(log, sizeof log, "%s/log", dir);
    (void)chmod(path, 0600);
    web_start(&gate, true,
              FRONT_PARTS("--backend", fake.endpoint, "--api-keys", path, "--allow-origin", "https://a.example",
                          "--access-log", log));
    static const struct {
        const char *what, *method, *path, *fields;
        int status;
        const char *head;
    } asked[] = {
        {"no key", "GET", "/v1/models", "", 401, "WWW-Authenticate: Bearer\r\n"},
        {"a wrong key", "GET", "/v1/models", "Authorization: Bearer one-ke\r\n", 401, ""},
        {"an empty key", "GET", "/v1/models", "Authorization: Bearer \r\n", 401, ""},
        {"a key", "GET", "/v1/models", "Authorization: Bearer two-key\r\n", 200, ""},
        {"a wrong key in Anthropic's header", "GET", "/v1/models", "x-api-key: one-ke\r\n", 401, ""},
        {"a key in Anthropic's header", "GET", "/v1/models", "x-api-key: one-key\r\n", 200, ""},
        {"an unknown path without a key", "GET", "/x", "", 401, ""},
        {"metrics without a key", "GET", "/metrics", "", 401, ""},
        {"health without a key", "GET", "/health", "", 200, ""},
        {"another origin", "GET", "/health", "Origin: https://b.example\r\n", 403, ""},
        {"a page of the gateway itself", "GET", "/health", "Origin: http://test\r\n", 200, ""},
        {"the origin", "GET", "/health", "Origin: https://a.example\r\n", 200,
         "Access-Control-Allow-Origin: https://a.example\r\n"},
        {"a browser's preflight request", "OPTIONS", "/v1/models",
         "Origin: https://a.example\r\nAccess-Control-Request-Headers: authorization\r\n", 204,
         "Access-Control-Allow-Headers: authorization\r\n"},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        case_begin("%s", asked[i].what);
        web_ask(&gate, asked[i].method, asked[i].path, asked[i].fields, "", &a);
        case_check(a.status == asked[i].status && strstr(a.head, asked[i].head) != NULL, "%s", a.head);
        if (asked[i].head[0] == '\0')
            case_check(strstr(a.head, "Access-Control") == NULL, "%s", a.head);
        web_free(&a);
        case_end();
    }
    case_begin("a page behind a proxy that replaces Host is refused with both names");
    web_ask(&gate, "GET", "/health", "Origin: https://test:8443\r\n", "", &a);
    front_check(&a, 403, "pages of https://test:8443 are not served, found the Host \\\"test\\\" (a proxy has to pass");
    web_free(&a);
    case_end();
    case_begin("a refused key is named by its header");
    web_ask(&gate, "GET", "/v1/models", "x-api-key: no\r\n", "", &a);
    front_check(&a, 401, "\"x-api-key: not one of the gateway's keys, expected \\\"x-api-key: KEY\\\"\"");
    web_free(&a);
    web_ask(&gate, "GET", "/v1/models", "", "", &a);
    front_check(&a, 401, "\"no key: expected \\\"Authorization: Bearer KEY\\\" or \\\"x-api-key: KEY\\\"\"");
    web_free(&a);
    case_end();
    keys_by_name();
    keys_changed(dir);
    refused_in_log();
    case_begin("the access log has a line for each, and ends with the gateway");
    case_check(web_stop(&gate) == 0, "its status is not 0");
    size_t bytes = 0;
    char *text = files_read(dir, "log", &bytes);
    case_check(process_count_lines(text) >= (int)(sizeof asked / sizeof asked[0]) &&
                   strstr(text, "\"method\":\"GET\",\"path\":\"/x\",") != NULL && strstr(text, "two-key") == NULL &&
                   strstr(text, "\"key\":\"ann@site\",\"method\":\"POST\",\"path\":\"/v1/completions\",") != NULL,
               "%s", text);
    case_check(strstr(text, "\"forwarded_for\":\"10.1.2.3\",\"method\":\"POST\",\"path\":\"/v1/completions\","
                            "\"request_id\":\"big-1\",\"status\":413,") != NULL &&
                   strstr(text, "\"path\":\"/unfinished\",\"request_id\":\"\",\"status\":400,") != NULL &&
                   strstr(text, "\"method\":\"\",\"path\":\"\",\"request_id\":\"\",\"status\":400,") != NULL,
               "%s", text);
    free(text);
    case_end();
    files_remove_dir(dir);
}

int main(void)
{
    front_serve(&fake, "fake");
    keys();
    front_end(&fake);
    return cases_done();
}
