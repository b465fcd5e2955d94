/* client/send.c - see send.h. */
#include "client/send.h"
#include "base/clock.h"
#include "base/json.h"
#include "client/ask.h"
#include "client/interrupt.h"
#include "client/message.h"

#include <stdlib.h>
#include <string.h>

#define FILE_MAX_BYTES ((size_t)1 << 30)

/* The text's JSON values one by one: lines, or one value over many lines. */
struct values {
    char *text;
    size_t bytes, at;
    long n; /* taken so far */
};

static int values_open(struct values *v, const char *path, struct err *e)
{
    v->text =
        strcmp(path, "-") == 0 ? ask_read_text(path, &v->bytes, e) : file_read_text(path, FILE_MAX_BYTES, &v->bytes, e);
    return v->text != NULL ? 0 : -1;
}

/* The caller decrefs; NULL: at the end, or *e. */
static json_t *values_next(struct values *v, const char *path, struct err *e)
{
    json_error_t error;
    v->at += strspn(v->text + v->at, " \t\r\n");
    if (v->at >= v->bytes)
        return NULL;
    json_t *value = json_loadb(v->text + v->at, v->bytes - v->at, JSON_DISABLE_EOF_CHECK, &error);
    v->n++;
    if (value == NULL)
        ERR(e, ERR_INPUT, "%s: request %ld: not valid JSON: line %d of it, column %d: %s", path, v->n, error.line,
            error.column, error.text);
    else
        v->at += (size_t)error.position; /* bytes read */
    return value;
}

struct sending {
    struct values values;
    long open, failed, done;
    bool all_sent;
};

static void send_some(struct sending *s, struct connection *c, const struct send_options *o, struct err *e)
{
    while (!s->all_sent && s->open < o->max_concurrency && e->code == ERR_NONE) {
        json_t *request = values_next(&s->values, o->file, e);
        s->all_sent = request == NULL;
        if (request != NULL && connection_send(c, request, e) == 0)
            s->open++;
        json_decref(request);
    }
}

static void take_reply(struct sending *s, const json_t *reply)
{
    message_print(reply, stdout);
    if (message_is_event(reply))
        return;
    s->open--;
    s->done++;
    s->failed += message_failed(reply);
}

int send_file(struct connection *c, const struct send_options *o, struct err *e)
{
    struct sending s = {0};
    double heard = seconds_now();
    if (values_open(&s.values, o->file, e) != 0)
        return -1;
    send_some(&s, c, o, e);
    while (s.open > 0 && e->code == ERR_NONE && !interrupt_came()) {
        json_t *reply = connection_receive(c, o->call.timeout > 0 ? heard + o->call.timeout - seconds_now() : -1, e);
        if (reply == NULL && e->code == ERR_NONE && !interrupt_came())
            ERR(e, ERR_COMM, "%s: no message for %g s, %ld requests open", c->endpoint, o->call.timeout, s.open);
        if (reply == NULL)
            continue;
        heard = seconds_now();
        take_reply(&s, reply);
        json_decref(reply);
        send_some(&s, c, o, e);
    }
    free(s.values.text);
    if (e->code == ERR_NONE && s.failed > 0)
        return ERR(e, ERR_REQUEST, "%ld of %ld requests were answered with an error", s.failed, s.done);
    return e->code == ERR_NONE ? 0 : -1;
}
