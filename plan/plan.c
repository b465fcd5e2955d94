/* plan/plan.c - see plan.h. The packed form: a header, then the arrays one after the other. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#define PLAN_MAGIC   0x4e414c50u /* "PLAN" */
#define PLAN_VERSION 10

struct plan_header {
    uint32_t magic, version;
    uint64_t step, bytes;
    int32_t kind, n_seqs, n_tokens, n_starts, n_blocks, n_scores, n_history, report, model, n_masks, shares;
};

_Static_assert(sizeof(struct plan_header) <= PLAN_HEADER_BYTES, "the header must fit its slot");
_Static_assert(sizeof(struct plan_seq) % 4 == 0 && sizeof(struct plan_start) % 8 == 0, "arrays stay aligned");

#define FEW 16 /* tokens of a small step: as in kernels/persistent.h */

struct limits limits_of_draft_model(const struct limits *l)
{
    int more = l->max_seqs < FEW / 2 ? l->max_seqs : l->max_seqs < FEW ? FEW - l->max_seqs : 0;
    return (struct limits){.max_seqs = l->max_seqs,
                           .max_batch_tokens = l->max_batch_tokens,
                           .max_len = l->draft_len,
                           .max_logit_rows = l->max_seqs + more,
                           .n_blocks = l->n_blocks,
                           .mask_words = l->mask_words,
                           .max_drafts = more,
                           .sum_pieces = 1};
}

static size_t mask_bytes(const struct limits *l)
{
    return (size_t)l->mask_words * sizeof(uint32_t);
}

static size_t all_mask_bytes(const struct limits *l)
{
    return (size_t)limits_sampled(l) * mask_bytes(l);
}

static size_t max_blocks(const struct limits *l)
{
    return (size_t)limits_kinds(l) * (size_t)limits_table_entries(l);
}

int plan_open(struct plan *p, const struct limits *l, struct err *e)
{
    memset(p, 0, sizeof *p);
    p->limits = p->capacity = *l;
    size_t seqs = (size_t)l->max_seqs, tokens = (size_t)l->max_batch_tokens;
    p->message_capacity = PLAN_HEADER_BYTES + seqs * (sizeof *p->start + sizeof *p->seq + sizeof *p->score) +
                          all_mask_bytes(l) + max_blocks(l) * sizeof *p->block +
                          (tokens + (size_t)l->max_len) * sizeof *p->token;
    p->seq = err_calloc(e, seqs, sizeof *p->seq, "plan");
    p->start = err_calloc(e, seqs, sizeof *p->start, "plan");
    p->block = err_calloc(e, max_blocks(l), sizeof *p->block, "plan");
    p->score = err_calloc(e, seqs, sizeof *p->score, "plan");
    p->mask = err_calloc(e, 1, all_mask_bytes(l), "plan");
    p->history = err_calloc(e, (size_t)l->max_len, sizeof *p->history, "plan");
    p->token = err_calloc(e, tokens, sizeof *p->token, "plan");
    p->message = err_calloc(e, p->message_capacity, 1, "plan");
    return e->code == ERR_NONE ? 0 : -1;
}

void plan_close(struct plan *p)
{
    free(p->seq);
    free(p->start);
    free(p->block);
    free(p->score);
    free(p->mask);
    free(p->history);
    free(p->token);
    free(p->message);
    memset(p, 0, sizeof *p);
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

int plan_reserve(struct plan *p, const struct limits *l, struct err *e)
{
    const struct limits *has = &p->capacity;
    const struct limits most = {
        .max_seqs = larger(has->max_seqs, l->max_seqs),
        .max_batch_tokens = larger(has->max_batch_tokens, l->max_batch_tokens),
        .max_len = larger(has->max_len, l->max_len),
        .max_logit_rows = larger(has->max_logit_rows, l->max_logit_rows),
        .n_blocks = larger(has->n_blocks, l->n_blocks),
        .mask_words = larger(has->mask_words, l->mask_words),
        .max_drafts = larger(has->max_drafts, l->max_drafts),
        .draft_len = larger(has->draft_len, l->draft_len),
        .draft_ranks = larger(has->draft_ranks, l->draft_ranks),
        .draft_skip = larger(has->draft_skip, l->draft_skip),
        .n_window_blocks = larger(has->n_window_blocks, l->n_window_blocks),
        .sum_pieces = larger(has->sum_pieces, l->sum_pieces),
        .window = larger(has->window, l->window),
    };
    struct plan grown;
    if (memcmp(&most, has, sizeof most) == 0)
        return 0;
    if (plan_open(&grown, &most, e) != 0) {
        plan_close(&grown);
        return -1;
    }
    plan_close(p);
    *p = grown;
    return 0;
}

void plan_reset(struct plan *p, uint64_t step)
{
    p->step = step;
    p->kind = PLAN_STEP;
    p->model = 0;
    p->n_seqs = p->n_tokens = p->n_starts = p->n_blocks = p->n_scores = p->n_history = p->n_masks = p->report = 0;
    p->n_late = p->shares = 0;
}

uint32_t *plan_late_masks(const struct plan *p)
{
    return p->mask + (size_t)p->n_masks * (size_t)p->limits.mask_words;
}

size_t plan_late_bytes(const struct plan *p)
{
    return (size_t)p->n_late * mask_bytes(&p->limits);
}

static unsigned char *put_bytes(unsigned char *at, const void *data, size_t bytes)
{
    memcpy(at, data, bytes);
    return at + bytes;
}

size_t plan_pack(struct plan *p)
{
    struct plan_header h = {PLAN_MAGIC,   PLAN_VERSION, p->step,     0,           p->kind,
                            p->n_seqs,    p->n_tokens,  p->n_starts, p->n_blocks, p->n_scores,
                            p->n_history, p->report,    p->model,    p->n_masks,  p->shares};
    unsigned char *at = p->message + PLAN_HEADER_BYTES;
    at = put_bytes(at, p->start, (size_t)p->n_starts * sizeof *p->start);
    at = put_bytes(at, p->seq, (size_t)p->n_seqs * sizeof *p->seq);
    at = put_bytes(at, p->block, (size_t)p->n_blocks * sizeof *p->block);
    at = put_bytes(at, p->score, (size_t)p->n_scores * sizeof *p->score);
    at = put_bytes(at, p->mask, (size_t)p->n_masks * mask_bytes(&p->limits));
    at = put_bytes(at, p->history, (size_t)p->n_history * sizeof *p->history);
    at = put_bytes(at, p->token, (size_t)p->n_tokens * sizeof *p->token);
    h.bytes = (uint64_t)(at - p->message);
    memcpy(p->message, &h, sizeof h);
    return (size_t)h.bytes;
}

size_t plan_message_bytes(const unsigned char *message)
{
    struct plan_header h;
    memcpy(&h, message, sizeof h);
    return (size_t)h.bytes;
}

int plan_message_model(const unsigned char *message)
{
    struct plan_header h;
    memcpy(&h, message, sizeof h);
    return h.model >= 0 && h.model < PLAN_MODELS ? h.model : -1;
}

static int check_header(const struct plan *p, const struct plan_header *h, size_t bytes, struct err *e)
{
    const struct limits *l = &p->limits;
    if (h->magic != PLAN_MAGIC || h->version != PLAN_VERSION)
        return ERR(e, ERR_INTERNAL, "plan has magic %08x version %u, expected %08x version %u", h->magic, h->version,
                   PLAN_MAGIC, PLAN_VERSION);
    if (h->kind < PLAN_STEP || h->kind > PLAN_DROP || h->model < 0 || h->model >= PLAN_MODELS || h->report < 0 ||
        h->report > 1 || h->shares < 0 || h->shares > 1)
        return ERR(e, ERR_INTERNAL, "plan %llu has kind %d, model %d, report %d, shares %d",
                   (unsigned long long)h->step, h->kind, h->model, h->report, h->shares);
    if (h->n_seqs < 0 || h->n_seqs > l->max_seqs || h->n_starts < 0 || h->n_starts > l->max_seqs || h->n_tokens < 0 ||
        h->n_tokens > l->max_batch_tokens || h->n_blocks < 0 || (size_t)h->n_blocks > max_blocks(l) ||
        h->n_scores < 0 || h->n_scores > h->n_seqs || h->n_masks < 0 || h->n_masks > limits_sampled(l) ||
        h->n_history < 0 || h->n_history > l->max_len)
        return ERR(e, ERR_INTERNAL,
                   "plan %llu is out of bounds: %d sequences, %d of them scored, %d starts, %d tokens, %d blocks",
                   (unsigned long long)h->step, h->n_seqs, h->n_scores, h->n_starts, h->n_tokens, h->n_blocks);
    size_t expected = PLAN_HEADER_BYTES + (size_t)h->n_starts * sizeof *p->start + (size_t)h->n_seqs * sizeof *p->seq +
                      (size_t)h->n_blocks * sizeof *p->block + (size_t)h->n_scores * sizeof *p->score +
                      (size_t)h->n_masks * mask_bytes(l) + (size_t)h->n_history * sizeof *p->history +
                      (size_t)h->n_tokens * sizeof *p->token;
    if (h->bytes != expected || bytes != expected)
        return ERR(e, ERR_INTERNAL, "plan %llu has %zu bytes, expected %zu", (unsigned long long)h->step, bytes,
                   expected);
    return 0;
}

static bool seq_fits(const struct plan_seq *s, const struct limits *l)
{
    return s->slot >= 0 && s->slot < l->max_seqs && s->n_tokens >= 1 && s->pos >= 0 &&
           s->n_tokens <= l->max_len - s->pos && s->rope_len >= 1 && s->n_logits >= 0 && s->n_logits <= s->n_tokens &&
           s->sample >= 0 && s->sample <= s->n_logits && s->masked >= MASK_NONE && s->masked <= MASK_LATE &&
           (s->masked == MASK_NONE || (s->sample >= 1 && l->mask_words > 0)) &&
           (s->masked != MASK_LATE || s->sample == 1);
}

/* Scored rows are not sampled from; the plan names a token for each. token: [seq->n_tokens] of the sequence. */
static bool score_fits(const struct plan_score *s, const struct plan_seq *seq, const int32_t *token, int vocab)
{
    if (s->n_scored < 0 || s->n_scored > seq->n_logits - seq->sample)
        return false;
    for (int i = 0, j = seq->n_tokens - seq->n_logits; i < s->n_scored; i++, j++) {
        int32_t id = j + 1 < seq->n_tokens ? token[j + 1] : s->next;
        if (id < 0 || id >= vocab)
            return false;
    }
    return true;
}

/* To be called after the sequences have been checked. */
static int check_scores(const struct plan *p, int vocab, struct err *e)
{
    for (int k = 0, i = 0, first = 0; k < p->n_scores; k++) {
        const struct plan_score *s = &p->score[k];
        for (; i < s->seq && i < p->n_seqs; i++)
            first += p->seq[i].n_tokens;
        if (s->seq != i || i >= p->n_seqs || (k > 0 && s->seq <= s[-1].seq) ||
            !score_fits(s, &p->seq[i], p->token + first, vocab))
            return ERR(e, ERR_INTERNAL, "plan %llu: score entry %d is out of bounds", (unsigned long long)p->step, k);
    }
    return 0;
}

static int check_starts(const struct plan *p, int vocab, struct err *e)
{
    const struct limits *l = &p->limits;
    int64_t history = 0;
    for (int i = 0; i < p->n_starts; i++) {
        const struct plan_start *s = &p->start[i];
        if (s->slot < 0 || s->slot >= l->max_seqs || s->n_history < 0)
            return ERR(e, ERR_INTERNAL, "plan %llu: start %d in slot %d with %d tokens", (unsigned long long)p->step, i,
                       s->slot, s->n_history);
        history += s->n_history;
    }
    if (history != p->n_history)
        return ERR(e, ERR_INTERNAL, "plan %llu: %lld tokens that are not fed, expected %d", (unsigned long long)p->step,
                   (long long)history, p->n_history);
    for (int i = 0; i < p->n_history; i++)
        if (p->history[i] < 0 || p->history[i] >= vocab)
            return ERR(e, ERR_INTERNAL, "plan %llu: token id %d, vocabulary %d", (unsigned long long)p->step,
                       p->history[i], vocab);
    return 0;
}

static bool block_fits(const struct plan_block *b, const struct limits *l)
{
    return b->slot >= 0 && b->slot < l->max_seqs && b->index >= 0 && b->index < limits_blocks_per_slot(l) &&
           b->kind >= KV_MAIN && b->kind < limits_kinds(l) && b->block >= 0 && b->block < limits_blocks(l, b->kind);
}

static int check_body(const struct plan *p, int vocab, struct err *e)
{
    const struct limits *l = &p->limits;
    const int32_t lowest = l->draft_len > 0 && l->draft_ranks == 0 ? PLAN_DRAFTED : PLAN_SAMPLED;
    int64_t tokens = 0, rows = 0, masks = 0, drafts = 0;
    for (int i = 0; i < p->n_seqs; i++) {
        if (!seq_fits(&p->seq[i], l))
            return ERR(e, ERR_INTERNAL, "plan %llu: sequence %d is out of bounds", (unsigned long long)p->step, i);
        tokens += p->seq[i].n_tokens;
        rows += p->seq[i].n_logits;
        masks += p->seq[i].masked == MASK_HERE ? p->seq[i].sample : 0;
        drafts += p->seq[i].sample > 1 ? p->seq[i].sample - 1 : 0;
    }
    if (drafts > l->max_drafts)
        return ERR(e, ERR_INTERNAL, "plan %llu: %lld drafted tokens, expected at most %d", (unsigned long long)p->step,
                   (long long)drafts, l->max_drafts);
    if (masks != p->n_masks)
        return ERR(e, ERR_INTERNAL, "plan %llu: %d masks, expected %lld", (unsigned long long)p->step, p->n_masks,
                   (long long)masks);
    if (tokens != p->n_tokens || rows > l->max_logit_rows)
        return ERR(e, ERR_INTERNAL, "plan %llu: %lld tokens and %lld rows of logits, expected %d and at most %d",
                   (unsigned long long)p->step, (long long)tokens, (long long)rows, p->n_tokens, l->max_logit_rows);
    if (check_starts(p, vocab, e) != 0)
        return -1;
    for (int i = 0; i < p->n_blocks; i++)
        if (!block_fits(&p->block[i], l))
            return ERR(e, ERR_INTERNAL, "plan %llu: block entry %d is out of bounds", (unsigned long long)p->step, i);
    for (int i = 0; i < p->n_tokens; i++)
        if (p->token[i] < lowest || p->token[i] >= vocab)
            return ERR(e, ERR_INTERNAL, "plan %llu: token id %d, vocabulary %d", (unsigned long long)p->step,
                       p->token[i], vocab);
    return check_scores(p, vocab, e);
}

static const unsigned char *take_bytes(void *data, const unsigned char *at, size_t bytes)
{
    memcpy(data, at, bytes);
    return at + bytes;
}

int plan_unpack(struct plan *p, size_t bytes, int vocab, struct err *e)
{
    struct plan_header h;
    if (bytes < PLAN_HEADER_BYTES || bytes > p->message_capacity)
        return ERR(e, ERR_INTERNAL, "plan of %zu bytes, expected %d to %zu", bytes, PLAN_HEADER_BYTES,
                   p->message_capacity);
    memcpy(&h, p->message, sizeof h);
    if (check_header(p, &h, bytes, e) != 0)
        return -1;
    p->step = h.step;
    p->kind = h.kind;
    p->model = h.model;
    p->n_seqs = h.n_seqs;
    p->n_tokens = h.n_tokens;
    p->n_starts = h.n_starts;
    p->n_blocks = h.n_blocks;
    p->n_scores = h.n_scores;
    p->n_history = h.n_history;
    p->n_masks = h.n_masks;
    p->n_late = 0;
    p->report = h.report;
    p->shares = h.shares;
    const unsigned char *at = p->message + PLAN_HEADER_BYTES;
    at = take_bytes(p->start, at, (size_t)p->n_starts * sizeof *p->start);
    at = take_bytes(p->seq, at, (size_t)p->n_seqs * sizeof *p->seq);
    for (int i = 0; i < p->n_seqs; i++)
        p->n_late += p->seq[i].masked == MASK_LATE;
    at = take_bytes(p->block, at, (size_t)p->n_blocks * sizeof *p->block);
    at = take_bytes(p->score, at, (size_t)p->n_scores * sizeof *p->score);
    at = take_bytes(p->mask, at, (size_t)p->n_masks * mask_bytes(&p->limits));
    at = take_bytes(p->history, at, (size_t)p->n_history * sizeof *p->history);
    (void)take_bytes(p->token, at, (size_t)p->n_tokens * sizeof *p->token);
    return check_body(p, vocab, e);
}
