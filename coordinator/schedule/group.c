/* coordinator/schedule/group.c - see group.h. */
#include "coordinator/schedule/group.h"

#include <stdlib.h>
#include <string.h>

/* ---- members ---- */

static bool has_beams(const struct group *g)
{
    return g->search.num_beams > 1;
}

static bool is_ranked(const struct group *g)
{
    return has_beams(g) || g->n_members > g->search.n;
}

static const struct group_events *events_of(const struct group *g)
{
    return g->scheduler->setup.context;
}

static void make_variants(struct group *g)
{
    for (int i = 0; i < g->n_members; i++) {
        struct request_rules *v = &g->variant[i];
        *v = *g->rules;
        v->want_prompt_logprobs = i == 0 && g->rules->want_prompt_logprobs;
        if (!has_beams(g)) {
            v->sampling.seed += (uint64_t)i;
            continue;
        }
        int top = beam_top(&g->beam.setup);
        v->want_logprobs = false; /* the choices have them, not the beams on their way */
        v->sampling.n_top = v->sampling.n_top > top ? v->sampling.n_top : top;
    }
}

/* The prompt is the group's. */
static void init_member(struct group *g, struct request *m, const struct request_rules *rules)
{
    *m = (struct request){.rules = rules,
                          .owner = g,
                          .client = g->client,
                          .priority = g->priority,
                          .deadline = g->deadline,
                          .steered = has_beams(g),
                          .prompt = g->prompt,
                          .slot = -1};
}

static void close_member(struct request *m)
{
    m->prompt = (struct token_list){0};
    request_close(m);
    *m = (struct request){0};
}

int group_open(struct group *g, const struct search *how, const struct request_rules *rules, struct token_list *prompt,
               struct err *e)
{
    *g = (struct group){.rules = rules, .search = *how, .prompt = *prompt};
    *prompt = (struct token_list){0};
    g->n_members = has_beams(g) ? 2 * how->num_beams : how->best_of > how->n ? how->best_of : how->n;
    size_t n = (size_t)how->n, n_members = (size_t)g->n_members;
    g->member = err_calloc(e, n_members, sizeof *g->member, "sequences of a request");
    g->variant = err_calloc(e, n_members, sizeof *g->variant, "rules of a request");
    g->choice = err_calloc(e, n, sizeof(struct request *), "choices of a request");
    if (has_beams(g)) {
        g->result = err_calloc(e, n, sizeof *g->result, "choices of a request");
        g->score = err_calloc(e, n, sizeof *g->score, "choices of a request");
        g->beam_result = err_calloc(e, (size_t)how->num_beams, sizeof *g->beam_result, "beams of a request");
    }
    if (e->code != ERR_NONE)
        return -1;
    const struct beam_setup setup = {.num_beams = how->num_beams,
                                     .max_tokens = rules->max_tokens,
                                     .min_tokens = rules->sampling.min_tokens,
                                     .n_eos = rules->n_stop_ids,
                                     .eos = rules->stop_id,
                                     .rules = how->beam};
    if (has_beams(g))
        beam_open(&g->beam, &setup);
    make_variants(g);
    for (int i = 0; i < how->n; i++)
        g->choice[i] = has_beams(g) ? &g->result[i] : &g->member[i];
    return 0;
}

bool group_begun(const struct group *g)
{
    return g->started || g->member[0].times.scheduled > 0;
}

void group_close(struct group *g)
{
    for (int i = 0; g->member != NULL && i < g->n_members; i++)
        close_member(&g->member[i]);
    for (int i = 0; g->result != NULL && i < g->search.n; i++)
        close_member(&g->result[i]);
    beam_close(&g->beam);
    token_list_free(&g->prompt);
    free(g->member);
    free(g->variant);
    free(g->choice);
    free(g->result);
    free(g->score);
    free(g->beam_result);
    free(g->prompt_logprobs);
    *g = (struct group){0};
}

/* ---- the end ---- */

/* The text of n tokens that end in a node of the search; none when there is no such node. */
static void make_result(struct group *g, int i, int node, int n, enum finish_reason why)
{
    struct err e = {0};
    struct request *r = &g->result[i];
    struct sampled *path = err_calloc(&e, (size_t)n, sizeof *path, "a beam");
    init_member(g, r, g->rules);
    r->index = i;
    if (path != NULL)
        beam_path(&g->beam, node, n, path);
    for (int k = 0; k < n && e.code == ERR_NONE; k++)
        (void)request_take(r, g->scheduler->setup.tokenizer, &path[k], &e);
    free(path);
    if (e.code != ERR_NONE) {
        r->finish = FINISH_ERROR;
        r->error = e;
    }
    if (r->finish == FINISH_NONE)
        r->finish = why;
}

/* Finished hypotheses; if the search was ended before there were enough, then the beams as far as they have come. */
static void make_results(struct group *g, enum finish_reason why)
{
    const struct beam_search *b = &g->beam;
    for (int i = 0; i < g->search.n; i++) {
        int beam = i - b->n_best;
        if (beam < 0)
            make_result(g, i, b->best[i].node, b->best[i].n_tokens, why);
        else if (beam < b->n_beams)
            make_result(g, i, b->beam[beam].node, b->n_tokens, why);
        else
            make_result(g, i, -1, 0, why);
        g->score[i] = beam < 0 ? b->best[i].score : beam < b->n_beams ? b->beam[beam].sum : 0;
        g->result[i].times = g->times;
        scheduler_note_finish(g->scheduler, g->result[i].finish);
    }
}

static double mean_logprob(const struct request *r)
{
    return r->output.n > 0 ? r->logprob_sum / (double)r->output.n : 0;
}

/* The best n members to choice, the best first, the lower seed first among equals. */
static void rank_members(struct group *g)
{
    int n = 0;
    for (int i = 0; i < g->n_members; i++) {
        struct request *m = &g->member[i];
        if (n == g->search.n && mean_logprob(m) <= mean_logprob(g->choice[n - 1]))
            continue;
        int at = n < g->search.n ? n++ : n - 1;
        for (; at > 0 && mean_logprob(m) > mean_logprob(g->choice[at - 1]); at--)
            g->choice[at] = g->choice[at - 1];
        g->choice[at] = m;
    }
}

/* End the group: what still runs is cancelled. */
static void finish(struct group *g, enum finish_reason why)
{
    g->finish = why;
    if (!g->started) {
        g->times = g->member[0].times;
        g->n_cached = g->member[0].n_cached;
    }
    g->times.finished = g->scheduler->now;
    for (int i = 0; i < g->n_members; i++) {
        struct request *m = &g->member[i];
        if (m->state != REQUEST_IDLE)
            scheduler_cancel(g->scheduler, m, why, g->scheduler->now);
        else if (m->finish == FINISH_NONE && !has_beams(g))
            m->finish = why; /* never queued */
    }
    if (has_beams(g))
        make_results(g, why);
    else if (is_ranked(g))
        rank_members(g);
}

static void release_if_done(struct group *g)
{
    if (g->finish != FINISH_NONE && g->n_held == 0 && g->n_calls == 0)
        events_of(g)->on_release(events_of(g)->context, g);
}

void group_cancel(struct group *g, enum finish_reason why, double now)
{
    if (g->scheduler == NULL || g->finish != FINISH_NONE)
        return;
    g->scheduler->now = now;
    g->silent = true;
    g->n_calls++;
    finish(g, why);
    g->n_calls--;
    release_if_done(g);
}

/* ---- the beginning ---- */

/* Sequences beyond the first one, if they are not beams. */
static int add_others(struct group *g, struct err *e)
{
    for (int i = 1; i < g->n_members; i++) {
        struct request *m = &g->member[i];
        if (scheduler_fork(g->scheduler, m, &g->member[0], g->scheduler->now, e) != 0)
            return -1;
        g->n_held++;
    }
    return 0;
}

/* Is it worth waiting until the first one's prompt is there to be shared? */
static bool has_blocks_to_share(const struct group *g)
{
    return g->prompt.n > KV_BLOCK_TOKENS;
}

int group_submit(struct group *g, struct scheduler *s, double now, struct err *e)
{
    uint64_t family = has_beams(g) || g->n_members > 1 ? scheduler_family(s) : 0;
    g->scheduler = s;
    for (int i = 0; i < (has_beams(g) ? 1 : g->n_members); i++) {
        init_member(g, &g->member[i], &g->variant[i]);
        g->member[i].family = family;
        g->member[i].index = i;
    }
    int status = scheduler_add(s, &g->member[0], now, e);
    g->n_held = status == 0;
    g->n_awaited = 1;
    g->n_calls++;
    if (status == 0 && !has_beams(g) && !has_blocks_to_share(g) && add_others(g, e) != 0) {
        finish(g, FINISH_ERROR);
        status = -1;
    }
    g->n_calls--;
    if (status != 0)
        g->scheduler = NULL; /* there are no events */
    return status;
}

/* The first token of the first sequence: its prompt is there. */
static int go_on_from_prompt(struct group *g, struct request *m, struct err *e)
{
    g->started = true;
    g->times = m->times;
    g->n_cached = m->n_cached;
    g->prompt_logprobs = m->prompt_logprobs;
    m->prompt_logprobs = NULL;
    return !has_beams(g) && has_blocks_to_share(g) ? add_others(g, e) : 0;
}

/* ---- beams ---- */

static struct request *free_member(struct group *g)
{
    for (int i = 0; i < g->n_members; i++)
        if (g->member[i].rules == NULL)
            return &g->member[i];
    return NULL;
}

/* A new sequence with the tokens of a parent and one more. */
static struct request *fork_beam(struct group *g, const struct request *parent, const struct sampled *token,
                                 struct err *e)
{
    struct request *m = free_member(g);
    size_t n = parent->output.n, capacity = n + 64;
    if (m == NULL) {
        ERR(e, ERR_INTERNAL, "no sequence is free for a beam");
        return NULL;
    }
    init_member(g, m, &g->variant[1]);
    m->family = parent->family;
    m->output = (struct token_list){err_calloc(e, capacity, sizeof *m->output.id, "a beam"), n, capacity};
    if (m->output.id == NULL)
        return NULL;
    if (n > 0)
        memcpy(m->output.id, parent->output.id, n * sizeof *m->output.id);
    if (request_append(m, token, e) != 0 || scheduler_fork(g->scheduler, m, parent, g->scheduler->now, e) != 0)
        return NULL;
    g->n_held++;
    return m;
}

/* Give the new beams sequences: a parent's goes on with its first child, the other children get new ones. */
static int assign_beams(struct group *g, int n_parents, struct err *e)
{
    const struct beam_search *b = &g->beam;
    int member[BEAM_MAX], heir[BEAM_MAX];
    memset(heir, 0xff, sizeof heir);
    for (int i = b->n_beams - 1; i >= 0; i--)
        heir[b->beam[i].parent] = i;
    for (int i = 0; i < n_parents; i++)
        if (heir[i] < 0)
            scheduler_cancel(g->scheduler, &g->member[g->beam_member[i]], FINISH_STOP, g->scheduler->now);
    for (int i = 0; i < b->n_beams; i++) { /* before the parents go on */
        int parent = b->beam[i].parent;
        struct request *m = &g->member[g->beam_member[parent]];
        if (heir[parent] != i)
            m = fork_beam(g, m, beam_token(b, i), e);
        if (m == NULL)
            return -1;
        member[i] = (int)(m - g->member);
    }
    for (int i = 0; i < b->n_beams; i++)
        if (heir[b->beam[i].parent] == i &&
            scheduler_continue(g->scheduler, &g->member[member[i]], beam_token(b, i), e) != 0)
            return -1;
    memcpy(g->beam_member, member, (size_t)b->n_beams * sizeof member[0]);
    return 0;
}

static int take_beam(struct group *g, struct request *m, struct err *e)
{
    int i = 0, n_parents = g->beam.n_beams;
    while (g->beam_member[i] != (int)(m - g->member))
        i++;
    g->beam_result[i] = *m->newest;
    if (--g->n_awaited > 0)
        return 0;
    if (beam_step(&g->beam, g->beam_result, e) != 0)
        return -1;
    g->n_awaited = g->beam.n_beams;
    if (!g->beam.done)
        return assign_beams(g, n_parents, e);
    finish(g, FINISH_STOP);
    return 0;
}

/* ---- events ---- */

static int take_choice(struct group *g, struct request *m)
{
    if (m->finish != FINISH_NONE)
        g->n_finished++;
    if (!is_ranked(g))
        events_of(g)->on_choice(events_of(g)->context, g, m->index);
    if (g->finish == FINISH_NONE && g->n_finished == g->n_members)
        finish(g, FINISH_STOP);
    return 0;
}

void group_on_progress(void *events, struct request *r)
{
    const struct group_events *on = events;
    struct group *g = r->owner;
    struct err e = {0};
    if (g->finish != FINISH_NONE)
        return;
    g->n_calls++;
    if (r->finish == FINISH_TIMEOUT)
        finish(g, FINISH_TIMEOUT);
    else if ((!g->started && r == &g->member[0] && go_on_from_prompt(g, r, &e) != 0) ||
             (has_beams(g) ? take_beam(g, r, &e) : take_choice(g, r)) != 0)
        finish(g, FINISH_ERROR);
    g->n_calls--;
    if (g->finish != FINISH_NONE && !g->silent)
        on->on_finish(on->context, g);
}

void group_on_release(void *events, struct request *r)
{
    struct group *g = r->owner;
    (void)events;
    g->n_held--;
    if (has_beams(g) && g->finish == FINISH_NONE)
        close_member(r); /* free for another beam */
    release_if_done(g);
}
