/* text/tokenizer/added.c - see added.h. */
#include "text/tokenizer/added.h"

#include "base/json.h"
#include "text/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

#define MAX_CONTENT_BYTES ((size_t)2048)

static int32_t new_node(struct added_trie *t, unsigned char byte, struct err *e)
{
    if (t->n >= INT32_MAX || buffer_grow_array((void **)&t->node, &t->capacity, t->n + 1, sizeof *t->node, e) != 0)
        return -1;
    t->node[t->n] = (struct added_node){.child = -1, .sibling = -1, .token = -1, .byte = byte};
    return (int32_t)t->n++;
}

/* The child of `parent` for a byte, or -1. */
static int32_t find_child(const struct added_trie *t, int32_t parent, unsigned char byte)
{
    if (parent == 0)
        return t->first[byte];
    int32_t child = t->node[parent].child;
    while (child >= 0 && t->node[child].byte != byte)
        child = t->node[child].sibling;
    return child;
}

static int trie_add(struct added_trie *t, const char *text, size_t bytes, int32_t token, struct err *e)
{
    int32_t at = 0;
    if (t->n == 0) {
        memset(t->first, 0xff, sizeof t->first);
        if (new_node(t, 0, e) < 0)
            return -1;
    }
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        int32_t child = find_child(t, at, byte);
        if (child < 0) {
            child = new_node(t, byte, e);
            if (child < 0)
                return -1;
            if (at == 0) {
                t->first[byte] = child;
            } else {
                t->node[child].sibling = t->node[at].child;
                t->node[at].child = child;
            }
        }
        at = child;
    }
    if (at != 0 && t->node[at].token < 0)
        t->node[at].token = token;
    return 0;
}

/* Longest token that starts at s: its index, and its length in *length; -1: none. */
static int32_t trie_longest(const struct added_trie *t, const char *s, size_t n, size_t *length)
{
    int32_t token = -1, at = 0;
    for (size_t i = 0; i < n; i++) {
        at = find_child(t, at, (unsigned char)s[i]);
        if (at < 0)
            break;
        if (t->node[at].token >= 0) {
            token = t->node[at].token;
            *length = i + 1;
        }
    }
    return token;
}

void added_close(struct added *a)
{
    for (size_t i = 0; i < a->n; i++)
        free(a->token[i].decoded);
    free(a->token);
    free(a->by_id);
    free(a->raw.node);
    free(a->normalized.node);
    vocab_close(&a->content);
    *a = (struct added){0};
}

const struct added_token *added_get(const struct added *a, int32_t id)
{
    return id < 0 || id >= a->content.n_ids || a->by_id[id] < 0 ? NULL : &a->token[a->by_id[id]];
}

/* Reads element i of the list into *token and *content (malloc'ed); 1 if it is to be left out. */
static int load_token(struct added_token *token, const struct source *l, const json_t *item, size_t i,
                      const struct vocab *model, char **content, size_t *bytes)
{
    char what[48];
    (void)snprintf(what, sizeof what, "added_tokens[%zu]", i);
    if (!json_is_object(item))
        return ERR(l->e, ERR_INPUT, "%s: %s is %s, expected an object", l->file, what, json_type_name(item));
    *content = source_member(l, item, "content", what, bytes);
    if (*content == NULL)
        return -1;
    const json_t *id = json_object_get(item, "id");
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= SOURCE_MAX_IDS)
        return ERR(l->e, ERR_INPUT, "%s: %s \"%.60s\" has no usable \"id\", expected an integer in [0, %d]", l->file,
                   what, *content, SOURCE_MAX_IDS - 1);
    token->id = (int32_t)json_integer_value(id);
    token->single_word = source_bool(l, item, "single_word", -1, what);
    token->lstrip = source_bool(l, item, "lstrip", -1, what);
    token->rstrip = source_bool(l, item, "rstrip", -1, what);
    token->normalized = source_bool(l, item, "normalized", -1, what);
    token->special = source_bool(l, item, "special", -1, what);
    if (l->e->code != ERR_NONE)
        return -1;
    if (*bytes > MAX_CONTENT_BYTES)
        return ERR(l->e, ERR_INPUT, "%s: %s has a content of %zu bytes, at most %zu are accepted", l->file, what,
                   *bytes, MAX_CONTENT_BYTES);
    size_t other_bytes = 0;
    int32_t known = vocab_find(model, *content, *bytes);
    const char *other = vocab_text(model, token->id, &other_bytes);
    if (known >= 0) {
        token->id = known;
    } else if (other != NULL) {
        return ERR(l->e, ERR_INPUT, "%s: %s \"%.60s\" has id %d, which the vocabulary gives to \"%.*s\"", l->file, what,
                   *content, (int)token->id, (int)(other_bytes < 60 ? other_bytes : 60), other);
    }
    return 0;
}

/* Enter token k, with this content, into the indexes. */
static int enter_token(struct added *a, const struct source *l, size_t k, const char *content, size_t bytes,
                       const struct normalizer *normalizer, struct matcher *m)
{
    struct added_token *token = &a->token[k];
    struct buffer form = {0};
    if (vocab_add(&a->content, token->id, content, bytes) != 0)
        return ERR(l->e, ERR_INPUT, "%s: added token \"%.60s\" with id %d: its content or its id is listed twice",
                   l->file, content, (int)token->id);
    a->by_id[token->id] = (int32_t)k;
    int rc;
    if (token->normalized)
        rc = normalize_run(normalizer, m, content, bytes, &form, l->e);
    else
        rc = (buffer_add(&form, content, bytes), buffer_check(&form, l->e));
    if (rc == 0)
        rc = trie_add(token->normalized ? &a->normalized : &a->raw, form.data, form.bytes, (int32_t)k, l->e);
    token->decoded = form.data;
    token->decoded_bytes = form.bytes;
    return rc;
}

static int enter_all(struct added *a, const struct source *l, const json_t *list, const struct vocab *model,
                     const struct normalizer *normalizer, struct matcher *m)
{
    int32_t highest = -1;
    size_t text_bytes = 0, n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        int64_t id = json_integer_value(json_object_get(item, "id"));
        highest = id > highest && id < SOURCE_MAX_IDS ? (int32_t)id : highest;
        text_bytes += json_string_length(json_object_get(item, "content"));
    }
    int32_t n_ids = highest + 1 > model->n_ids ? highest + 1 : model->n_ids;
    if (vocab_open(&a->content, n_ids, n, text_bytes, l->e) != 0)
        return -1;
    a->token = err_calloc(l->e, n, sizeof *a->token, "added tokens");
    a->by_id = err_calloc(l->e, (unsigned long)n_ids, sizeof *a->by_id, "added tokens");
    if (a->token == NULL || a->by_id == NULL)
        return -1;
    memset(a->by_id, 0xff, (size_t)n_ids * sizeof *a->by_id);
    for (size_t i = 0; i < n; i++) {
        char *content = NULL;
        size_t bytes = 0;
        int rc = load_token(&a->token[a->n], l, json_array_get(list, i), i, model, &content, &bytes);
        if (rc == 0 && bytes > 0) {
            rc = enter_token(a, l, a->n, content, bytes, normalizer, m);
            a->n++;
        }
        free(content);
        if (rc != 0)
            return -1;
    }
    return 0;
}

int added_load(struct added *a, const struct source *l, const json_t *list, const struct vocab *model,
               const struct normalizer *normalizer)
{
    struct matcher m = {0};
    if (list == NULL || json_is_null(list))
        return 0;
    if (!json_is_array(list))
        return ERR(l->e, ERR_INPUT, "%s: \"added_tokens\" is %s, expected an array", l->file, json_type_name(list));
    int rc = enter_all(a, l, list, model, normalizer, &m);
    matcher_close(&m);
    for (size_t i = 0; rc == 0 && i < a->n; i++) {
        int32_t named = vocab_find(&a->content, a->token[i].decoded, a->token[i].decoded_bytes);
        a->token[i].skipped = named >= 0 && a->token[a->by_id[named]].special;
    }
    return rc;
}

/* Whether a match [start, stop) of a single_word token has a word character next to it. */
static bool touches_word(const char *s, size_t n, size_t start, size_t stop)
{
    int32_t cp;
    if (start > 0) {
        size_t i = start - 1;
        while (i > 0 && ((unsigned char)s[i] & 0xc0) == 0x80)
            i--;
        (void)utf8_next(s + i, &cp);
        if (unicode_is_word(cp))
            return true;
    }
    if (stop < n) {
        (void)utf8_next(s + stop, &cp);
        return unicode_is_word(cp);
    }
    return false;
}

/* The beginning of the white space that ends at `start`, not before `limit`. */
static size_t spaces_before(const char *s, size_t start, size_t limit)
{
    while (start > limit) {
        int32_t cp;
        size_t i = start - 1;
        while (i > limit && ((unsigned char)s[i] & 0xc0) == 0x80)
            i--;
        (void)utf8_next(s + i, &cp);
        if (!unicode_is_space(cp))
            break;
        start = i;
    }
    return start;
}

static size_t spaces_behind(const char *s, size_t n, size_t stop)
{
    while (stop < n) {
        int32_t cp;
        size_t length = (size_t)utf8_next(s + stop, &cp);
        if (!unicode_is_space(cp))
            break;
        stop += length;
    }
    return stop;
}

/* Bytes from `at` to the end of the span around it; 0: it is in none. */
static size_t span_room(const struct spans *s, size_t at)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->span[middle].stop <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->n && s->span[low].start <= at ? s->span[low].stop - at : 0;
}

int added_split(const struct added *a, const struct added_trie *trie, const struct pieces *in,
                const struct text_piece *p, const struct spans *special, struct pieces *out, struct err *e)
{
    const char *s = in->text.data + p->start;
    size_t n = p->bytes, done = 0, space_from = SIZE_MAX, space_to = 0;
    for (size_t i = 0, length = 0; i < n; i += length) {
        int32_t found = trie->first[(unsigned char)s[i]] < 0 ? -1 : trie_longest(trie, s + i, n - i, &length);
        if (found < 0) {
            length = 1;
            continue;
        }
        if (special != NULL && a->token[found].special) { /* within a span: the longest match inside of it */
            size_t room = span_room(special, p->start + i);
            if (length > room)
                found = trie_longest(trie, s + i, room < n - i ? room : n - i, &length);
            if (found < 0) {
                length = 1;
                continue;
            }
        }
        const struct added_token *token = &a->token[found];
        size_t start = i, stop = i + length;
        if (token->single_word && touches_word(s, n, start, stop))
            continue;
        if (token->lstrip)
            start = start > done ? spaces_before(s, start, done) : done;
        if (token->rstrip && !(stop >= space_from && stop < space_to)) { /* every run is scanned once */
            space_from = stop;
            space_to = spaces_behind(s, n, stop);
        }
        if (token->rstrip)
            stop = space_to;
        if (done < start && pieces_add(out, p->start + done, start - done, -1, p->first && done == 0, e) != 0)
            return -1;
        if (pieces_add(out, p->start + start, stop > start ? stop - start : 0, token->id, false, e) != 0)
            return -1;
        done = stop; /* as in the library, a later match may lie in white space that this one has consumed */
    }
    return done >= n ? 0 : pieces_add(out, p->start + done, n - done, -1, p->first && done == 0, e);
}
