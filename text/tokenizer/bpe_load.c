/* text/tokenizer/bpe_load.c - the "model" part of tokenizer.json, and vocab.json + merges.txt. See bpe.h. */
#include "base/json.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bpe_close(struct bpe *b)
{
    vocab_close(&b->vocab);
    free(b->merge);
    bonds_close(&b->bonds);
    *b = (struct bpe){0};
}

static int open_merges(struct bpe *b, size_t n_merges, struct err *e)
{
    b->n_slots = 16;
    while (b->n_slots < 2 * n_merges)
        b->n_slots *= 2;
    b->merge = err_calloc(e, b->n_slots, sizeof *b->merge, "merges");
    if (b->merge == NULL)
        return -1;
    for (size_t i = 0; i < b->n_slots; i++)
        b->merge[i].rank = -1;
    return 0;
}

/* left, right: contents, side by side in joined[0, n_left + n_right). A repeated pair takes its last rank. */
static int add_merge(struct bpe *b, const struct source *l, size_t rank, const char *joined, size_t n_left,
                     size_t n_right)
{
    size_t n = n_left + n_right;
    int32_t left = vocab_find(&b->vocab, joined, n_left), right = vocab_find(&b->vocab, joined + n_left, n_right);
    int32_t id = vocab_find(&b->vocab, joined, n);
    if (left < 0 || right < 0 || id < 0) {
        const char *missing = left < 0 || id < 0 ? joined : joined + n_left;
        size_t bytes = left < 0 ? n_left : right < 0 ? n_right : n;
        if (left >= 0 && right < 0)
            missing = joined + n_left;
        return ERR(l->e, ERR_INPUT, "%s: merge %zu needs the token \"%.*s\", which is not in the vocabulary", l->file,
                   rank, (int)(bytes < 80 ? bytes : 80), missing);
    }
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = (pair * 0x9e3779b97f4a7c15u >> 32) & (b->n_slots - 1);
    while (b->merge[i].rank >= 0 && b->merge[i].pair != pair)
        i = (i + 1) & (b->n_slots - 1);
    b->merge[i] = (struct bpe_merge){pair, (int32_t)rank, id};
    return bonds_add(&b->bonds, joined, n_left, joined + n_left, n_right, l->e);
}

/* "left right", exactly one space. `line` is overwritten. */
static int add_merge_line(struct bpe *b, const struct source *l, size_t rank, char *line, size_t n)
{
    char *space = memchr(line, ' ', n);
    if (space == NULL || memchr(space + 1, ' ', n - (size_t)(space - line) - 1) != NULL)
        return ERR(l->e, ERR_INPUT, "%s: merge %zu is \"%.*s\", expected two tokens with one space between them",
                   l->file, rank, (int)(n < 80 ? n : 80), line);
    size_t n_left = (size_t)(space - line);
    memmove(space, space + 1, n - n_left - 1);
    return add_merge(b, l, rank, line, n_left, n - n_left - 1);
}

static int load_merge_pair(struct bpe *b, const struct source *l, size_t rank, const json_t *merge)
{
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
        return ERR(l->e, ERR_INPUT, "%s: merge %zu is an array of %zu, expected two strings", l->file, rank,
                   json_array_size(merge));
    size_t n_left = json_string_length(left), n_right = json_string_length(right);
    char *joined = err_calloc(l->e, n_left + n_right + 1, 1, "merge");
    if (joined == NULL)
        return -1;
    memcpy(joined, json_string_value(left), n_left);
    n_left = source_restore(l, joined, n_left);
    memcpy(joined + n_left, json_string_value(right), n_right);
    n_right = source_restore(l, joined + n_left, n_right);
    int rc = add_merge(b, l, rank, joined, n_left, n_right);
    free(joined);
    return rc;
}

static int load_merges(struct bpe *b, const struct source *l, const json_t *merges)
{
    if (!json_is_array(merges))
        return ERR(l->e, ERR_INPUT, "%s: model \"merges\" is %s, expected an array", l->file, json_type_name(merges));
    size_t n = json_array_size(merges);
    if (n >= INT32_MAX || open_merges(b, n, l->e) != 0)
        return -1;
    const json_t *first = json_array_get(merges, 0);
    for (size_t i = 0; i < n; i++) {
        const json_t *merge = json_array_get(merges, i);
        if (json_typeof(merge) != json_typeof(first) || !(json_is_array(merge) || json_is_string(merge)))
            return ERR(l->e, ERR_INPUT, "%s: merge %zu is %s and merge 0 is %s, expected all strings or all arrays",
                       l->file, i, json_type_name(merge), json_type_name(first));
        if (json_is_array(merge)) {
            if (load_merge_pair(b, l, i, merge) != 0)
                return -1;
            continue;
        }
        size_t bytes;
        char *line = source_string(l, merge, "merge", &bytes);
        if (line == NULL)
            return -1;
        int rc = strncmp(line, "#version", 8) == 0 ? 0 : add_merge_line(b, l, i, line, bytes);
        free(line);
        if (rc != 0)
            return -1;
    }
    return 0;
}

static void find_byte_tokens(struct bpe *b)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        b->byte_char_id[byte] = vocab_find(&b->vocab, text, utf8_put(text, unicode_byte_to_char(byte)));
        (void)snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        b->byte_hex_id[byte] = vocab_find(&b->vocab, text, 6);
    }
}

/* Members that must be off: a non-empty prefix or suffix, and dropout. */
static int check_unsupported(const struct source *l, const json_t *model)
{
    static const char *const affix[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        const char *text = json_get_string(model, affix[i], "", l->file, l->e);
        if (text[0] != '\0')
            return ERR(l->e, ERR_UNSUPPORTED, "%s: model \"%s\" is \"%.40s\", which is not supported; expected none",
                       l->file, affix[i], text);
    }
    double dropout = json_get_real(model, "dropout", 0, 0, 1, l->file, l->e);
    if (dropout > 0)
        return ERR(l->e, ERR_UNSUPPORTED, "%s: model \"dropout\" is %g, which is not supported; expected null or 0",
                   l->file, dropout);
    return l->e->code != ERR_NONE ? -1 : 0;
}

int bpe_load(struct bpe *b, const struct source *l, const json_t *model)
{
    if (!json_is_object(model))
        return ERR(l->e, ERR_INPUT, "%s: \"model\" is %s, expected an object", l->file, json_type_name(model));
    const char *type = source_type(l, model, "model");
    if (type == NULL)
        return -1;
    if (type[0] != '\0' && strcmp(type, "BPE") != 0)
        return ERR(l->e, ERR_UNSUPPORTED, "%s: model type \"%.40s\" is not supported; supported: BPE", l->file, type);
    if (type[0] == '\0' && json_array_size(json_object_get(model, "vocab")) > 0) /* a list of pieces and scores:
                                                                                    Unigram */
        return ERR(l->e, ERR_UNSUPPORTED,
                   "%s: the model has no type and a list as \"vocab\", thus is Unigram, which is "
                   "not supported; supported: BPE",
                   l->file);
    if (check_unsupported(l, model) != 0)
        return -1;
    const json_t *vocab = json_object_get(model, "vocab"), *unk = json_object_get(model, "unk_token");
    if (!json_is_object(vocab))
        return ERR(l->e, ERR_INPUT, "%s: model \"vocab\" is %s, expected an object of tokens and ids", l->file,
                   json_type_name(vocab));
    if (vocab_load(&b->vocab, l, vocab) != 0 || load_merges(b, l, json_object_get(model, "merges")) != 0)
        return -1;
    b->fuse_unk = source_bool(l, model, "fuse_unk", 0, "model");
    b->byte_fallback = source_bool(l, model, "byte_fallback", 0, "model");
    b->ignore_merges = source_bool(l, model, "ignore_merges", 0, "model");
    find_byte_tokens(b);
    b->unk_id = -1;
    if (unk != NULL && !json_is_null(unk)) {
        size_t bytes;
        char *text = source_string(l, unk, "model \"unk_token\"", &bytes);
        if (text == NULL)
            return -1;
        b->unk_id = vocab_find(&b->vocab, text, bytes);
        if (b->unk_id < 0)
            ERR(l->e, ERR_INPUT, "%s: model \"unk_token\" is \"%.80s\", which is not in the vocabulary", l->file, text);
        free(text);
    }
    return l->e->code != ERR_NONE ? -1 : 0;
}

int bpe_load_files(struct bpe *b, const struct source *l, const json_t *vocab, const struct source *merges_source,
                   const char *merges, size_t bytes)
{
    if (!json_is_object(vocab))
        return ERR(l->e, ERR_INPUT, "%s: the file holds %s, expected an object of tokens and ids", l->file,
                   json_type_name(vocab));
    size_t n_lines = 1, rank = 0;
    for (size_t i = 0; i < bytes; i++)
        n_lines += merges[i] == '\n';
    char *line = err_calloc(l->e, bytes + 1, 1, "merges");
    int rc = line == NULL || vocab_load(&b->vocab, l, vocab) != 0 || open_merges(b, n_lines, l->e) != 0 ? -1 : 0;
    for (size_t i = 0; rc == 0 && i < bytes;) {
        const char *newline = memchr(merges + i, '\n', bytes - i);
        size_t n = newline != NULL ? (size_t)(newline - merges) - i : bytes - i, next = i + n + 1;
        if (n > 0 && merges[i + n - 1] == '\r')
            n--;
        memcpy(line, merges + i, n);
        line[n] = '\0';
        if (strncmp(line, "#version", 8) != 0 && (n > 0 || next < bytes))
            rc = add_merge_line(b, merges_source, rank++, line, n);
        i = next;
    }
    free(line);
    b->unk_id = -1;
    if (rc == 0)
        find_byte_tokens(b);
    return rc;
}
