/* text/chat_continue.c - chats whose last message is to be continued, cut where its content ends. As transformers does
 * it: a mark is appended to that content, and the rendered text ends where the mark is. */
#include "text/chat_parts.h"

#include <stdlib.h>
#include <string.h>

static const char mark[] = "CONTINUE_FINAL_MESSAGE_TAG "; /* the space tells whether the template trims contents */
#define MARK_BYTES (sizeof mark - 2)                      /* without the space */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The text with the mark behind it; NULL: out of memory. */
static json_t *marked(const json_t *text)
{
    size_t n = json_string_length(text);
    char *both = malloc(n + sizeof mark);
    json_t *value = NULL;
    if (both != NULL) {
        memcpy(both, json_string_value(text), n);
        memcpy(both + n, mark, sizeof mark);
        value = json_stringn(both, n + sizeof mark - 1);
    }
    free(both);
    return value;
}

/* A copy of the list with `item` as its last one, which is taken over. */
static json_t *with_last(const json_t *list, json_t *item)
{
    json_t *copy = json_copy((json_t *)list);
    if (json_array_set_new(copy, json_array_size(list) - 1, item) == 0)
        return copy;
    json_decref(copy);
    return NULL;
}

/* A copy of the object with another member, which is taken over. */
static json_t *with_member(const json_t *object, const char *name, json_t *value)
{
    json_t *copy = json_copy((json_t *)object);
    if (json_object_set_new(copy, name, value) == 0)
        return copy;
    json_decref(copy);
    return NULL;
}

static const json_t *last_of(const json_t *list)
{
    return json_array_get(list, json_array_size(list) - 1);
}

json_t *chat_mark_end(const json_t *messages)
{
    const json_t *last = last_of(messages), *content = json_object_get(last, "content"), *part = last_of(content);
    json_t *longer = part == NULL
                         ? marked(content)
                         : with_last(content, with_member(part, "text", marked(json_object_get(part, "text"))));
    return with_last(messages, with_member(last, "content", longer));
}

/* The byte behind offset `at` of piece i, or NUL. */
static char byte_behind(const struct jinja_text *text, size_t i, size_t at)
{
    if (at < text->piece[i].bytes)
        return text->piece[i].text[at];
    return i + 1 < text->n ? text->piece[i + 1].text[0] : '\0';
}

static void drop_spaces(struct jinja_text *text)
{
    while (text->n > 0) {
        struct jinja_piece *p = &text->piece[text->n - 1];
        while (p->bytes > 0 && is_space(p->text[p->bytes - 1]))
            p->bytes--;
        if (p->bytes > 0)
            return;
        text->n--;
    }
}

/* The offset of the mark's last occurrence in a piece, or -1. */
static long find_mark(const struct jinja_piece *p)
{
    for (size_t at = p->foreign && p->bytes >= MARK_BYTES ? p->bytes - MARK_BYTES + 1 : 0; at > 0; at--)
        if (memcmp(p->text + at - 1, mark, MARK_BYTES) == 0)
            return (long)at - 1;
    return -1;
}

/* Does the rendered chat contain the text, but for white space around it? */
static bool has_text(const struct jinja_text *text, const json_t *wanted)
{
    const char *s = json_string_value(wanted);
    size_t n = json_string_length(wanted), bytes = 0;
    while (n > 0 && is_space(s[n - 1]))
        n--;
    for (; n > 0 && is_space(s[0]); n--)
        s++;
    char *all = chat_text(text, &bytes);
    bool has = all != NULL && memmem(all, bytes, s, n) != NULL;
    free(all);
    return has;
}

bool chat_cut_end(struct jinja_text *text, const json_t *messages)
{
    const json_t *content = json_object_get(last_of(messages), "content"), *part = last_of(content);
    if (!has_text(text, part == NULL ? content : json_object_get(part, "text")))
        return false;
    for (size_t i = text->n; i > 0; i--) {
        struct jinja_piece *p = &text->piece[i - 1];
        long at = find_mark(p);
        if (at < 0)
            continue;
        bool trimmed = byte_behind(text, i - 1, (size_t)at + MARK_BYTES) != ' ';
        p->bytes = (size_t)at;
        text->n = i;
        if (trimmed)
            drop_spaces(text);
        return true;
    }
    return false;
}
