/* text/calls/call_json.c - see call_json.h. Values are only followed through their quotes and brackets; whether they
 * are valid JSON is left to the reader of the arguments. */
#include "text/calls/call_json.h"

#include <jansson.h>
#include <string.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* The characters that may stand outside of strings. */
static bool is_json(char c)
{
    return is_space(c) || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != '\0' && strchr("{}[],:+-.\"", c) != NULL);
}

/* A longer word cannot be one of the expected ones: keep what fits. */
static void keep_letter(struct call_json *s, char c)
{
    if (s->n_word < sizeof s->word)
        s->word[s->n_word++] = c;
}

/* Follow a string; true: the byte ends it. */
static bool string_ends(struct call_json *s, char c)
{
    bool ends = c == '"' && !s->escaped;
    s->escaped = c == '\\' && !s->escaped;
    s->in_string = !ends;
    return ends;
}

static void read_key(struct call_json *s)
{
    static const struct {
        const char *text;
        int key;
    } keys[] = {
        {"\"name\"", CALL_IS_NAME}, {"\"arguments\"", CALL_IS_ARGUMENTS}, {"\"parameters\"", CALL_IS_ARGUMENTS}};
    s->key = CALL_OTHER;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (s->n_word == strlen(keys[i].text) && memcmp(s->word, keys[i].text, s->n_word) == 0)
            s->key = keys[i].key;
}

/* The word, a string with its quotes, becomes the name. */
static bool read_name(struct call_json *s)
{
    json_t *value = json_loadb(s->word, s->n_word, JSON_DECODE_ANY, NULL);
    size_t bytes = json_string_length(value);
    bool good = bytes > 0 && bytes < sizeof s->name;
    if (good)
        memcpy(s->name, json_string_value(value), bytes + 1);
    json_decref(value);
    return good;
}

static enum call_step begin_value(struct call_json *s, char c)
{
    bool opens = c == '{' || c == '[';
    bool twice = (s->key == CALL_IS_NAME && s->name[0] != '\0') || (s->key == CALL_IS_ARGUMENTS && s->has_arguments);
    if (is_space(c))
        return CALL_MORE;
    if (twice || (s->key == CALL_IS_NAME && c != '"') || !is_json(c) || strchr("}],:", c) != NULL)
        return CALL_BAD;
    s->at = CALL_IN_VALUE;
    s->depth = opens;
    s->in_string = c == '"';
    s->escaped = false;
    s->n_word = 0;
    keep_letter(s, c);
    s->has_arguments = s->has_arguments || s->key == CALL_IS_ARGUMENTS;
    return s->key == CALL_IS_ARGUMENTS ? CALL_ARGUMENT : CALL_MORE;
}

/* A byte after a value: the next key, or the end of the object. */
static enum call_step take_behind(struct call_json *s, char c)
{
    s->at = c == ',' ? CALL_KEY : CALL_BEHIND_VALUE;
    return c == '}' ? CALL_DONE : c == ',' || is_space(c) ? CALL_MORE : CALL_BAD;
}

static enum call_step take_value(struct call_json *s, char c)
{
    enum call_step mine = s->key == CALL_IS_ARGUMENTS ? CALL_ARGUMENT : CALL_MORE;
    bool ends = false;
    if (s->in_string) {
        if (s->key == CALL_IS_NAME)
            keep_letter(s, c);
        ends = string_ends(s, c) && s->depth == 0;
    } else if (s->depth == 0 && (is_space(c) || c == ',' || c == '}')) {
        return take_behind(s, c); /* after a number or a word */
    } else if (!is_json(c) || (s->depth == 0 && strchr("{[]:\"", c) != NULL)) {
        return CALL_BAD;
    } else {
        s->in_string = c == '"';
        s->depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        ends = s->depth == 0 && (c == '}' || c == ']');
    }
    if (ends)
        s->at = CALL_BEHIND_VALUE;
    return ends && s->key == CALL_IS_NAME && !read_name(s) ? CALL_BAD : mine;
}

static enum call_step begin_key(struct call_json *s, char c)
{
    if (is_space(c))
        return CALL_MORE;
    if (c == '}' && s->at == CALL_FIRST_KEY)
        return CALL_DONE;
    s->at = CALL_IN_KEY;
    s->n_word = 0;
    s->escaped = false;
    keep_letter(s, c);
    return c == '"' ? CALL_MORE : CALL_BAD;
}

enum call_step call_json_take(struct call_json *s, char c)
{
    switch (s->at) {
    case CALL_OPEN:
        s->at = CALL_FIRST_KEY;
        return c == '{' ? CALL_MORE : CALL_BAD;
    case CALL_FIRST_KEY:
    case CALL_KEY:
        return begin_key(s, c);
    case CALL_IN_KEY:
        keep_letter(s, c);
        if (string_ends(s, c)) {
            s->at = CALL_COLON;
            read_key(s);
        }
        return CALL_MORE;
    case CALL_COLON:
        s->at = c == ':' ? CALL_VALUE : CALL_COLON;
        return c == ':' || is_space(c) ? CALL_MORE : CALL_BAD;
    case CALL_VALUE:
        return begin_value(s, c);
    case CALL_IN_VALUE:
        return take_value(s, c);
    default:
        return take_behind(s, c);
    }
}
