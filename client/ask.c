/* client/ask.c - see ask.h. */
#include "client/ask.h"
#include "base/clock.h"
#include "base/progress.h"
#include "client/interrupt.h"
#include "client/message.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INPUT_MAX_BYTES ((size_t)1 << 28)
#define CANCEL_SECONDS  2.0 /* seconds to wait for the reply to a cancel */

static char *read_stream(FILE *f, size_t *bytes, struct err *e)
{
    char *text = NULL;
    size_t capacity = 0;
    for (*bytes = 0;;) {
        if (capacity - *bytes < 2) {
            capacity = capacity > 0 ? 2 * capacity : 1 << 16;
            char *grown = capacity <= INPUT_MAX_BYTES ? realloc(text, capacity) : NULL;
            if (grown == NULL) {
                ERR(e, ERR_MEMORY, "standard input: more than %zu bytes", *bytes);
                break;
            }
            text = grown;
        }
        size_t n = fread(text + *bytes, 1, capacity - *bytes - 1, f);
        *bytes += n;
        text[*bytes] = '\0';
        if (n == 0 && ferror(f) != 0 && !interrupt_came())
            ERR(e, ERR_IO, "standard input: cannot read: %s", strerror(errno));
        if (n == 0)
            break;
    }
    if (e->code == ERR_NONE)
        return text;
    free(text);
    return NULL;
}

char *ask_read_text(const char *word, size_t *bytes, struct err *e)
{
    if (strcmp(word, "-") == 0)
        return read_stream(stdin, bytes, e);
    char *copy = strdup(word);
    *bytes = strlen(word);
    if (copy == NULL)
        ERR(e, ERR_MEMORY, "out of host memory: a prompt");
    return copy;
}

static int set_member(json_t *request, const char *key, json_t *value, struct err *e)
{
    return json_object_set_new(request, key, value) == 0 ? 0 : ERR(e, ERR_INPUT, "the %s is not UTF-8", key);
}

int ask_add_turn(json_t *turns, const char *role, const char *content, size_t bytes, struct err *e)
{
    json_t *text = json_stringn(content, bytes);
    if (text == NULL)
        return ERR(e, ERR_INPUT, "the %s's text is not UTF-8", role);
    return json_array_append_new(turns, json_pack("{s:s, s:o}", "role", role, "content", text)) == 0
               ? 0
               : ERR(e, ERR_MEMORY, "out of host memory: a chat");
}

static int set_prompt(json_t *request, const struct ask_options *o, struct err *e)
{
    size_t bytes = 0;
    char *text = ask_read_text(o->text, &bytes, e);
    int status = text != NULL ? 0 : -1;
    if (status == 0 && o->chat) {
        json_t *turns = json_array();
        status = o->system != NULL ? ask_add_turn(turns, "system", o->system, strlen(o->system), e) : 0;
        status = status == 0 ? ask_add_turn(turns, "user", text, bytes, e) : -1;
        status = set_member(request, "messages", turns, e) == 0 ? status : -1;
    } else if (status == 0) {
        status = set_member(request, "prompt", json_stringn(text, bytes), e);
    }
    free(text);
    return status;
}

/* "1,2,3" as `token_ids`. */
static int set_ids(json_t *request, const char *text, struct err *e)
{
    json_t *ids = json_array();
    for (const char *at = text; *at != '\0';) {
        char *end = NULL;
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (errno != 0 || end == at) {
            json_decref(ids);
            return ERR(e, ERR_USAGE, "detokenize: found \"%.80s\", expected token ids: 1,2,3", at);
        }
        (void)json_array_append_new(ids, json_integer(id));
        at = end + strspn(end, ", \n");
    }
    return set_member(request, "token_ids", ids, e);
}

static bool makes_text(const struct ask_options *o)
{
    return ask_is(o, "generate") || ask_is(o, "chat");
}

static bool streams(const struct ask_options *o)
{
    json_int_t n = json_integer_value(json_object_get(o->call.request, "n"));
    bool beams = json_object_get(o->call.request, "num_beams") != NULL ||
                 json_object_get(o->call.request, "best_of") != NULL ||
                 json_is_true(json_object_get(o->call.request, "use_beam_search"));
    return o->stream || (!o->no_stream && !o->json && n <= 1 && !beams && terminal_behind(STDOUT_FILENO));
}

/* The request made from the options, with a unique name; the caller decrefs. NULL on failure. */
static json_t *begin_request(const struct ask_options *o, const char *op, struct err *e)
{
    json_t *request = json_copy(o->call.request);
    char name[64];
    (void)snprintf(name, sizeof name, "client-%ld-%.0f", (long)getpid(), 1e6 * seconds_now());
    if (request == NULL || set_member(request, "op", json_string(op), e) != 0) {
        ERR(e, ERR_MEMORY, "out of host memory: a request");
        json_decref(request);
        return NULL;
    }
    if (json_object_get(request, "request_id") == NULL)
        (void)set_member(request, "request_id", json_string(name), e);
    return request;
}

/* Streamed text has no limit of tokens unless the options set one. */
static void set_stream(json_t *request, struct err *e)
{
    if (set_member(request, "stream", json_true(), e) == 0 && json_object_get(request, "max_tokens") == NULL)
        (void)set_member(request, "max_tokens", json_integer(-1), e);
}

/* The message; the caller decrefs. NULL on failure. */
static json_t *make_request(const struct ask_options *o, struct err *e)
{
    json_t *request = begin_request(o, o->op, e);
    if (e->code == ERR_NONE && ask_is(o, "generate") && streams(o))
        set_stream(request, e);
    if (e->code == ERR_NONE && ask_is(o, "detokenize"))
        (void)set_ids(request, o->text, e);
    else if (e->code == ERR_NONE && o->text != NULL)
        (void)set_prompt(request, o, e);
    if (e->code == ERR_NONE)
        return request;
    json_decref(request);
    return NULL;
}

/* "1,2,3" */
static void print_ids(const json_t *ids)
{
    for (size_t i = 0; i < json_array_size(ids); i++)
        printf("%s%lld", i > 0 ? "," : "", (long long)json_integer_value(json_array_get(ids, i)));
    printf("\n");
}

/* The texts of a complete reply; several are numbered. */
static void print_choices(const json_t *reply)
{
    size_t n = message_n_choices(reply);
    for (size_t i = 0; i < n; i++) {
        if (n > 1)
            printf("[%zu] ", i);
        message_write_text(reply, i, stdout);
        printf("\n");
    }
}

static void print_text(const json_t *reply, const char *key, const char *end)
{
    const json_t *text = json_object_get(reply, key);
    if (json_is_string(text))
        (void)fwrite(json_string_value(text), 1, json_string_length(text), stdout);
    (void)fputs(end, stdout);
}

/* The answer as plain text; false for an operation whose answer has none. */
static bool print_plain(const struct ask_options *o, const json_t *reply, bool streamed)
{
    if (makes_text(o) && streamed)
        printf("\n");
    else if (makes_text(o))
        print_choices(reply);
    else if (ask_is(o, "tokenize"))
        print_ids(json_object_get(reply, "token_ids"));
    else if (ask_is(o, "detokenize"))
        print_text(reply, "text", "\n");
    else if (strcmp(o->op, "metrics") == 0)
        print_text(reply, "text", "");
    else
        return false;
    return true;
}

static void print_answer(const struct ask_options *o, const json_t *reply, bool streamed)
{
    if (o->json || !print_plain(o, reply, streamed))
        message_print(reply, stdout);
    (void)fflush(stdout);
}

/* One pending request. */
struct asked {
    struct connection *c;
    const struct ask_options *o;
    const char *name;                /* request_id */
    FILE *copy;                      /* a second stream for the text; NULL: none */
    double until;                    /* 0: for ever */
    bool cancelled, streamed, ended; /* we cancelled it; text was printed; its last message has arrived */
};

/* Asks the server to cancel the request, and waits briefly for its last message. */
static void cancel(struct asked *a, struct err *e)
{
    json_t *message = json_pack("{s:s, s:s}", "op", "cancel", "request_id", a->name);
    if (message != NULL)
        (void)connection_send(a->c, message, e);
    json_decref(message);
    a->cancelled = true;
    a->until = seconds_now() + CANCEL_SECONDS;
}

static void print_event(struct asked *a, const json_t *reply)
{
    a->streamed = true;
    if (a->o->json)
        message_print(reply, stdout);
    else
        message_write_text(reply, 0, stdout);
    if (a->copy != NULL)
        message_write_text(reply, 0, a->copy);
    (void)fflush(stdout);
}

/* The server's answer to the request or to its cancel, which has no choices if it succeeded. */
static void take_reply(struct asked *a, const json_t *reply, struct err *e)
{
    if (!message_is_to(reply, a->name))
        return;
    if (message_is_event(reply)) {
        print_event(a, reply);
        return;
    }
    if (a->cancelled && !message_failed(reply) && message_n_choices(reply) == 0)
        return;
    a->ended = true;
    if (a->copy != NULL && !a->streamed)
        message_write_text(reply, 0, a->copy);
    if (!message_failed(reply) || a->o->json || a->streamed || message_n_choices(reply) > 0)
        print_answer(a->o, reply, a->streamed);
    if (!a->cancelled)
        (void)message_check(reply, e);
}

static int await_answer(struct asked *a, struct err *e)
{
    while (!a->ended && e->code == ERR_NONE) {
        bool over = a->until > 0 && seconds_now() >= a->until;
        if (over && (a->cancelled || !makes_text(a->o)))
            break;
        if (over || (interrupt_came() && !a->cancelled))
            cancel(a, e);
        json_t *reply = connection_receive(a->c, a->until > 0 ? a->until - seconds_now() : -1, e);
        if (reply != NULL)
            take_reply(a, reply, e);
        json_decref(reply);
    }
    if (!a->ended && a->streamed && !a->o->json) /* so that the shell's prompt begins a new line */
        print_answer(a->o, NULL, true);
    if (e->code == ERR_NONE && !interrupt_came() && (a->cancelled || !a->ended))
        return ERR(e, ERR_COMM, "%s: no answer within %g s", a->c->endpoint, a->o->call.timeout);
    return e->code == ERR_NONE ? 0 : -1;
}

/* Sends and waits; takes over the request; NULL: it could not be made, see *e. */
static int exchange(struct connection *c, const struct ask_options *o, json_t *request, FILE *copy, struct err *e)
{
    struct asked a = {.c = c, .o = o, .name = json_string_value(json_object_get(request, "request_id")), .copy = copy};
    a.until = o->call.timeout > 0 ? seconds_now() + o->call.timeout : 0;
    if (e->code == ERR_NONE && connection_send(c, request, e) == 0)
        (void)await_answer(&a, e);
    json_decref(request);
    return e->code == ERR_NONE ? 0 : -1;
}

int ask(struct connection *c, const struct ask_options *o, struct err *e)
{
    return exchange(c, o, make_request(o, e), NULL, e);
}

int ask_chat(struct connection *c, const struct ask_options *o, json_t *turns, FILE *copy, struct err *e)
{
    json_t *request = begin_request(o, "generate", e);
    if (e->code == ERR_NONE && set_member(request, "messages", json_incref(turns), e) == 0)
        set_stream(request, e);
    return exchange(c, o, request, copy, e);
}

json_t *ask_op(struct connection *c, const char *op, double seconds, struct err *e)
{
    json_t *request = json_pack("{s:s}", "op", op), *reply = NULL;
    if (request == NULL)
        ERR(e, ERR_MEMORY, "out of host memory: a request");
    else if (connection_send(c, request, e) == 0)
        reply = connection_receive(c, seconds, e);
    if (e->code == ERR_NONE && reply == NULL && !interrupt_came())
        ERR(e, ERR_COMM, "%s: no answer to %s within %g s", c->endpoint, op, seconds);
    if (reply != NULL && message_check(reply, e) != 0) {
        json_decref(reply);
        reply = NULL;
    }
    json_decref(request);
    return reply;
}
