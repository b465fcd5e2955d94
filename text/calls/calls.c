/* text/calls/calls.c - see calls.h: calls that are marked within a text. Each byte is processed according to the
 * current mode. */
#include "text/calls/calls_parts.h"

#include <stdlib.h>
#include <string.h>

static const char *const hermes_markers[] = {"<tool_call>"}, *const hermes_tail[] = {"</tool_call>", "<tool_call>"},
                         *const llama_markers[] = {"<|python_tag|>"}, *const mistral_markers[] = {"[TOOL_CALLS]"},
                         *const argument_markers[] = {"[ARGS]"};

/* ---------------------------------------------------------------- output */

void calls_flush(struct calls_reader *r)
{
    if (r->n_out > 0 && !(r->hidden && r->out_part == CALLS_REASONING))
        r->to->take(r->to->context, r->out_part, r->n_calls - 1, r->out, r->n_out);
    r->n_out = 0;
}

void calls_put(struct calls_reader *r, enum calls_part part, char c)
{
    if (r->out_part != part || r->n_out == sizeof r->out)
        calls_flush(r);
    r->out_part = part;
    r->out[r->n_out++] = c;
}

void calls_begin(struct calls_reader *r, const char *name, size_t bytes)
{
    calls_flush(r);
    r->n_calls++;
    r->to->take(r->to->context, CALLS_NAME, r->n_calls - 1, name, bytes);
    r->committed = true;
    r->n_space = 0;
    r->behind_call = true;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void put_spaces(struct calls_reader *r)
{
    for (size_t i = 0; i < r->n_space; i++)
        calls_put(r, CALLS_CONTENT, r->space[i]);
    r->n_space = 0;
}

/* Content. White space beside calls belongs to neither. */
static void say_text(struct calls_reader *r, char c)
{
    if (is_space(c) && r->behind_call)
        return;
    if (is_space(c) && r->n_space < sizeof r->space) {
        r->space[r->n_space++] = c;
        return;
    }
    put_spaces(r);
    r->had_text = true;
    r->behind_call = false;
    calls_put(r, CALLS_CONTENT, c);
}

/* It is not a call: the text held back for it is content. */
static void give_back(struct calls_reader *r)
{
    size_t n = r->n_raw;
    r->mode = MODE_TEXT;
    r->had_text = true;
    r->n_raw = 0;
    for (size_t i = 0; i < n; i++)
        say_text(r, r->raw[i]);
}

/* ---------------------------------------------------------------- markers */

int calls_match(struct calls_reader *r, const char *const *marker, int n)
{
    for (int i = 0; i < n; i++)
        if (strlen(marker[i]) == r->n_held && memcmp(marker[i], r->held, r->n_held) == 0) {
            r->n_held = 0;
            return i;
        }
    for (int i = 0; i < n; i++)
        if (strlen(marker[i]) > r->n_held && memcmp(marker[i], r->held, r->n_held) == 0)
            return MARKER_MORE;
    return MARKER_NONE;
}

/* Adds a byte; bytes that can no longer be part of a marker go to f. Returns the complete marker, or MARKER_MORE. */
static int find_marker(struct calls_reader *r, char c, const char *const *marker, int n,
                       void (*f)(struct calls_reader *r, char c))
{
    r->held[r->n_held++] = c;
    for (;;) {
        int found = r->n_held > 0 ? calls_match(r, marker, n) : MARKER_MORE;
        if (found != MARKER_NONE)
            return found;
        char loose = r->held[0];
        memmove(r->held, r->held + 1, --r->n_held);
        if (f != NULL)
            f(r, loose);
    }
}

/* ---------------------------------------------------------------- one call */

static void open_call(struct calls_reader *r, const char *marker)
{
    r->n_raw = strlen(marker);
    memcpy(r->raw, marker, r->n_raw);
    r->mode = MODE_OPEN;
    r->in_list = false;
}

static void begin_object(struct calls_reader *r)
{
    r->json = (struct call_json){0};
    r->committed = false;
    r->argument_at = r->n_argument = 0;
    r->mode = MODE_OBJECT;
}

/* The call has ended: choose the next mode. */
static void close_call(struct calls_reader *r)
{
    r->n_raw = 0;
    r->mode = r->format == CALLS_HERMES ? MODE_TAIL : MODE_BETWEEN;
}

static bool keep_raw(struct calls_reader *r, char c)
{
    if (r->n_raw == sizeof r->raw)
        return false;
    r->raw[r->n_raw++] = c;
    return true;
}

static void put_arguments(struct calls_reader *r, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        calls_put(r, CALLS_ARGUMENTS, text[i]);
}

/* The name is known and the arguments have begun, so it is a call. */
static void commit(struct calls_reader *r)
{
    calls_begin(r, r->json.name, strlen(r->json.name));
    put_arguments(r, r->raw + r->argument_at, r->n_argument);
}

static void take_behind(struct calls_reader *r, char c);
static void take_text(struct calls_reader *r, char c);

/* It is not a call, and c, which would have been its next byte, is text as well. */
static void refuse(struct calls_reader *r, char c)
{
    give_back(r);
    take_text(r, c);
}

/* A byte of an object that may still turn out not to be a call. */
static void take_early(struct calls_reader *r, char c)
{
    if (!keep_raw(r, c)) {
        refuse(r, c);
        return;
    }
    enum call_step step = call_json_take(&r->json, c);
    if (step == CALL_ARGUMENT && r->n_argument++ == 0)
        r->argument_at = r->n_raw - 1;
    bool complete = step == CALL_DONE && r->json.name[0] != '\0' && r->format != CALLS_LLAMA3;
    if (step == CALL_BAD) {
        r->n_raw--;
        refuse(r, c);
    } else if (r->json.name[0] != '\0' && (r->json.has_arguments || complete)) {
        commit(r);
        if (!r->json.has_arguments)
            put_arguments(r, "{}", 2);
    } else if (step == CALL_DONE) {
        give_back(r);
    }
    if (step == CALL_DONE && r->committed)
        close_call(r);
}

static void take_object(struct calls_reader *r, char c)
{
    if (!r->committed) {
        take_early(r, c);
        return;
    }
    enum call_step step = call_json_take(&r->json, c);
    if (step == CALL_ARGUMENT)
        calls_put(r, CALLS_ARGUMENTS, c);
    if (step != CALL_DONE && step != CALL_BAD)
        return;
    close_call(r);
    if (step == CALL_BAD) /* the text after a broken call is not part of it */
        take_behind(r, c);
}

static void take_tail(struct calls_reader *r, char c)
{
    int found = find_marker(r, c, hermes_tail, 2, NULL);
    if (found == 0)
        r->mode = MODE_TEXT;
    else if (found == 1)
        open_call(r, hermes_markers[0]);
}

/* ---------------------------------------------------------------- bare names */

/* [ARGS], or a brace, ends the name. */
static void begin_value(struct calls_reader *r)
{
    size_t end = r->n_raw, begin = r->n_name;
    while (end > begin && is_space(r->raw[end - 1]))
        end--;
    const char *id = NULL; /* [CALL_ID]x after the name is ignored */
    for (size_t i = begin; id == NULL && i + 9 <= end; i++)
        if (memcmp(r->raw + i, "[CALL_ID]", 9) == 0)
            id = r->raw + i;
    if (id != NULL)
        end = (size_t)(id - r->raw);
    if (end == begin) {
        give_back(r);
        return;
    }
    calls_begin(r, r->raw + begin, end - begin);
    /* The value is followed as if it were the only member of an object. */
    r->json = (struct call_json){.at = CALL_VALUE, .key = CALL_IS_ARGUMENTS};
    r->n_raw = 0;
    r->mode = MODE_VALUE;
}

static void keep_or_give_back(struct calls_reader *r, char c)
{
    if (r->mode == MODE_NAME && r->n_raw < r->n_name + CALL_NAME_BYTES && keep_raw(r, c))
        return;
    if (r->mode == MODE_NAME)
        give_back(r);
    say_text(r, c);
}

static void take_value(struct calls_reader *r, char c)
{
    enum call_step step = call_json_take(&r->json, c);
    if (step == CALL_ARGUMENT)
        calls_put(r, CALLS_ARGUMENTS, c);
    if (r->json.at == CALL_BEHIND_VALUE || step == CALL_BAD || step == CALL_DONE)
        r->mode = MODE_TEXT;
    if (step == CALL_BAD)
        take_text(r, c);
}

static void take_name(struct calls_reader *r, char c)
{
    if (c == '{' && r->n_held == 0) {
        begin_value(r);
        if (r->mode == MODE_VALUE)
            take_value(r, c);
        else
            say_text(r, c);
    } else if (find_marker(r, c, argument_markers, 1, keep_or_give_back) == 0) {
        begin_value(r);
    }
}

/* ---------------------------------------------------------------- surrounding text */

/* After a marker: white space, then a list, an object, or a name. */
static void take_open(struct calls_reader *r, char c)
{
    bool mistral = r->format == CALLS_MISTRAL || r->format == CALLS_MISTRAL_ARGS;
    if (c == '{') {
        begin_object(r);
        take_object(r, c);
    } else if ((!is_space(c) && (!mistral || r->in_list)) || !keep_raw(r, c)) {
        refuse(r, c);
    } else if (c == '[') {
        r->in_list = true;
    } else if (!is_space(c)) {
        r->n_name = r->n_raw - 1;
        r->mode = MODE_NAME;
    }
}

static void take_text(struct calls_reader *r, char c)
{
    const char *const *markers = r->format == CALLS_HERMES   ? hermes_markers
                                 : r->format == CALLS_LLAMA3 ? llama_markers
                                                             : mistral_markers;
    bool bare = r->format == CALLS_LLAMA3 && c == '{' && r->n_held == 0 && !r->had_text;
    if (bare) {
        r->n_raw = 0;
        begin_object(r);
        take_object(r, c);
    } else if (find_marker(r, c, markers, 1, say_text) == 0) {
        open_call(r, markers[0]);
    }
}

/* Another object, or the end of the list. */
static void take_next(struct calls_reader *r, char c)
{
    if (c == '{') {
        begin_object(r);
        take_object(r, c);
    } else if (c == ']' && r->in_list) {
        r->mode = MODE_TEXT;
    } else if (!is_space(c) && c != ',' && !(c == ';' && !r->in_list)) {
        r->mode = MODE_TEXT;
        take_text(r, c);
    }
}

static void take_behind(struct calls_reader *r, char c)
{
    if (r->mode == MODE_TAIL)
        take_tail(r, c);
    else
        take_next(r, c);
}

static void take_said(struct calls_reader *r, char c)
{
    if (r->format == CALLS_NONE)
        say_text(r, c);
    else
        take_text(r, c);
}

static void take_thought(struct calls_reader *r, char c)
{
    calls_take_thought(r, c, take_said);
}

static void take_byte(struct calls_reader *r, char c)
{
    static void (*const by_mode[])(struct calls_reader * r,
                                   char c) = {[MODE_TEXT] = take_said,         [MODE_START] = take_thought,
                                              [MODE_THOUGHT] = take_thought,   [MODE_OPEN] = take_open,
                                              [MODE_OBJECT] = take_object,     [MODE_BETWEEN] = take_next,
                                              [MODE_NAME] = take_name,         [MODE_VALUE] = take_value,
                                              [MODE_TAIL] = take_tail,         [MODE_HEADER] = calls_take_harmony,
                                              [MODE_BODY] = calls_take_harmony};
    by_mode[r->mode](r, c);
}

struct calls_reader *calls_open(struct calls_way way)
{
    static const enum calls_mode begins[] = {
        [THOUGHTS_NONE] = MODE_TEXT, [THOUGHTS_MARKED] = MODE_START, [THOUGHTS_BEGUN] = MODE_THOUGHT};
    struct calls_reader *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->format = way.format;
    r->hidden = way.hidden;
    r->had_text = r->had_thought = way.continues;
    r->mode = way.format != CALLS_HARMONY ? begins[way.thoughts] : way.continues ? MODE_BODY : MODE_HEADER;
    return r;
}

void calls_close(struct calls_reader *r)
{
    free(r);
}

void calls_read(struct calls_reader *r, const char *text, size_t bytes, const struct calls_sink *to)
{
    r->to = to;
    for (size_t i = 0; i < bytes; i++)
        take_byte(r, text[i]);
    calls_flush(r);
}

void calls_end(struct calls_reader *r, const struct calls_sink *to)
{
    r->to = to;
    if (r->format == CALLS_HARMONY) {
        calls_end_harmony(r);
    } else {
        bool opened = r->mode == MODE_OPEN || r->mode == MODE_NAME || (r->mode == MODE_OBJECT && !r->committed);
        calls_end_thought(r, take_said);
        size_t n = r->mode != MODE_TAIL && r->mode != MODE_VALUE ? r->n_held : 0;
        if (opened && r->n_raw > 0)
            give_back(r);
        for (size_t i = 0; i < n; i++)
            say_text(r, r->held[i]);
        if (!r->behind_call)
            put_spaces(r);
    }
    r->n_held = 0;
    r->n_raw = 0;
    r->n_space = 0;
    calls_flush(r);
}

int calls_count(const struct calls_reader *r)
{
    return r->n_calls;
}
