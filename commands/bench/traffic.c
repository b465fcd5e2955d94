/* commands/bench/traffic.c - see traffic.h. */
#include "commands/bench/traffic.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* Arbitrary tokens: the outcome is simulated. */
static int propose(void *context, struct request *r, int n, int32_t *token)
{
    (void)context;
    for (int i = 0; i < n; i++)
        token[i] = r->prompt.id[0];
    return n;
}

static bool chance(struct played_drafts *d)
{
    d->random = d->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(d->random >> 11) * 0x1p-53 < d->acceptance;
}

static int32_t other(int32_t token)
{
    return token > 0 ? token - 1 : 1;
}

/* The sampled token is the draft, or another one. */
static void play(struct traffic *t, struct step_result *result)
{
    struct played_drafts *d = &t->drafts;
    const struct flight *f = &t->scheduler.flight[result->step % SCHEDULER_FLIGHTS];
    memcpy(d->sampled, result->sampled, (size_t)result->n_sampled * sizeof *d->sampled);
    for (int i = 0, row = 0; i < f->n; row += f->rows[i], i++)
        for (int k = 0; k + 1 < f->rows[i]; k++)
            d->sampled[row + k].token = chance(d) ? f->request[i]->draft[k] : other(f->request[i]->draft[k]);
    result->sampled = d->sampled;
}

static int open_drafts(struct traffic *t, const struct limits *l, struct scheduler_setup *setup, struct err *e)
{
    if (t->drafts.most == 0)
        return 0;
    setup->guesses.most = t->drafts.most;
    if (l->draft_len > 0)
        setup->guesses.always = !t->drafts.rest;
    else
        setup->drafts.propose = propose;
    t->drafts.sampled = err_calloc(e, (size_t)l->max_logit_rows, sizeof *t->drafts.sampled, "drafts");
    return t->drafts.sampled != NULL ? 0 : -1;
}

static int read_form(struct form **form, const char *file, struct err *e)
{
    json_t *schema = json_read_file(file, FORM_MAX_BYTES, e);
    struct err why = {0};
    if (schema != NULL && form_open(form, FORM_SCHEMA, schema, &why) != 0)
        ERR(e, why.code, "--json-schema: %s: %s", file, why.text);
    json_decref(schema);
    return e->code == ERR_NONE ? 0 : -1;
}

int traffic_speak(struct traffic *t, const char *folder, const char *schema, int vocab, struct err *e)
{
    if (tokenizer_open(&t->tokenizer, folder, e) != 0)
        return -1;
    if (tokenizer_vocab_size(t->tokenizer) > vocab)
        return ERR(e, ERR_INPUT, "--tokenizer: %s has %d tokens, the model %d", folder,
                   tokenizer_vocab_size(t->tokenizer), vocab);
    lexicon_keeper_open(&t->lexicon, t->tokenizer, vocab);
    if (schema == NULL)
        return 0;
    return read_form(&t->form, schema, e) == 0 && lexicon_keeper_get(&t->lexicon, e) != NULL ? 0 : -1;
}

/* Token number n of the whole sequence of tokens. */
static int32_t random_token(const struct traffic *t, uint64_t n)
{
    uint64_t x = (n + 1) * 0x9e3779b97f4a7c15u;
    return (int32_t)((x ^ x >> 32) % (uint64_t)t->vocab);
}

/* The prompts' tokens, from number `first` on. */
static void fill(struct traffic *t, uint64_t first)
{
    for (size_t i = 0; i < t->n_ids; i++) {
        size_t place = i % t->stride;
        bool shared = t->n_shared > 0 && place < (size_t)t->n_shared;
        t->id[i] = random_token(t, first + (shared ? place : i));
    }
}

/* A token of a request has come. */
static void note_token(void *context, struct request *r)
{
    struct traffic *t = context;
    double now = t->scheduler.now, *newest = &t->newest[r->index];
    if (*newest < 0) /* forced tokens come with it */
        durations_add(&t->waits.first_token, now - r->times.arrived);
    else if (now > *newest)
        durations_add(&t->waits.between_tokens, now - *newest);
    *newest = now;
}

static int open_requests(struct traffic *t, struct err *e)
{
    t->stride = t->n_shared > 0 ? (size_t)t->n_input : 1;
    t->n_ids = (size_t)t->n_input + (size_t)(t->n_requests - 1) * t->stride;
    t->id = err_calloc(e, t->n_ids, sizeof *t->id, "random prompts");
    t->request = err_calloc(e, (size_t)t->n_requests, sizeof *t->request, "requests");
    t->newest = err_calloc(e, (size_t)t->n_requests, sizeof *t->newest, "requests");
    return e->code == ERR_NONE ? 0 : -1;
}

static void on_release(void *context, struct request *r)
{
    (void)r;
    ((struct traffic *)context)->n_open--;
}

int traffic_open(struct traffic *t, int n_requests, int n_input, int n_output, const struct limits *l, int vocab,
                 struct err *e)
{
    struct scheduler_setup setup = {.limits = *l,
                                    .tokenizer = t->tokenizer,
                                    .lexicon = t->form != NULL ? &t->lexicon : NULL,
                                    .prefix_caching = t->n_shared > 0,
                                    .foresees = true,
                                    .max_step = t->max_step,
                                    .on_progress = note_token,
                                    .on_release = on_release,
                                    .context = t};
    memcpy(setup.source, t->source, sizeof setup.source);
    t->n_requests = n_requests;
    t->n_input = n_input;
    t->vocab = vocab;
    t->rules = (struct request_rules){
        .sampling = {.seed = 1, .temperature = 1, .top_p = 1, .repetition_penalty = 1},
        .max_tokens = n_output,
        .form = t->form,
        .ignore_eos = true,
    };
    if (open_requests(t, e) != 0 || open_drafts(t, l, &setup, e) != 0 || scheduler_open(&t->scheduler, &setup, e) != 0)
        return -1;
    fill(t, 0);
    if (n_input + n_output > scheduler_max_len(&t->scheduler))
        return ERR(e, ERR_MEMORY, "a request of %d + %d tokens: the KV cache holds %d", n_input, n_output,
                   scheduler_max_len(&t->scheduler));
    return 0;
}

/* Frees the request's own memory; its prompt belongs to the traffic. */
static void release(struct request *r)
{
    r->prompt = (struct token_list){0};
    request_close(r);
}

void traffic_close(struct traffic *t)
{
    for (int i = 0; t->request != NULL && i < t->n_requests; i++)
        release(&t->request[i]);
    free(t->request);
    free(t->newest);
    free(t->id);
    free(t->drafts.sampled);
    scheduler_close(&t->scheduler);
    form_close(t->form);
    lexicon_keeper_close(&t->lexicon);
    tokenizer_close(&t->tokenizer);
    *t = (struct traffic){0};
}

void traffic_renew(struct traffic *t)
{
    if (t->n_shared > 0 && t->n_queued > 0)
        fill(t, t->n_queued * t->n_ids);
}

int traffic_queue(struct traffic *t, double now, struct err *e)
{
    t->n_queued++;
    for (int i = 0; i < t->n_requests; i++) {
        struct request *r = &t->request[i];
        release(r);
        *r = (struct request){.rules = &t->rules, .index = i};
        t->newest[i] = -1;
        r->prompt = (struct token_list){t->id + (size_t)i * t->stride, (size_t)t->n_input, (size_t)t->n_input};
        if (scheduler_add(&t->scheduler, r, now, e) != 0)
            return -1;
        t->n_open++;
    }
    return 0;
}

bool traffic_busy(const struct traffic *t)
{
    return t->n_open > 0;
}

void traffic_plan(struct traffic *t, struct plan *p, double now)
{
    scheduler_plan(&t->scheduler, p, now);
}

void traffic_masks(struct traffic *t, struct plan *p)
{
    scheduler_masks(&t->scheduler, p);
}

static const struct request *ended_early(const struct traffic *t)
{
    for (int i = 0; i < t->n_requests; i++)
        if (t->request[i].finish != FINISH_NONE && t->request[i].finish != FINISH_LENGTH)
            return &t->request[i];
    return NULL;
}

int traffic_accept(struct traffic *t, const struct step_result *result, double now, struct err *e)
{
    struct step_result played = *result;
    if (t->drafts.most > 0 && !t->drafts.come_true)
        play(t, &played);
    if (scheduler_accept(&t->scheduler, &played, now, e) != 0)
        return -1;
    const struct request *early = t->form != NULL ? ended_early(t) : NULL;
    if (early == NULL)
        return 0;
    return ERR(e, ERR_INPUT, "--json-schema: an answer ended after %zu of %d tokens (%s), expected one that goes on",
               early->output.n, t->rules.max_tokens,
               early->error.code != ERR_NONE ? early->error.text : "it was complete");
}

void traffic_drafts(const struct traffic *t, struct draft_counts *c)
{
    const struct scheduler_stats *s = &t->scheduler.stats;
    *c = (struct draft_counts){t->drafts.most, (int64_t)s->n_drafts, (int64_t)s->n_draft_tokens, {0}};
    for (int i = 0; i < DRAFTS_MAX; i++)
        c->n_accepted[i] = (int64_t)s->n_accepted[i];
}

double traffic_cached(const struct traffic *t)
{
    const struct scheduler_stats *s = &t->scheduler.stats;
    return s->n_prompt_tokens > 0 ? (double)s->n_prompt_cached / (double)s->n_prompt_tokens : 0;
}
