/* coordinator/schedule/beam.c - see beam.h. */
#include "coordinator/schedule/beam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The score that transformers gives to a hypothesis that does not exist. */
#define NO_SCORE (-1e9f)

struct candidate {
    int beam, rank; /* the rank-th best token of the beam */
    float sum;
    bool ends;
};

void beam_open(struct beam_search *b, const struct beam_setup *setup)
{
    *b = (struct beam_search){.setup = *setup, .n_beams = 1, .beam = {{.node = -1}}};
}

void beam_close(struct beam_search *b)
{
    free(b->node);
    *b = (struct beam_search){0};
}

int beam_top(const struct beam_setup *setup)
{
    return setup->num_beams + setup->n_eos;
}

const struct sampled *beam_token(const struct beam_search *b, int i)
{
    return &b->node[b->beam[i].node].sampled;
}

void beam_path(const struct beam_search *b, int node, int n, struct sampled *out)
{
    for (; n > 0; node = b->node[node].before)
        out[--n] = b->node[node].sampled;
}

static bool is_eos(const struct beam_setup *s, int32_t token)
{
    for (int i = 0; i < s->n_eos; i++)
        if (s->eos[i] == token)
            return true;
    return false;
}

/* The best n_kept candidates of all beams, the best first; among equals the lower beam, then the lower token. */
static int list_candidates(const struct beam_search *b, const struct sampled *result, struct candidate *list,
                           int n_kept)
{
    int n = 0, top = beam_top(&b->setup);
    for (int i = 0; i < b->n_beams; i++) {
        for (int k = 0; k < top && result[i].top_id[k] >= 0; k++) {
            struct candidate c = {i, k, b->beam[i].sum + result[i].top_logprob[k], false};
            bool eos = is_eos(&b->setup, result[i].top_id[k]);
            if (eos && b->n_tokens < b->setup.min_tokens)
                continue;
            if (n > 0 && n == n_kept && c.sum <= list[n - 1].sum)
                break; /* so are the other tokens of this beam */
            c.ends = eos || b->n_tokens + 1 >= b->setup.max_tokens;
            int at = n < n_kept ? n++ : n - 1;
            for (; at > 0 && c.sum > list[at - 1].sum; at--)
                list[at] = list[at - 1];
            list[at] = c;
        }
    }
    return n;
}

/* A node for a candidate's token. Its memory has been reserved. */
static int add_node(struct beam_search *b, const struct sampled *result, const struct candidate *c)
{
    struct beam_node *n = &b->node[b->n_nodes];
    n->before = b->beam[c->beam].node;
    n->sampled = result[c->beam];
    n->sampled.token = n->sampled.top_id[c->rank];
    n->sampled.logprob = n->sampled.top_logprob[c->rank];
    return b->n_nodes++;
}

static int reserve_nodes(struct beam_search *b, int n, struct err *e)
{
    if (b->n_nodes + n <= b->node_capacity)
        return 0;
    int capacity = 2 * (b->n_nodes + n);
    struct beam_node *node = realloc(b->node, (size_t)capacity * sizeof *node);
    if (node == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: %d tokens of beams", capacity);
    b->node = node;
    b->node_capacity = capacity;
    return 0;
}

static void add_hypothesis(struct beam_search *b, const struct sampled *result, const struct candidate *c)
{
    float score = c->sum / (float)pow(b->n_tokens + 1, b->setup.rules.length_penalty);
    int n = b->n_best;
    if (n == b->setup.num_beams && score <= b->best[n - 1].score)
        return;
    int at = n < b->setup.num_beams ? b->n_best++ : n - 1;
    for (; at > 0 && score > b->best[at - 1].score; at--)
        b->best[at] = b->best[at - 1];
    b->best[at] = (struct hypothesis){add_node(b, result, c), b->n_tokens + 1, score};
}

/* Could a running beam become better than the worst finished one? This is transformers' own estimate. */
static bool may_improve(const struct beam_search *b)
{
    const struct beam_rules *r = &b->setup.rules;
    bool longest = r->early_stopping == EARLY_STOPPING_NEVER && r->length_penalty > 0;
    int length = longest ? b->setup.max_tokens : b->n_tokens;
    float worst = b->n_best == b->setup.num_beams ? b->best[b->n_best - 1].score : NO_SCORE;
    return b->beam[0].sum / (float)pow(length, r->length_penalty) > worst;
}

int beam_step(struct beam_search *b, const struct sampled *result, struct err *e)
{
    struct candidate list[BEAM_MAX * (SAMPLING_MAX_TOP - BEAM_MAX + 1)]; /* the maximum of num_beams * (1 + n_eos) */
    struct beam next[BEAM_MAX];
    int n_beams = 0, n = list_candidates(b, result, list, b->setup.num_beams * (1 + b->setup.n_eos));
    if (reserve_nodes(b, 2 * b->setup.num_beams, e) != 0)
        return -1;
    for (int i = 0; i < n && i < b->setup.num_beams; i++)
        if (list[i].ends)
            add_hypothesis(b, result, &list[i]);
    for (int i = 0; i < n && n_beams < b->setup.num_beams; i++)
        if (!list[i].ends)
            next[n_beams++] = (struct beam){list[i].beam, add_node(b, result, &list[i]), list[i].sum};
    memcpy(b->beam, next, (size_t)n_beams * sizeof next[0]);
    b->n_beams = n_beams;
    b->n_tokens++;
    b->done = n_beams == 0 || !may_improve(b) ||
              (b->setup.rules.early_stopping == EARLY_STOPPING_TRUE && b->n_best == b->setup.num_beams);
    return 0;
}
