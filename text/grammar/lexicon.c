/* text/grammar/lexicon.c - see lexicon.h. */
#include "text/grammar/lexicon.h"

#include "base/text_buffer.h"
#include "base/utf8.h"
#include "text/grammar/lexicon_parts.h"
#include "text/grammar/loops.h"
#include "text/grammar/walks.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

/* A special token is its text between two bytes that occur in no text, so no other token matches it. */
static int read_special(const struct tokenizer *t, int32_t id, struct text_buffer *all, struct err *e)
{
    static const char mark[] = {(char)LEXICON_SPECIAL};
    size_t bytes = 0;
    const char *text = tokenizer_token_text(t, id, &bytes);
    if (text == NULL || !tokenizer_is_special(t, id))
        return 0;
    (void)text_append(all, mark, 1, e);
    (void)text_append(all, text, bytes, e);
    return text_append(all, mark, 1, e);
}

/* The bytes of every token; none for ids without a token. */
static int read_tokens(struct lexicon *l, const struct tokenizer *t, struct err *e)
{
    struct text_buffer all = {0};
    l->first = err_calloc(e, (size_t)l->n_tokens + 1, sizeof *l->first, "vocabulary of grammars");
    for (int32_t i = 0; l->first != NULL && i < l->n_tokens; i++) {
        size_t begin = all.bytes;
        if (tokenizer_token_bytes(t, i, &all, e) != 0)
            break;
        if (all.bytes > begin && memchr(all.data + begin, LEXICON_SPECIAL, all.bytes - begin) != NULL)
            all.bytes = begin;
        if (read_special(t, i, &all, e) != 0)
            break;
        if (all.bytes - begin > LEXICON_MAX_DEPTH)
            all.bytes = begin;
        l->first[i + 1] = all.bytes;
    }
    l->bytes = (unsigned char *)all.data;
    return e->code == ERR_NONE ? 0 : -1;
}

struct tail_key {
    struct lexicon_key key; /* the part that is not plain */
    int chars;              /* plain ones before it */
};

/* The plain characters at the beginning of the bytes, and the number of their bytes: all if the token is plain. */
static int plain_chars(const unsigned char *bytes, size_t n, size_t *plain)
{
    int chars = 0, size, bad;
    for (*plain = 0; *plain < n; chars++, *plain += (size_t)size) {
        int32_t c = 0;
        size = utf8_get((const char *)bytes + *plain, n - *plain, &c, &bad);
        if (size == 0 && bad < 0)
            size = (int)(n - *plain); /* a character that begins */
        else if (size == 0 || c < 0x20 || c == '"' || c == '\\')
            break;
    }
    return chars;
}

static int compare_plain(const void *left, const void *right)
{
    const struct lexicon_plain *a = left, *b = right;
    if (a->chars != b->chars)
        return a->chars < b->chars ? -1 : 1;
    return (a->token > b->token) - (a->token < b->token);
}

/* The bitmaps of plain tokens by length. */
static int list_plain(struct lexicon *l, struct err *e)
{
    l->up_to = err_calloc(e, (LEXICON_LENGTHS + 1) * (size_t)l->n_words, sizeof *l->up_to, "vocabulary of grammars");
    if (l->up_to == NULL)
        return -1;
    qsort(l->plain, (size_t)l->n_plain, sizeof *l->plain, compare_plain);
    for (int i = 0; i < l->n_plain; i++) {
        int from = l->plain[i].chars <= LEXICON_LENGTHS ? l->plain[i].chars - 1 : LEXICON_LENGTHS;
        for (int k = from; k <= LEXICON_LENGTHS; k++)
            lexicon_set_bit(l->up_to + (size_t)k * (size_t)l->n_words, l->plain[i].token);
    }
    l->longest = l->n_plain > 0 ? l->plain[l->n_plain - 1].chars : 0;
    return 0;
}

/* Links the tree of all tokens to the plain ones and to the others. */
static int link_trees(struct lexicon *l, struct err *e)
{
    int at[LEXICON_MAX_DEPTH + 1] = {-1}, n = 0;
    l->other_of = err_calloc(e, (size_t)l->all.n + 1, sizeof *l->other_of, "vocabulary of grammars");
    l->plain_before = err_calloc(e, (size_t)l->all.n + 1, sizeof *l->plain_before, "vocabulary of grammars");
    l->in_order = err_calloc(e, (size_t)l->n_plain + 1, sizeof *l->in_order, "vocabulary of grammars");
    if (l->in_order == NULL || l->other_of == NULL || l->plain_before == NULL)
        return -1;
    memset(l->other_of, 0xff, (size_t)l->all.n * sizeof *l->other_of);
    for (int i = 0; i < l->other.n; i++) {
        const struct lexicon_node *node = &l->other.node[i];
        at[node->depth + 1] = lexicon_tree_child(&l->all, at[node->depth], node->byte);
        l->other_of[at[node->depth + 1]] = i;
    }
    for (int i = 0; i < l->all.n; i++) {
        l->plain_before[i] = n;
        for (int32_t token = l->all.node[i].token; token >= 0; token = l->same[token]) {
            size_t plain;
            int chars = plain_chars(l->bytes + l->first[token], lexicon_length(l, token), &plain);
            if (plain == lexicon_length(l, token))
                l->in_order[n++] = (struct lexicon_plain){token, chars};
        }
    }
    l->plain_before[l->all.n] = n;
    return 0;
}

static int compare_tails(const void *left, const void *right)
{
    const struct tail_key *a = left, *b = right;
    return a->chars != b->chars ? (a->chars > b->chars) - (a->chars < b->chars) : lexicon_key_compare(&a->key, &b->key);
}

/* A tree of tails for each number of characters. key: room for n. */
static int build_tails(struct lexicon *l, struct tail_key *tail, struct lexicon_key *key, int n, struct err *e)
{
    int n_lengths = 0;
    qsort(tail, (size_t)n, sizeof *tail, compare_tails);
    for (int i = 0; i < n; i++) {
        key[i] = tail[i].key;
        n_lengths += i == 0 || tail[i].chars != tail[i - 1].chars;
    }
    l->tails = err_calloc(e, (size_t)n_lengths + 1, sizeof *l->tails, "vocabulary of grammars");
    if (l->tails == NULL)
        return -1;
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && tail[end].chars == tail[i].chars;)
            end++;
        struct lexicon_tails *t = &l->tails[l->n_tails++];
        t->chars = tail[i].chars;
        if (lexicon_tree_build(&t->tree, l->same_tail, key + i, end - i, e) != 0)
            return -1;
    }
    return 0;
}

/* Separates plain tokens, which are removed from `key`, from the others, which are also sorted by their tails. */
static int sort_out(struct lexicon *l, struct lexicon_key *key, int n, struct tail_key *tail, struct err *e)
{
    int n_other = 0;
    if (lexicon_tree_build(&l->all, l->same, key, n, e) != 0)
        return -1;
    for (int i = 0; i < n; i++) {
        size_t plain;
        int chars = plain_chars(key[i].bytes, key[i].n, &plain);
        if (plain == key[i].n) {
            l->plain[l->n_plain++] = (struct lexicon_plain){key[i].token, chars};
            continue;
        }
        size_t within = key[i].bytes[plain] == '"' ? plain : key[i].bytes[plain] == '\\' ? key[i].n : 0;
        l->most_within = within > l->most_within ? within : l->most_within;
        tail[n_other] = (struct tail_key){{key[i].bytes + plain, key[i].n - plain, key[i].token}, chars};
        key[n_other++] = key[i];
    }
    return lexicon_tree_build(&l->other, l->same, key, n_other, e) != 0 || link_trees(l, e) != 0 ||
                   list_plain(l, e) != 0
               ? -1
               : build_tails(l, tail, key, n_other, e);
}

int lexicon_open(struct lexicon *l, const struct tokenizer *t, int32_t n_tokens, struct err *e)
{
    *l = (struct lexicon){.tokenizer = t, .n_tokens = n_tokens, .n_words = (n_tokens + 31) / 32};
    size_t n_all = (size_t)n_tokens;
    struct lexicon_key *key = err_calloc(e, n_all, sizeof *key, "vocabulary of grammars");
    struct tail_key *tail = err_calloc(e, n_all, sizeof *tail, "vocabulary of grammars");
    l->same = err_calloc(e, n_all, sizeof *l->same, "vocabulary of grammars");
    l->same_tail = err_calloc(e, n_all, sizeof *l->same_tail, "vocabulary of grammars");
    l->plain = err_calloc(e, n_all, sizeof *l->plain, "vocabulary of grammars");
    l->loops = err_calloc(e, 1, sizeof *l->loops, "vocabulary of grammars");
    l->walks = err_calloc(e, 1, sizeof *l->walks, "vocabulary of grammars");
    int n = 0, rc = -1;
    if (e->code == ERR_NONE && read_tokens(l, t, e) == 0) {
        memset(l->same, 0xff, n_all * sizeof *l->same);
        memset(l->same_tail, 0xff, n_all * sizeof *l->same_tail);
        for (int32_t i = 0; i < n_tokens; i++)
            if (lexicon_length(l, i) > 0)
                key[n++] = (struct lexicon_key){l->bytes + l->first[i], lexicon_length(l, i), i};
        qsort(key, (size_t)n, sizeof *key, lexicon_key_compare);
        rc = sort_out(l, key, n, tail, e);
    }
    free(tail);
    free(key);
    return rc;
}

void lexicon_close(struct lexicon *l)
{
    for (int i = 0; i < l->n_tails; i++)
        lexicon_tree_free(&l->tails[i].tree);
    free(l->tails);
    free(l->same_tail);
    free(l->same);
    lexicon_tree_free(&l->all);
    lexicon_tree_free(&l->other);
    free(l->plain);
    free(l->other_of);
    free(l->plain_before);
    free(l->in_order);
    loops_close(l->loops);
    walks_close(l->walks);
    free(l->up_to);
    free(l->bytes);
    free(l->first);
    *l = (struct lexicon){0};
}

/* ---- texts ---- */

const unsigned char *lexicon_bytes(const struct lexicon *l, int32_t token, size_t *n)
{
    *n = token >= 0 && token < l->n_tokens ? lexicon_length(l, token) : 0;
    return *n > 0 ? l->bytes + l->first[token] : NULL;
}

int32_t lexicon_longest(const struct lexicon *l, const char *text, size_t n, size_t *bytes)
{
    int32_t token = -1;
    int node = -1;
    *bytes = 0;
    for (size_t i = 0; i < n && (node = lexicon_tree_child(&l->all, node, (unsigned char)text[i])) >= 0; i++)
        if (l->all.node[node].token >= 0) {
            token = l->all.node[node].token;
            *bytes = i + 1;
        }
    return token;
}
