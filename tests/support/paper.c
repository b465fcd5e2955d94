/* tests/support/paper.c - see paper.h. */
#include "tests/support/paper.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int sampled_window; /* of the device opened last; 0: its kind sees everything */

static uint64_t mix(uint64_t hash, uint64_t x)
{
    hash = (hash ^ x) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

int paper_open(struct paper *d, const struct limits *l, int vocab, struct err *e)
{
    size_t seqs = (size_t)l->max_seqs, entries = seqs * (size_t)limits_blocks_per_slot(l);
    memset(d, 0, sizeof *d);
    d->limits = *l;
    d->vocab = vocab;
    sampled_window = limits_window(l, KV_MAIN);
    for (int kind = 0; kind < limits_kinds(l); kind++) {
        size_t cells = (size_t)limits_blocks(l, kind) * KV_BLOCK_TOKENS;
        d->table[kind] = err_calloc(e, entries, sizeof *d->table[kind], "table");
        d->kv[kind] = err_calloc(e, cells, sizeof *d->kv[kind], "cells");
        if (d->table[kind] != NULL)
            memset(d->table[kind], 0xff, entries * sizeof *d->table[kind]);
    }
    d->history = err_calloc(e, seqs * (size_t)l->max_len, sizeof *d->history, "history");
    d->last = err_calloc(e, seqs, sizeof *d->last, "last");
    d->params = err_calloc(e, seqs, sizeof *d->params, "params");
    d->order = err_calloc(e, seqs, sizeof *d->order, "order");
    for (int i = 0; i < 2; i++)
        d->sampled[i] = err_calloc(e, seqs + (size_t)l->max_drafts, sizeof *d->sampled[i], "sampled");
    if (e->code != ERR_NONE || plan_open(&d->plan, l, e) != 0)
        return -1;
    return 0;
}

void paper_close(struct paper *d)
{
    for (int kind = 0; kind < KV_KINDS; kind++) {
        free(d->table[kind]);
        free(d->kv[kind]);
    }
    free(d->history);
    free(d->last);
    free(d->params);
    free(d->order);
    for (int i = 0; i < 2; i++)
        free(d->sampled[i]);
    plan_close(&d->plan);
    memset(d, 0, sizeof *d);
}

/* ---- sampling, from the hash that was read ---- */

static bool is_forbidden(const struct sampling *s, int n_output, int32_t token)
{
    for (int i = 0; i < s->n_eos && n_output < s->min_tokens; i++)
        if (s->eos[i] == token)
            return true;
    return false;
}

/* Gives few different scores, so that some are equal. */
static double score_of(uint64_t read, int token)
{
    return -(double)(mix(read, (uint64_t)token) >> 32 & 63) / 8;
}

static double log_sum(uint64_t read, int vocab)
{
    double sum = 0;
    for (int i = 0; i < vocab; i++)
        sum += exp(score_of(read, i));
    return log(sum);
}

/* Finds the best n_top, the lower id first among equals. */
static void best_tokens(struct sampled *out, uint64_t read, int n_top, int vocab)
{
    double norm = n_top > 0 ? log_sum(read, vocab) : 0;
    for (int k = 0; k < n_top; k++) {
        out->top_id[k] = -1;
        out->top_logprob[k] = -INFINITY;
    }
    for (int i = 0, n = 0; i < vocab && n_top > 0; i++) {
        float x = (float)(score_of(read, i) - norm);
        if (n == n_top && x <= out->top_logprob[n - 1])
            continue;
        int at = n < n_top ? n++ : n - 1;
        for (; at > 0 && x > out->top_logprob[at - 1]; at--) {
            out->top_id[at] = out->top_id[at - 1];
            out->top_logprob[at] = out->top_logprob[at - 1];
        }
        out->top_id[at] = i;
        out->top_logprob[at] = x;
    }
}

/* read: the hash of the cells; history: [n] of the slot. Tokens at the vocabulary's end are likelier, so that stop
 * rules apply. */
static void choose_token(struct sampled *out, uint64_t read, const int32_t *history, int n, const struct sampling *s,
                         int vocab)
{
    uint64_t hash = mix(read, s->seed);
    if (s->repetition_penalty != 1.0f)
        for (int i = 0; i < n; i++)
            hash = mix(hash, (uint64_t)history[i]);
    if (s->presence_penalty != 0.0f || s->frequency_penalty != 0.0f)
        for (int i = s->prompt_len; i < n; i++)
            hash = mix(hash, (uint64_t)history[i] + 1);
    uint64_t at = hash >> 20;
    while (is_forbidden(s, n - s->prompt_len, (int32_t)(at % (uint64_t)vocab)))
        at++;
    out->token = (int32_t)(at % (uint64_t)vocab);
    out->logprob = -(float)(hash >> 50 & 255) / 16;
    best_tokens(out, read, s->n_top, vocab);
}

/* Returns the first of n positions that is read for the next one. */
static int first_read(int n)
{
    return sampled_window > 0 && n > sampled_window ? n - sampled_window : 0;
}

static uint64_t read_of(const int32_t *token, int n)
{
    uint64_t cell = 0, read = 0;
    for (int i = 0; i < n; i++) {
        cell = mix(cell, (uint64_t)token[i]);
        if (i >= first_read(n))
            read = mix(read, cell);
    }
    return read;
}

int32_t paper_next(const int32_t *token, int n, int prompt_len, const struct sampling *s, int vocab,
                   struct sampled *out)
{
    struct sampling own = *s;
    struct sampled sampled = {0};
    own.prompt_len = prompt_len;
    choose_token(&sampled, read_of(token, n), token, n, &own, vocab);
    if (out != NULL)
        *out = sampled;
    return sampled.token;
}

void paper_logprobs(const int32_t *token, int n, int vocab, float *logprob)
{
    uint64_t read = read_of(token, n);
    double norm = log_sum(read, vocab);
    for (int i = 0; i < vocab; i++)
        logprob[i] = (float)(score_of(read, i) - norm);
}

/* ---- plans ---- */

static uint64_t *cell_of(struct paper *d, int kind, int slot, int pos)
{
    int block = d->table[kind][slot * limits_blocks_per_slot(&d->limits) + pos / KV_BLOCK_TOKENS];
    return block < 0 ? NULL : &d->kv[kind][block * KV_BLOCK_TOKENS + pos % KV_BLOCK_TOKENS];
}

/* Copies the hash for windowed layers, and checks those that they see. */
static const char *write_window(struct paper *d, int slot, int pos)
{
    int window = limits_window(&d->limits, KV_WINDOWED), first = pos - window + 1;
    uint64_t *copy = cell_of(d, KV_WINDOWED, slot, pos);
    if (copy == NULL)
        return "a position without a windowed block";
    *copy = *cell_of(d, KV_MAIN, slot, pos);
    for (int i = first > 0 ? first : 0; i < pos; i++)
        if ((copy = cell_of(d, KV_WINDOWED, slot, i)) == NULL || *copy != *cell_of(d, KV_MAIN, slot, i))
            return "a windowed layer does not find its keys";
    return NULL;
}

static const char *write_tokens(struct paper *d, const struct plan_seq *s, const int32_t *token)
{
    for (int j = 0; j < s->n_tokens; j++) {
        int pos = s->pos + j;
        int32_t id = token[j] >= 0              ? token[j]
                     : token[j] == PLAN_DRAFTED ? d->draft_model->last[s->slot]
                                                : d->last[s->slot];
        uint64_t *cell = cell_of(d, KV_MAIN, s->slot, pos);
        const uint64_t *before = pos > 0 ? cell_of(d, KV_MAIN, s->slot, pos - 1) : NULL;
        if (cell == NULL || (pos > 0 && before == NULL))
            return "a position without a block";
        *cell = mix(before != NULL ? *before : 0, (uint64_t)id);
        d->history[s->slot * d->limits.max_len + pos] = id;
        const char *wrong = d->kv[KV_WINDOWED] != NULL ? write_window(d, s->slot, pos) : NULL;
        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}

/* Samples after the first n tokens. */
static const char *sample(struct paper *d, const struct plan_seq *s, int n, struct sampled *out)
{
    uint64_t read = 0;
    for (int pos = first_read(n); pos < n; pos++) {
        const uint64_t *cell = cell_of(d, KV_MAIN, s->slot, pos);
        if (cell == NULL)
            return "a position without a block";
        read = mix(read, *cell);
    }
    *out = (struct sampled){.slot = s->slot};
    choose_token(out, read, d->history + s->slot * d->limits.max_len, n, &d->params[s->slot], d->vocab);
    d->last[s->slot] = out->token;
    return NULL;
}

static void update(struct paper *d, const struct plan *p)
{
    for (int i = 0; i < p->n_blocks; i++) {
        const struct plan_block *b = &p->block[i];
        d->table[b->kind][b->slot * limits_blocks_per_slot(&d->limits) + b->index] = b->block;
    }
    const int32_t *history = p->history;
    for (int i = 0; i < p->n_starts; i++) {
        int slot = p->start[i].slot;
        d->params[slot] = p->start[i].sampling;
        d->last[slot] = -5; /* nothing remains of the previous sequence */
        for (int k = 0; k < d->limits.max_len; k++)
            d->history[slot * d->limits.max_len + k] = k < p->start[i].n_history ? history[k] : -7;
        history += p->start[i].n_history;
    }
}

static void shuffle(struct paper *d, int n)
{
    for (int i = 0; i < n; i++)
        d->order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        d->seed = mix(d->seed + 1, (uint64_t)i);
        int k = (int)(d->seed >> 33) % (i + 1), swap = d->order[i];
        d->order[i] = d->order[k];
        d->order[k] = swap;
    }
}

static const char *run_sequences(struct paper *d, const struct plan *p, struct sampled *sampled, int *n_sampled)
{
    const char *wrong = NULL;
    shuffle(d, p->n_seqs);
    *n_sampled = 0;
    for (int i = 0; i < p->n_seqs; i++)
        *n_sampled += p->seq[i].sample;
    for (int k = 0; k < p->n_seqs && wrong == NULL; k++) {
        const struct plan_seq *s = &p->seq[d->order[k]];
        int first = 0, place = 0;
        for (int i = 0; i < d->order[k]; i++) {
            first += p->seq[i].n_tokens;
            place += p->seq[i].sample;
            if (p->seq[i].slot == s->slot)
                return "a slot is twice in the plan";
        }
        wrong = write_tokens(d, s, p->token + first);
        for (int j = 0, n = s->pos + s->n_tokens - s->sample; j < s->sample && wrong == NULL; j++)
            wrong = sample(d, s, n + j + 1, &sampled[place + j]);
    }
    return wrong;
}

const char *paper_execute(struct paper *d, struct plan *p, struct step_result *result)
{
    static struct err e;
    struct sampled *sampled = d->sampled[p->step % 2];
    int n_sampled = 0;
    size_t bytes = plan_pack(p);
    e = (struct err){0};
    memcpy(d->plan.message, p->message, bytes);
    if (plan_unpack(&d->plan, bytes, d->vocab, &e) != 0)
        return e.text;
    update(d, &d->plan);
    const char *wrong = run_sequences(d, &d->plan, sampled, &n_sampled);
    d->n_fed += d->plan.n_tokens;
    *result = (struct step_result){.step = p->step, .n_sampled = n_sampled, .sampled = sampled, .n_rows = n_sampled};
    return wrong;
}
