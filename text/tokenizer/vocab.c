/* text/tokenizer/vocab.c - see vocab.h. */
#include "text/tokenizer/vocab.h"

#include <stdlib.h>
#include <string.h>

/* Eight bytes a step, multiply and fold; only speed depends on its quality. */
static uint64_t hash(const char *s, size_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ n;
    for (; n >= 8; s += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, s, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    uint64_t tail = 0;
    memcpy(&tail, s, n);
    h = (h ^ tail) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
    h *= 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 29;
}

int vocab_open(struct vocab *v, int32_t n_ids, size_t n_tokens, size_t text_bytes, struct err *e)
{
    v->n_slots = 16;
    while (v->n_slots < 2 * n_tokens)
        v->n_slots *= 2;
    v->n_ids = n_ids;
    v->text_capacity = text_bytes;
    v->text = err_calloc(e, text_bytes, 1, "vocabulary text");
    v->token = err_calloc(e, (unsigned long)n_ids, sizeof *v->token, "vocabulary");
    v->slot = err_calloc(e, v->n_slots, sizeof *v->slot, "vocabulary index");
    if (v->text == NULL || v->token == NULL || v->slot == NULL) {
        vocab_close(v);
        return -1;
    }
    memset(v->slot, 0xff, v->n_slots * sizeof *v->slot);
    return 0;
}

void vocab_close(struct vocab *v)
{
    free(v->text);
    free(v->token);
    free(v->slot);
    *v = (struct vocab){0};
}

/* The slot that holds the content, or the empty one where it would go. */
static size_t find_slot(const struct vocab *v, const char *content, size_t bytes)
{
    size_t i = hash(content, bytes) & (v->n_slots - 1);
    for (; v->slot[i] >= 0; i = (i + 1) & (v->n_slots - 1)) {
        const struct vocab_token *token = &v->token[v->slot[i]];
        if (token->bytes == bytes && memcmp(v->text + token->start, content, bytes) == 0)
            break;
    }
    return i;
}

int vocab_add(struct vocab *v, int32_t id, const char *content, size_t bytes)
{
    size_t slot = find_slot(v, content, bytes);
    if (v->slot[slot] >= 0 || v->token[id].present || bytes > v->text_capacity - v->text_bytes)
        return -1;
    v->slot[slot] = id;
    v->token[id] = (struct vocab_token){v->text_bytes, (uint32_t)bytes, true};
    memcpy(v->text + v->text_bytes, content, bytes);
    v->text_bytes += bytes;
    v->n_tokens++;
    if (bytes > v->longest)
        v->longest = bytes;
    return 0;
}

int32_t vocab_find(const struct vocab *v, const char *content, size_t bytes)
{
    if (v->n_slots == 0 || bytes > v->longest)
        return -1;
    return v->slot[find_slot(v, content, bytes)];
}

const char *vocab_text(const struct vocab *v, int32_t id, size_t *bytes)
{
    if (id < 0 || id >= v->n_ids || !v->token[id].present)
        return NULL;
    *bytes = v->token[id].bytes;
    return v->text + v->token[id].start;
}

/* Reads one id; -1 and *e on failure. */
static int32_t load_id(const struct source *l, const char *key, const json_t *value)
{
    if (!json_is_integer(value))
        return ERR(l->e, ERR_INPUT, "%s: the id of token \"%.80s\" is %s, expected an integer", l->file, key,
                   json_is_real(value) ? "a real number" : "not a number");
    json_int_t id = json_integer_value(value);
    if (id < 0 || id >= SOURCE_MAX_IDS)
        return ERR(l->e, ERR_INPUT, "%s: the id of token \"%.80s\" is %lld, expected one in [0, %d]", l->file, key,
                   (long long)id, SOURCE_MAX_IDS - 1);
    return (int32_t)id;
}

int vocab_load(struct vocab *v, const struct source *l, const json_t *object)
{
    const char *key;
    json_t *value;
    size_t text_bytes = 0, longest = 0;
    int32_t highest = -1;
    json_object_foreach((json_t *)object, key, value)
    {
        int32_t id = load_id(l, key, value);
        if (id < 0)
            return -1;
        size_t bytes = strlen(key);
        text_bytes += bytes;
        longest = bytes > longest ? bytes : longest;
        highest = id > highest ? id : highest;
    }
    if (highest < 0)
        return ERR(l->e, ERR_INPUT, "%s: the vocabulary is empty", l->file);
    if (vocab_open(v, highest + 1, json_object_size(object), text_bytes, l->e) != 0)
        return -1;
    char *content = err_calloc(l->e, longest + 1, 1, "token");
    int rc = content == NULL ? -1 : 0;
    json_object_foreach((json_t *)object, key, value)
    {
        if (rc != 0)
            break;
        int32_t id = (int32_t)json_integer_value(value);
        size_t bytes = strlen(key), other_bytes = 0;
        memcpy(content, key, bytes);
        bytes = source_restore(l, content, bytes);
        if (vocab_add(v, id, content, bytes) != 0) {
            const char *other = vocab_text(v, id, &other_bytes);
            rc = ERR(l->e, ERR_INPUT, "%s: tokens \"%.80s\" and \"%.*s\" both have id %d", l->file, key,
                     (int)(other_bytes < 80 ? other_bytes : 80), other != NULL ? other : "", (int)id);
        }
    }
    free(content);
    return rc;
}
