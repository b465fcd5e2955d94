/* protocol/reply_said.c - see reply_said.h. */
#include "protocol/reply_said.h"

#include "base/text_buffer.h"
#include "protocol/reply_parts.h"

#define CALLS_A_CHOICE 65536 /* ids of its calls; further ones would repeat those of another choice */

struct said {
    struct text_buffer content, reasoning, arguments; /* arguments: of the call that was reported last */
    json_t *calls;
    bool whole, good, open; /* open: arguments belong to the last of calls */
    int call;               /* its number */
    enum calls_format format;
    uint64_t salt;
    int choice;
};

/* The arguments so far go into the last call. */
static void settle(struct said *s)
{
    json_t *function = json_object_get(json_array_get(s->calls, json_array_size(s->calls) - 1), "function");
    if (s->open)
        reply_put(function, "arguments", reply_string(s->arguments.data, s->arguments.bytes), &s->good);
    s->arguments.bytes = 0;
    s->open = false;
}

/* name NULL: more arguments of a call that an earlier event has named. */
static void begin_call(struct said *s, int call, const char *name, size_t bytes)
{
    char id[CALLS_ID_BYTES];
    json_t *object = json_object(), *function = json_object();
    settle(s);
    if (!s->whole)
        reply_put(object, "index", json_integer(call), &s->good);
    if (name != NULL) {
        calls_id(id, s->format, s->salt, s->choice * CALLS_A_CHOICE + call % CALLS_A_CHOICE);
        reply_put(object, "id", json_string(id), &s->good);
        reply_put(object, "type", json_string("function"), &s->good);
        reply_put(function, "name", reply_string(name, bytes), &s->good);
    }
    reply_put(object, "function", function, &s->good);
    reply_append(s->calls, object, &s->good);
    s->call = call;
    s->open = true;
}

static void take_part(void *context, enum calls_part part, int call, const char *text, size_t bytes)
{
    struct said *s = context;
    struct err e = {0};
    int rc = 0;
    if (part == CALLS_NAME)
        begin_call(s, call, text, bytes);
    else if (part == CALLS_ARGUMENTS && (!s->open || s->call != call))
        begin_call(s, call, NULL, 0);
    if (part == CALLS_CONTENT)
        rc = text_append(&s->content, text, bytes, &e);
    else if (part == CALLS_REASONING)
        rc = text_append(&s->reasoning, text, bytes, &e);
    else if (part == CALLS_ARGUMENTS)
        rc = text_append(&s->arguments, text, bytes, &e);
    s->good = s->good && rc == 0;
}

/* Makes the object of the parsed text, which is then closed. */
static json_t *finish_said(struct said *s)
{
    json_t *object = json_object();
    settle(s);
    bool has_calls = json_array_size(s->calls) > 0;
    if (s->whole)
        reply_put(object, "role", json_string("assistant"), &s->good);
    if (s->content.bytes > 0)
        reply_put(object, "content", reply_string(s->content.data, s->content.bytes), &s->good);
    else if (s->whole)
        reply_put(object, "content", has_calls ? json_null() : json_string(""), &s->good);
    if (s->reasoning.bytes > 0)
        reply_put(object, "reasoning_content", reply_string(s->reasoning.data, s->reasoning.bytes), &s->good);
    if (has_calls)
        reply_put(object, "tool_calls", json_incref(s->calls), &s->good);
    json_decref(s->calls);
    text_free(&s->content);
    text_free(&s->reasoning);
    text_free(&s->arguments);
    if (s->good)
        return object;
    json_decref(object);
    return NULL;
}

static struct said begin_said(enum calls_format format, uint64_t salt, int choice, bool whole)
{
    return (struct said){
        .calls = json_array(), .whole = whole, .good = true, .format = format, .salt = salt, .choice = choice};
}

json_t *reply_said(struct calls_way way, uint64_t salt, int choice, const char *text, size_t bytes, int *n_calls)
{
    struct said s = begin_said(way.format, salt, choice, true);
    struct calls_reader *r = calls_open(way);
    const struct calls_sink sink = {take_part, &s};
    s.good = r != NULL;
    if (r != NULL) {
        calls_read(r, text, bytes, &sink);
        calls_end(r, &sink);
    }
    *n_calls = r != NULL ? calls_count(r) : 0;
    calls_close(r);
    return finish_said(&s);
}

json_t *reply_saying(struct calls_reader *r, struct calls_way way, uint64_t salt, int choice, const char *text,
                     size_t bytes, bool ends)
{
    struct said s = begin_said(way.format, salt, choice, false);
    const struct calls_sink sink = {take_part, &s};
    calls_read(r, text, bytes, &sink);
    if (ends)
        calls_end(r, &sink);
    return finish_said(&s);
}
