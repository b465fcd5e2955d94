/* tests/support/front.c - see front.h. */
#include "tests/support/front.h"
#include "base/clock.h"
#include "base/json.h"
#include "tests/support/cases.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

void front_nap(double seconds)
{
    const struct timespec t = {0, (long)(seconds * 1e9)};
    (void)nanosleep(&t, NULL);
}

void front_serve(struct fake_server *s, const char *model)
{
    *s = (struct fake_server){.model = model, .state = "ready"};
    fake_server_start(s, "tcp://127.0.0.1:*");
}

void front_end(struct fake_server *s)
{
    fake_server_stop(s);
    fake_server_free(s);
}

void front_begin(struct fake_server *s, struct web_gateway *g)
{
    front_serve(s, NULL);
    web_start(g, true, FRONT_PARTS("--backend", s->endpoint));
}

void front_stop(struct web_gateway *g)
{
    case_begin("the gateway ends with status 0");
    case_check(web_stop(g) == 0, "it did not");
    case_end();
}

int front_finish(struct fake_server *s, struct web_gateway *g)
{
    front_stop(g);
    front_end(s);
    return cases_done();
}

const json_t *front_await(struct fake_server *s, const char *op, int from_end)
{
    for (double until = seconds_now() + WEB_SECONDS; seconds_now() < until; front_nap(0.01)) {
        int left = from_end;
        for (int i = s->n_received - 1; i >= 0; i--) {
            const char *found = json_string_value(json_object_get(s->received[i], "op"));
            bool same = op == NULL ? found == NULL : found != NULL && strcmp(found, op) == 0;
            if (same && left-- == 0)
                return s->received[i];
        }
    }
    return NULL;
}

void front_check(const struct web_answer *a, int status, const char *part)
{
    case_check(a->status == status && strstr(a->body, part) != NULL, "%d %s, expected %d with %s", a->status, a->body,
               status, part);
}

static void check_parts(const struct web_answer *a, int status, const char *const *parts)
{
    const char *at = a->body;
    case_check(a->status == status, "%d %s, expected %d", a->status, a->body, status);
    for (; *parts != NULL; parts++) {
        const char *found = strstr(at, *parts);
        if (!case_check(found != NULL, "%s is missing after the parts before it in %s", *parts, a->body))
            return;
        at = found + strlen(*parts);
    }
}

/* Returns the last request as text, without its name. The caller frees it. */
static char *last_message(struct fake_server *s)
{
    json_t *copy = json_copy((json_t *)front_await(s, NULL, 0));
    (void)json_object_del(copy, "request_id");
    char *text = json_text(copy, JSON_COMPACT);
    json_decref(copy);
    return text;
}

/* Waits, since the server answers before it publishes the message. */
static void check_message(struct fake_server *s, const char *message)
{
    char *text = last_message(s);
    for (double until = seconds_now() + WEB_SECONDS;
         (text == NULL || strcmp(text, message) != 0) && seconds_now() < until; front_nap(0.01)) {
        free(text);
        text = last_message(s);
    }
    case_check(text != NULL && strcmp(text, message) == 0, "%s, expected %s", text, message);
    free(text);
}

void front_passes(struct fake_server *s, const struct web_gateway *g, const char *path, const char *fields,
                  const char *body, const char *message, const char *const *parts)
{
    struct web_answer a;
    case_begin("%s forwards: %.200s", path, body);
    web_ask(g, "POST", path, fields, body, &a);
    check_parts(&a, 200, parts);
    if (a.status == 200)
        check_message(s, message);
    web_free(&a);
    case_end();
}

void front_refuses(const struct web_gateway *g, const char *path, const char *fields, const char *body, int status,
                   const char *const *parts)
{
    struct web_answer a;
    case_begin("%s refuses: %.200s", path, body);
    web_ask(g, "POST", path, fields, body, &a);
    check_parts(&a, status, parts);
    web_free(&a);
    case_end();
}
