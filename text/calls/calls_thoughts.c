/* text/calls/calls_thoughts.c - reasoning before an answer's content: <think>..</think>. White space around the tags
 * belongs to neither. */
#include "text/calls/calls_parts.h"

#include <string.h>

static const char *const open_marker[] = {"<think>"}, *const close_marker[] = {"</think>"};

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

bool calls_thinks(const char *source, size_t bytes)
{
    return memmem(source, bytes, "</think>", 8) != NULL;
}

bool calls_begins_thought(const char *end, size_t bytes)
{
    size_t n = strlen(open_marker[0]);
    while (bytes > 0 && is_space(end[bytes - 1]))
        bytes--;
    return bytes >= n && memcmp(end + bytes - n, open_marker[0], n) == 0;
}

bool calls_in_thought(const char *text, size_t bytes)
{
    const char *end = text + bytes, *open = NULL, *at = text;
    while ((at = memmem(at, (size_t)(end - at), open_marker[0], strlen(open_marker[0]))) != NULL)
        open = ++at;
    return open != NULL && memmem(open, (size_t)(end - open), close_marker[0], strlen(close_marker[0])) == NULL;
}

static void put_spaces(struct calls_reader *r)
{
    for (size_t i = 0; i < r->n_space; i++)
        calls_put(r, CALLS_REASONING, r->space[i]);
    r->n_space = 0;
}

/* White space is held back until the next byte; before the reasoning it is dropped. */
static void think(struct calls_reader *r, char c)
{
    bool kept = is_space(c) && r->n_space < sizeof r->space;
    if (kept && r->had_thought)
        r->space[r->n_space++] = c;
    if (kept)
        return;
    put_spaces(r);
    r->had_thought = true;
    calls_put(r, CALLS_REASONING, c);
}

/* There is no reasoning: the held bytes are text. */
static void begin_text(struct calls_reader *r, void (*text)(struct calls_reader *r, char c))
{
    char held[sizeof r->space + CALLS_HELD_BYTES];
    size_t n = r->n_space + r->n_held;
    memcpy(held, r->space, r->n_space);
    memcpy(held + r->n_space, r->held, r->n_held);
    r->n_space = r->n_held = 0;
    r->mode = MODE_TEXT;
    for (size_t i = 0; i < n; i++)
        text(r, held[i]);
}

static void take_start(struct calls_reader *r, char c, void (*text)(struct calls_reader *r, char c))
{
    bool space = is_space(c) && r->n_held == 0 && r->n_space < sizeof r->space;
    if (space) {
        r->space[r->n_space++] = c;
        return;
    }
    r->held[r->n_held++] = c;
    int found = calls_match(r, open_marker, 1);
    if (found == 0) {
        r->n_space = 0;
        r->mode = MODE_THOUGHT;
    } else if (found == MARKER_NONE) {
        begin_text(r, text);
    }
}

static void take_inner(struct calls_reader *r, char c)
{
    r->held[r->n_held++] = c;
    while (r->n_held > 0) {
        int found = calls_match(r, close_marker, 1);
        if (found == MARKER_MORE)
            return;
        if (found == 0) {
            r->n_space = 0;
            r->behind_call = true;
            r->mode = MODE_TEXT;
        } else {
            char loose = r->held[0];
            memmove(r->held, r->held + 1, --r->n_held);
            think(r, loose);
        }
    }
}

void calls_take_thought(struct calls_reader *r, char c, void (*text)(struct calls_reader *r, char c))
{
    if (r->mode == MODE_START)
        take_start(r, c, text);
    else
        take_inner(r, c);
}

void calls_end_thought(struct calls_reader *r, void (*text)(struct calls_reader *r, char c))
{
    if (r->mode == MODE_START)
        begin_text(r, text);
    if (r->mode != MODE_THOUGHT)
        return;
    for (size_t i = 0; i < r->n_held; i++)
        think(r, r->held[i]);
    r->n_held = r->n_space = 0;
}
