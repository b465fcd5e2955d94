/* tests/e2e/test_gateway_backends.c - lockstep-gateway in front of several fake servers that come and go: the choice of
 * a backend by folder, key and load. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/front.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS(...)        \
    (const char *[])      \
    {                     \
        __VA_ARGS__, NULL \
    }

static struct fake_server fake, other;
static struct web_gateway gate;

static void drop_file(const char *dir, const char *name, const struct fake_server *s)
{
    char text[400], from[600], to[600];
    (void)snprintf(text, sizeof text, "{\"endpoint\": \"%s\"}", s->endpoint);
    files_write_text(dir, "new", text);
    (void)snprintf(from, sizeof from, "%s/new", dir);
    (void)snprintf(to, sizeof to, "%s/%s", dir, name);
    (void)rename(from, to);
}

/* Repeats the request until the status is as wanted; false: it never is. */
static bool await_status(const char *body, int status)
{
    struct web_answer a = {0};
    bool found = false;
    for (double until = seconds_now() + WEB_SECONDS; !found && seconds_now() < until; front_nap(0.02)) {
        web_ask(&gate, "POST", "/v1/completions", "", body, &a);
        found = a.status == status;
        web_free(&a);
    }
    return found;
}

/* Clients that are refused together do not return together: their times differ, and are a little longer. */
static void spreads(const char *body)
{
    long first = 0, ms = 0;
    bool differ = false;
    for (int i = 0; i < 50 && !differ; i++) {
        struct web_answer a;
        web_ask(&gate, "POST", "/v1/completions", "", body, &a);
        const char *at = strstr(a.head, "\r\nretry-after-ms: ");
        ms = at != NULL ? strtol(at + strlen("\r\nretry-after-ms: "), NULL, 10) : 0;
        case_check(ms >= 1000 && ms <= 1500, "%ld ms", ms);
        first = first == 0 ? ms : first;
        differ = ms != first;
        web_free(&a);
    }
    case_check(differ, "%ld ms for 50 clients", ms);
}

static void folder(void)
{
    char dir[256];
    static const char one[] = "{\"prompt\":\"a\",\"max_tokens\":1,\"model\":\"one\"}";
    static const char two[] = "{\"prompt\":\"a\",\"max_tokens\":1,\"model\":\"two\"}";
    static const char none[] = "{\"prompt\":\"a\",\"max_tokens\":1}";
    struct web_answer a;
    files_make_dir(dir);
    front_serve(&fake, "one");
    front_serve(&other, "two");
    web_start(&gate, false, WORDS("--backend", dir));
    case_begin("a folder without files: no backend");
    web_ask(&gate, "POST", "/v1/completions", "", one, &a);
    front_check(&a, 503, "no backend is ready");
    case_check(strstr(a.head, "\r\nRetry-After: 1\r\n") != NULL, "%s", a.head);
    web_free(&a);
    spreads(one);
    case_end();
    case_begin("files that appear are used, by the name of the model");
    drop_file(dir, "1.json", &fake);
    case_check(await_status(one, 200), "the first file is not used");
    case_check(await_status(none, 200), "the only model is not taken");
    drop_file(dir, "2.json", &other);
    case_check(await_status(two, 200), "the second file is not used");
    case_check(await_status(none, 400), "one of two models is taken without a name");
    web_ask(&gate, "POST", "/v1/completions", "", "{\"prompt\":\"a\",\"model\":\"tgi\"}", &a);
    front_check(&a, 404, "\"tgi\\\" is not served here, expected \\\"");
    case_check(strstr(a.body, "\\\"one\\\"") != NULL && strstr(a.body, "\\\"two\\\"") != NULL, "%s", a.body);
    web_free(&a);
    case_end();
    case_begin("a backend that drains gets nothing new");
    other.state = "draining";
    case_check(await_status(two, 503), "the draining backend still gets requests, or is no longer known");
    case_check(await_status(one, 200), "the other backend gets no requests");
    other.state = "ready";
    case_check(await_status(two, 200), "the backend gets no requests after it is ready again");
    case_end();
    case_begin("a file that is gone ends a backend");
    char path[600];
    (void)snprintf(path, sizeof path, "%s/2.json", dir);
    (void)unlink(path);
    case_check(await_status(two, 404), "it still gets requests");
    case_end();
    case_begin("the gateway ends with status 0");
    case_check(web_stop(&gate) == 0, "it did not");
    case_end();
    front_end(&fake);
    front_end(&other);
    files_remove_dir(dir);
}

/* A server with keys: the rendezvous file names our key file. */
static void curve(void)
{
    char dir[256], keys_path[300], rendezvous[300], text[900];
    struct web_answer a;
    files_make_dir(dir);
    fake = (struct fake_server){.state = "ready", .curve = true};
    fake_server_start(&fake, "tcp://127.0.0.1:*");
    (void)snprintf(keys_path, sizeof keys_path, "%s/keys", dir);
    (void)snprintf(rendezvous, sizeof rendezvous, "%s/r.json", dir);
    (void)snprintf(text, sizeof text, "{\"client_public_key\": \"%s\", \"client_secret_key\": \"%s\"}",
                   fake.client_public, fake.client_secret);
    files_write_text(dir, "keys", text);
    (void)snprintf(text, sizeof text, "{\"endpoint\": \"%s\", \"public_key\": \"%s\", \"client_keys\": \"%s\"}",
                   fake.endpoint, fake.public_key, keys_path);
    files_write_text(dir, "r.json", text);
    case_begin("a backend with CURVE, by its rendezvous file");
    web_start(&gate, true, WORDS("--backend", rendezvous));
    web_ask(&gate, "POST", "/v1/completions", "", "{\"prompt\":\"a\",\"max_tokens\":1}", &a);
    front_check(&a, 200, "\"text\":\"w0\"");
    web_free(&a);
    case_check(web_stop(&gate) == 0, "its status is not 0");
    case_end();
    front_end(&fake);
    files_remove_dir(dir);
}

/* Waits until the gateway has heard from both servers. */
static void await_both(void)
{
    struct web_answer a;
    bool both = false;
    for (double until = seconds_now() + WEB_SECONDS; !both && seconds_now() < until; front_nap(0.01)) {
        web_ask(&gate, "GET", "/metrics", "", "", &a);
        both = strstr(a.body, "\nlockstep_gateway_backends 2\n") != NULL;
        web_free(&a);
    }
    case_check(both, "one of two backends is not ready");
}

/* One of two vanishes: requests that it has not begun to answer go to the other. */
static void vanishes(void)
{
    struct web_answer a;
    front_serve(&fake, "fake");
    web_start(&gate, true, WORDS("--backend", fake.endpoint));
    case_begin("a backend that vanishes: 502, and the gateway goes on");
    web_ask(&gate, "POST", "/v1/completions", "", "{\"prompt\":\"vanish\"}", &a);
    front_check(&a, 502, "the backend is gone");
    web_free(&a);
    web_ask(&gate, "GET", "/health", "", "", &a);
    front_check(&a, 503, "");
    web_free(&a);
    case_check(web_stop(&gate) == 0, "its status is not 0");
    case_end();
    front_end(&fake);
    front_serve(&fake, "fake");
    front_serve(&other, "fake");
    web_start(&gate, true, WORDS("--backend", fake.endpoint, "--backend", other.endpoint));
    case_begin("a request that one backend has dropped goes to another");
    await_both();
    other.stays = true;
    for (int i = 0; i < 2; i++) { /* the remaining backend may have been the first choice */
        web_ask(&gate, "POST", "/v1/completions", "", "{\"prompt\":\"vanish\",\"max_tokens\":1}", &a);
        front_check(&a, 200, "\"text\":\"w0\"");
        web_free(&a);
    }
    case_check(web_stop(&gate) == 0, "its status is not 0");
    case_end();
    front_end(&fake);
    front_end(&other);
}

static int status_of(const char *method, const char *path, const char *body)
{
    struct web_answer a;
    web_ask(&gate, method, path, "", body, &a);
    int status = a.status;
    web_free(&a);
    return status;
}

/* A backend that refuses a request has begun to end since it was last asked for its health. */
static void refuses(void)
{
    static const char late[] = "{\"prompt\":\"late\",\"max_tokens\":1}";
    front_serve(&fake, "fake");
    web_start(&gate, true, WORDS("--backend", fake.endpoint));
    case_begin("a backend that refuses a request because it ends: /health says so at once");
    case_check(status_of("GET", "/health", "") == 200, "the backend is not ready");
    fake.state = "draining";
    int request = status_of("POST", "/v1/completions", late), health = status_of("GET", "/health", "");
    case_check(request == 503 && health == 503, "a request: %d, then /health: %d, expected 503", request, health);
    case_check(status_of("GET", "/ping", "") == 503 && status_of("GET", "/v2/health/ready", "") != 200,
               "/ping or /v2/health/ready still says 200");
    fake.state = "ready";
    case_check(await_status("{\"prompt\":\"a\",\"max_tokens\":1}", 200), "it gets no requests when it is ready again");
    case_check(web_stop(&gate) == 0, "its status is not 0");
    case_end();
    front_end(&fake);
}

static int n_prompts(const struct fake_server *s, const char *prompt)
{
    int n = 0;
    for (int i = 0; i < s->n_received; i++) {
        const char *found = json_string_value(json_object_get(s->received[i], "prompt"));
        n += found != NULL && strcmp(found, prompt) == 0;
    }
    return n;
}

/* One of two is busy: the other one gets new requests. */
static void balances(void)
{
    struct web_answer a;
    double until = seconds_now() + WEB_SECONDS;
    front_serve(&fake, "fake");
    front_serve(&other, "fake");
    web_start(&gate, true, WORDS("--backend", fake.endpoint, "--backend", other.endpoint));
    case_begin("requests go where the fewest tokens are outstanding");
    await_both();
    int fd = web_connect(&gate);
    web_post(fd, "/v1/completions", "", "{\"prompt\":\"silence\",\"max_tokens\":5000}");
    while (n_prompts(&fake, "silence") + n_prompts(&other, "silence") == 0 && seconds_now() < until)
        front_nap(0.01);
    const struct fake_server *busy = n_prompts(&fake, "silence") > 0 ? &fake : &other;
    for (int i = 0; i < 8; i++) {
        web_ask(&gate, "POST", "/v1/completions", "", "{\"prompt\":\"a\",\"max_tokens\":1}", &a);
        front_check(&a, 200, "\"text\":\"w0\"");
        web_free(&a);
    }
    case_check(n_prompts(busy, "a") == 0, "%d of 8 went to the busy one", n_prompts(busy, "a"));
    (void)close(fd);
    case_check(web_stop(&gate) == 0, "its status is not 0");
    case_end();
    front_end(&fake);
    front_end(&other);
}

int main(void)
{
    folder();
    curve();
    vanishes();
    refuses();
    balances();
    return cases_done();
}
