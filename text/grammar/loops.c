/* text/grammar/loops.c - see loops.h. */
#include "text/grammar/loops.h"

#include <stdlib.h>
#include <string.h>

static bool has(const uint64_t bytes[4], unsigned char byte)
{
    return bytes[byte / 64] >> byte % 64 & 1;
}

static void free_set(struct loop_set *set)
{
    if (set == NULL)
        return;
    free(set->inner);
    free(set->token);
    free(set->leaving);
    free(set);
}

/* The tokens of a node, and of the same bytes. */
static void take_tokens(struct loop_set *set, const struct lexicon *l, int node, bool inner)
{
    for (int32_t token = l->all.node[node].token; token >= 0; token = l->same[token]) {
        set->token[set->n_tokens++] = token;
        if (inner)
            set->inner[token / 32] |= 1u << token % 32;
    }
}

/* Paths through the tree as far as their bytes belong to the set. */
static void fill(struct loop_set *set, const struct lexicon *l)
{
    int byte = 0;
    bool inner = false;
    for (int i = 0; i < l->all.n;) {
        const struct lexicon_node *node = &l->all.node[i];
        if (node->depth == 0) {
            for (; byte <= node->byte; byte++) {
                set->token_begin[byte] = set->n_tokens;
                set->leaving_begin[byte] = set->n_leaving;
            }
            inner = has(set->bytes, node->byte);
        } else if (!has(set->bytes, node->byte)) {
            set->leaving[set->n_leaving++] = i;
            i = node->skip;
            continue;
        }
        take_tokens(set, l, i, inner);
        i++;
    }
    for (; byte <= 256; byte++) {
        set->token_begin[byte] = set->n_tokens;
        set->leaving_begin[byte] = set->n_leaving;
    }
}

static struct loop_set *make_set(const struct lexicon *l, const uint64_t bytes[4])
{
    struct loop_set *set = calloc(1, sizeof *set);
    if (set == NULL)
        return NULL;
    memcpy(set->bytes, bytes, sizeof set->bytes);
    set->inner = calloc((size_t)l->n_words, sizeof *set->inner);
    set->token = malloc(((size_t)l->n_tokens + 1) * sizeof *set->token);
    set->leaving = malloc(((size_t)l->all.n + 1) * sizeof *set->leaving);
    if (set->inner == NULL || set->token == NULL || set->leaving == NULL) {
        free_set(set);
        return NULL;
    }
    fill(set, l);
    int32_t *token = realloc(set->token, ((size_t)set->n_tokens + 1) * sizeof *token);
    int32_t *leaving = realloc(set->leaving, ((size_t)set->n_leaving + 1) * sizeof *leaving);
    set->token = token != NULL ? token : set->token;
    set->leaving = leaving != NULL ? leaving : set->leaving;
    return set;
}

const struct loop_set *loops_get(struct loops *loops, const struct lexicon *l, const uint64_t bytes[4])
{
    int oldest = 0;
    loops->clock++;
    for (int i = 0; i < LOOPS_KEPT; i++) {
        struct loop_set *set = loops->set[i];
        if (set != NULL && memcmp(set->bytes, bytes, sizeof set->bytes) == 0) {
            set->used = loops->clock;
            return set;
        }
        if (loops->set[oldest] != NULL && (set == NULL || set->used < loops->set[oldest]->used))
            oldest = i;
    }
    free_set(loops->set[oldest]);
    loops->set[oldest] = make_set(l, bytes);
    if (loops->set[oldest] != NULL)
        loops->set[oldest]->used = loops->clock;
    return loops->set[oldest];
}

void loops_close(struct loops *loops)
{
    for (int i = 0; loops != NULL && i < LOOPS_KEPT; i++)
        free_set(loops->set[i]);
    free(loops);
}
