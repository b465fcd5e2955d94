/* tests/e2e/test_gateway_parties.c - the users of one gateway: on whose behalf it asks its backends, how many requests
 * of each it takes at once, and that one with hundreds of requests delays another by no more than its turn. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/front.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#define ANN "x-api-key: ann-key\r\n"
#define BOB "x-api-key: bob-key\r\n"
#define ONE "{\"prompt\":\"a\",\"max_tokens\":1}"

static struct web_gateway gate;
static char dir[256], keys[300], log_path[300];

static void make_keys(void)
{
    files_make_dir(dir);
    files_write_text(dir, "keys", "ann-key ann\nbob-key bob\nthird-key\nfourth-key\n");
    (void)snprintf(keys, sizeof keys, "%s/keys", dir);
    (void)snprintf(log_path, sizeof log_path, "%s/log", dir);
    (void)chmod(keys, 0600);
}

/* ---------------------------------------------------------------- names */

/* The newest message of an op to the fake server begins with this name; "": it has none. */
static void check_name(struct fake_server *s, const char *op, const char *name)
{
    const json_t *m = front_await(s, op, 0);
    void *first = json_object_iter((json_t *)m);
    bool in_front = first != NULL && strcmp(json_object_iter_key(first), "on_behalf_of") == 0;
    const char *found = json_string_value(json_object_get(m, "on_behalf_of"));
    case_check(m != NULL && strcmp(found != NULL ? found : "", name) == 0 && in_front == (name[0] != '\0'),
               "found \"%s\", expected \"%s\" in front", found != NULL ? found : "", name);
}

static void asks_for(struct fake_server *s, const char *fields, const char *name)
{
    struct web_answer a;
    web_ask(&gate, "POST", "/v1/completions", fields, ONE, &a);
    front_check(&a, 200, "w0");
    web_free(&a);
    check_name(s, NULL, name);
}

static void names_of_keys(void)
{
    struct fake_server fake = {.state = "ready", .knows_parties = true};
    struct web_answer a;
    fake_server_start(&fake, "tcp://127.0.0.1:*");
    web_start(&gate, true, FRONT_PARTS("--backend", fake.endpoint, "--api-keys", keys));
    case_begin("a backend is asked on behalf of the name of a key, or of its number");
    asks_for(&fake, ANN, "ann");
    asks_for(&fake, "x-api-key: third-key\r\n", "key 3");
    files_write_text(dir, "keys", "fifth-key\nthird-key\nann-key ann\nbob-key bob\n");
    case_check(web_says(&gate, "4 keys are in force from now on"), "the keys are not read again");
    asks_for(&fake, "x-api-key: third-key\r\n", "key 3");
    asks_for(&fake, "x-api-key: fifth-key\r\n", "key 5");
    case_end();
    case_begin("all messages of a request have its name, and no client can give another one");
    web_ask(&gate, "POST", "/tokenize", BOB, "{\"prompt\":\"a\"}", &a);
    front_check(&a, 200, "");
    web_free(&a);
    check_name(&fake, "tokenize", "bob");
    int fd = web_connect(&gate);
    web_post(fd, "/v1/completions", ANN, "{\"prompt\":\"wait\"}");
    case_check(front_await(&fake, NULL, 4) != NULL, "the request does not arrive"); /* the fifth one */
    check_name(&fake, NULL, "ann");
    (void)close(fd);
    check_name(&fake, "cancel", "ann");
    web_ask(&gate, "POST", "/v1/completions", ANN, "{\"prompt\":\"a\",\"on_behalf_of\":\"bob\"}", &a);
    front_check(&a, 400, "on_behalf_of: unknown field: only the gateway says on whose behalf it asks");
    web_free(&a);
    case_end();
    front_stop(&gate);
    front_end(&fake);
}

static void names_of_addresses(void)
{
    struct fake_server fake = {.state = "ready", .knows_parties = true}, old = {.state = "ready"};
    struct web_answer a;
    fake_server_start(&fake, "tcp://127.0.0.1:*");
    web_start(&gate, true, FRONT_PARTS("--backend", fake.endpoint));
    case_begin("without keys a backend is asked on behalf of the address, whatever the client says of it");
    asks_for(&fake, "X-Forwarded-For: 10.1.2.3\r\n", "127.0.0.1");
    case_end();
    front_stop(&gate);
    front_end(&fake);
    fake_server_start(&old, "tcp://127.0.0.1:*");
    web_start(&gate, true, FRONT_PARTS("--backend", old.endpoint));
    case_begin("a server that does not know the field does not get it");
    asks_for(&old, "", "");
    web_ask(&gate, "POST", "/tokenize", "", "{\"prompt\":\"a\"}", &a);
    front_check(&a, 200, "");
    web_free(&a);
    check_name(&old, "tokenize", "");
    case_end();
    front_stop(&gate);
    front_end(&old);
}

/* ---------------------------------------------------------------- requests at once */

/* In each API's own form. */
static void check_refusals(void)
{
    static const struct {
        const char *path, *body, *part;
    } asked[] = {
        {"/v1/completions", ONE,
         "{\"error\":{\"message\":\"2 requests of \\\"ann\\\" are being answered, expected at most that many at once "
         "(--max-requests-per-party)\",\"type\":\"rate_limit_exceeded\",\"param\":null,\"code\":null}}"},
        {"/v1/messages", "{}", "{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"2 requests"},
        {"/generate", "{}", "{\"error\":\"2 requests of \\\"ann\\\""},
        {"/predictions/fake", "{}", "\"message\":\"2 requests of \\\"ann\\\""},
        {"/v2/models/fake/generate", "{}", "{\"error\":\"2 requests of \\\"ann\\\""},
    };
    struct web_answer a;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        web_ask(&gate, "POST", asked[i].path, ANN, asked[i].body, &a);
        case_check(strstr(a.head, "Retry-After: 1\r\n") != NULL, "%s", a.head);
        case_check((a.status == 429 || a.status == 503) && strstr(a.body, asked[i].part) != NULL, "%d %s", a.status,
                   a.body);
        web_free(&a);
    }
}

static void await_room(void)
{
    struct web_answer a = {0};
    for (double until = seconds_now() + WEB_SECONDS; a.status != 200 && seconds_now() < until;) {
        web_free(&a);
        web_ask(&gate, "POST", "/v1/completions", ANN, ONE, &a);
    }
    front_check(&a, 200, "w0");
    web_free(&a);
}

static void requests_at_once(void)
{
    struct fake_server fake;
    struct web_answer a;
    int held[2];
    size_t bytes = 0;
    front_serve(&fake, NULL);
    web_start(&gate, true,
              FRONT_PARTS("--backend", fake.endpoint, "--api-keys", keys, "--max-requests-per-party", "2",
                          "--access-log", log_path));
    case_begin("--max-requests-per-party: more requests of one key get 429, those of others do not");
    for (int i = 0; i < 2; i++) {
        held[i] = web_connect(&gate);
        web_post(held[i], "/v1/completions", ANN, "{\"prompt\":\"silence\"}");
        case_check(front_await(&fake, NULL, i) != NULL, "the request does not arrive");
    }
    check_refusals();
    web_ask(&gate, "POST", "/v1/completions", BOB, ONE, &a);
    front_check(&a, 200, "w0");
    web_free(&a);
    web_ask(&gate, "GET", "/metrics", ANN, "", &a); /* who watches is not counted */
    front_check(&a, 200, "lockstep_gateway_key_over_limit_total{key=\"ann\"} 5\n");
    case_check(strstr(a.body, "lockstep_gateway_key_over_limit_total{key=\"bob\"} 0\n") != NULL &&
                   strstr(a.body, "\nlockstep_gateway_over_limit_total 5\n") != NULL,
               "%s", a.body);
    web_free(&a);
    case_end();
    case_begin("requests that are over, or whose client has left, count no longer");
    (void)close(held[0]);
    await_room();
    (void)close(held[1]);
    for (int i = 0; i < 5; i++)
        await_room();
    case_end();
    front_stop(&gate);
    char *text = files_read(dir, "log", &bytes);
    case_begin("the access log says which requests were too many");
    case_check(strstr(text, "\"key\":\"ann\",\"method\":\"POST\",\"path\":\"/v1/completions\",") != NULL &&
                   strstr(text, "\"status\":429,\"over_limit\":true,") != NULL,
               "%s", text);
    case_end();
    free(text);
    front_end(&fake);
}

/* ---------------------------------------------------------------- turns */

#define FLOOD 200
#define LONG  "{\"prompt\":\"Long ago\",\"max_tokens\":1000,\"ignore_eos\":true}"
#define SHORT "{\"prompt\":\"Tom\",\"max_tokens\":2,\"ignore_eos\":true}"

static bool await_waiting(const struct serving *s, double n)
{
    double waiting = -1;
    for (double until = seconds_now() + WEB_SECONDS; waiting < n && seconds_now() < until;)
        waiting = serving_metric(s, "num_requests_waiting");
    return case_check(waiting == n, "%g requests wait, expected %g: nothing is tested", waiting, n);
}

/* The number of requests of this name that ended before the first one of the other name, by the server's log; -1: that
 * one is not there. */
static int n_before(const char *name, const char *other)
{
    char part[64], end[64];
    int n = 0;
    char *text = files_read(dir, "served", &(size_t){0}), *rest = text;
    (void)snprintf(part, sizeof part, "\"on_behalf_of\":\"%s\",\"op\":\"generate\"", name);
    (void)snprintf(end, sizeof end, "\"on_behalf_of\":\"%s\",\"op\":\"generate\"", other);
    char *line;
    while ((line = strsep(&rest, "\n")) != NULL && strstr(line, end) == NULL)
        n += strstr(line, part) != NULL && strstr(line, "\"code\":200") != NULL;
    n = line != NULL ? n : -1;
    free(text);
    return n;
}

/* One request runs at a time. Ann's first one holds the engine until 200 more of hers and one of Bob's wait. */
static void turns(void)
{
    struct serving s;
    struct web_answer a;
    char served[300];
    static int flood[FLOOD];
    (void)snprintf(served, sizeof served, "%s/served", dir);
    case_begin("a user with %d waiting requests delays another's by one turn", FLOOD);
    if (!serving_start(&s, 1, NULL, (const char *const[]){"--max-batch", "1", "--access-log", served, NULL}))
        return;
    web_start(&gate, true, FRONT_PARTS("--backend", s.rendezvous, "--api-keys", keys));
    int first = web_connect(&gate), bob = web_connect(&gate);
    web_post(first, "/v1/completions", ANN, LONG);
    for (int i = 0; i < 1000 && serving_metric(&s, "num_requests_running") < 1; i++)
        continue;
    for (int i = 0; i < FLOOD; i++) {
        flood[i] = web_connect(&gate);
        web_post(flood[i], "/v1/completions", ANN, SHORT);
    }
    (void)await_waiting(&s, FLOOD);
    web_post(bob, "/v1/completions", BOB, SHORT);
    (void)await_waiting(&s, FLOOD + 1);
    (void)close(first); /* its request is cancelled */
    web_hear(bob, &a, 0);
    front_check(&a, 200, "");
    web_free(&a);
    for (int i = 0; i < FLOOD; i++) {
        web_hear(flood[i], &a, 0);
        front_check(&a, 200, "");
        web_free(&a);
        (void)close(flood[i]);
    }
    (void)close(bob);
    (void)web_stop(&gate);
    (void)serving_stop(&s);
    int n = n_before("ann", "bob");
    case_check(n >= 0 && n <= 1, "%d of Ann's requests were answered before Bob's, expected at most 1", n);
    case_end();
}

/* ---------------------------------------------------------------- limits of a server */

static void say(struct talk *t, const char *name, int first, int n)
{
    for (int i = first; i < first + n; i++)
        talk_say(t, "{\"on_behalf_of\":\"%s\",\"request_id\":\"%s %d\",\"prompt\":\"Tom\",\"max_tokens\":2}", name,
                 name, i);
}

/* The next answer is a refusal of this request. */
static void is_refused(struct talk *t, const char *id, const char *part)
{
    json_t *m = talk_hear(t, 30);
    case_check(talk_number(m, "code") == 429 && strcmp(talk_text(m, "request_id"), id) == 0 &&
                   strstr(talk_text(m, "error/message"), part) != NULL,
               "%s: %s", talk_text(m, "request_id"), talk_text(m, "error/message"));
    json_decref(m);
}

static void limits(void)
{
    struct serving s;
    struct talk t, other;
    case_begin("--max-queue-per-party, and a full queue: the party with the most gives way");
    if (!serving_start(
            &s, 1, NULL,
            (const char *const[]){"--max-batch", "1", "--max-queue", "8", "--max-queue-per-party", "6", NULL}))
        return;
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_open(&other, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_say(&other, LONG);
    for (int i = 0; i < 1000 && serving_metric(&s, "num_requests_running") < 1; i++)
        continue;
    say(&t, "ann", 0, 6);
    (void)await_waiting(&s, 6);
    say(&t, "ann", 6, 1);
    is_refused(&t, "ann 6", "6 sequences of this party wait, and this request has 1 (--max-queue-per-party)");
    say(&t, "bob", 0, 2);
    (void)await_waiting(&s, 8);
    say(&t, "bob", 2, 1);
    is_refused(&t, "ann 5", "the queue is full, and this client or party has the most in it");
    (void)await_waiting(&s, 8);
    talk_close(&other);
    for (int i = 0; i < 8; i++) {
        json_t *m = talk_hear(&t, 30);
        case_check(strcmp(talk_text(m, "status"), "ok") == 0, "%s", talk_text(m, "error/message"));
        json_decref(m);
    }
    talk_close(&t);
    (void)serving_stop(&s);
    case_end();
}

/* ---------------------------------------------------------------- refusals of unparsed messages */

/* The gateway takes as many members as a server does, and adds its own. */
static void unparsed(void)
{
    enum { MEMBERS = 131072, BYTES = 2 << 20 };
    struct serving s;
    struct web_answer a;
    char *body = malloc(BYTES);
    size_t n = (size_t)snprintf(body, BYTES, "{\"prompt\":\"a\",\"max_tokens\":1,\"parameters\":{");
    for (int i = 3; i < MEMBERS; i++)
        n += (size_t)snprintf(body + n, BYTES - n, "%s\"%d\":1", i > 3 ? "," : "", i);
    (void)snprintf(body + n, BYTES - n, "}}");
    case_begin("a request that the server refuses before it knows its fields is answered");
    if (!serving_start(&s, 1, NULL, NULL))
        return;
    web_start(&gate, true, FRONT_PARTS("--backend", s.rendezvous));
    web_ask(&gate, "POST", "/v1/completions", "X-Request-Id: \"\\\r\n", body, &a);
    front_check(&a, 413, "members of JSON objects, at most 131072 are accepted");
    web_free(&a);
    (void)web_stop(&gate);
    (void)serving_stop(&s);
    free(body);
    case_end();
}

int main(void)
{
    make_keys();
    requests_at_once();
    turns();
    names_of_keys();
    names_of_addresses();
    limits();
    unparsed();
    files_remove_dir(dir);
    return cases_done();
}
