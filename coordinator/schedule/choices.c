/* coordinator/schedule/choices.c - see choices.h. */
#include "coordinator/schedule/choices.h"

#include <stdlib.h>
#include <string.h>

/* ---- members ---- */

static bool has_beams(const struct choices *set)
{
    return set->search.num_beams > 1;
}

static bool is_ranked(const struct choices *set)
{
    return has_beams(set) || set->n_members > set->search.n;
}

static const struct choices_events *events_of(const struct choices *set)
{
    return set->scheduler->setup.context;
}

static void make_variants(struct choices *set)
{
    for (int i = 0; i < set->n_members; i++) {
        struct request_rules *v = &set->variant[i];
        *v = *set->rules;
        v->want_prompt_logprobs = i == 0 && set->rules->want_prompt_logprobs;
        if (!has_beams(set)) {
            v->sampling.seed += (uint64_t)i;
            continue;
        }
        int top = beam_top(&set->beam.setup);
        v->want_logprobs = false; /* kept by the choices, not by running beams */
        v->sampling.n_top = v->sampling.n_top > top ? v->sampling.n_top : top;
    }
}

/* The prompt is the set's. */
static void init_member(struct choices *set, struct request *m, const struct request_rules *rules)
{
    *m = (struct request){.rules = rules,
                          .owner = set,
                          .client = set->client,
                          .party = set->party,
                          .priority = set->priority,
                          .deadline = set->deadline,
                          .steered = has_beams(set),
                          .ranked = is_ranked(set),
                          .prompt = set->prompt,
                          .prediction = set->prediction,
                          .slot = -1};
}

static void close_member(struct request *m)
{
    m->prompt = (struct token_list){0};
    request_close(m);
    *m = (struct request){0};
}

int choices_open(struct choices *set, const struct search *how, const struct request_rules *rules,
                 struct token_list *prompt, struct err *e)
{
    *set = (struct choices){.rules = rules, .search = *how, .prompt = *prompt};
    *prompt = (struct token_list){0};
    set->n_members = has_beams(set) ? 2 * how->num_beams : how->best_of > how->n ? how->best_of : how->n;
    size_t n = (size_t)how->n, n_members = (size_t)set->n_members;
    set->member = err_calloc(e, n_members, sizeof *set->member, "sequences of a request");
    set->variant = err_calloc(e, n_members, sizeof *set->variant, "rules of a request");
    set->choice = err_calloc(e, n, sizeof(struct request *), "choices of a request");
    if (has_beams(set)) {
        set->result = err_calloc(e, n, sizeof *set->result, "choices of a request");
        set->score = err_calloc(e, n, sizeof *set->score, "choices of a request");
        set->beam_result = err_calloc(e, (size_t)how->num_beams, sizeof *set->beam_result, "beams of a request");
    }
    if (e->code != ERR_NONE)
        return -1;
    const struct beam_setup setup = {.num_beams = how->num_beams,
                                     .max_tokens = rules->max_tokens,
                                     .min_tokens = rules->sampling.min_tokens,
                                     .n_eos = rules->n_stop_ids,
                                     .eos = rules->stop_id,
                                     .rules = how->beam};
    if (has_beams(set))
        beam_open(&set->beam, &setup);
    make_variants(set);
    for (int i = 0; i < how->n; i++)
        set->choice[i] = has_beams(set) ? &set->result[i] : &set->member[i];
    return 0;
}

bool choices_begun(const struct choices *set)
{
    return set->started || set->member[0].times.scheduled > 0;
}

void choices_close(struct choices *set)
{
    for (int i = 0; set->member != NULL && i < set->n_members; i++)
        close_member(&set->member[i]);
    for (int i = 0; set->result != NULL && i < set->search.n; i++)
        close_member(&set->result[i]);
    beam_close(&set->beam);
    token_list_free(&set->prompt);
    free(set->member);
    free(set->variant);
    free(set->choice);
    free(set->result);
    free(set->score);
    free(set->beam_result);
    free(set->prompt_logprobs);
    *set = (struct choices){0};
}

/* ---- the end ---- */

/* The text of n tokens that end in a node of the search; none when there is no such node. */
static void make_result(struct choices *set, int i, int node, int n, enum finish_reason why)
{
    struct err e = {0};
    struct request *r = &set->result[i];
    struct sampled *path = err_calloc(&e, (size_t)n, sizeof *path, "a beam");
    init_member(set, r, set->rules);
    r->index = i;
    if (path != NULL)
        beam_path(&set->beam, node, n, path);
    for (int k = 0; k < n && e.code == ERR_NONE; k++)
        (void)request_take(r, set->scheduler->setup.tokenizer, &path[k], false, &e);
    free(path);
    if (e.code != ERR_NONE) {
        r->finish = FINISH_ERROR;
        r->error = e;
    }
    if (r->finish == FINISH_NONE)
        r->finish = why;
}

/* Finished hypotheses, followed by unfinished beams if the search was ended early. */
static void make_results(struct choices *set, enum finish_reason why)
{
    const struct beam_search *b = &set->beam;
    for (int i = 0; i < set->search.n; i++) {
        int beam = i - b->n_best;
        if (beam < 0)
            make_result(set, i, b->best[i].node, b->best[i].n_tokens, why);
        else if (beam < b->n_beams)
            make_result(set, i, b->beam[beam].node, b->n_tokens, why);
        else
            make_result(set, i, -1, 0, why);
        set->score[i] = beam < 0 ? b->best[i].score : beam < b->n_beams ? b->beam[beam].sum : 0;
        set->result[i].times = set->times;
        scheduler_note_finish(set->scheduler, set->result[i].finish);
    }
}

static double mean_logprob(const struct request *r)
{
    return r->output.n > 0 ? r->logprob_sum / (double)r->output.n : 0;
}

/* Copies the best n members to choice, best first; among equals the lower seed is first. */
static void rank_members(struct choices *set)
{
    int n = 0;
    for (int i = 0; i < set->n_members; i++) {
        struct request *m = &set->member[i];
        if (n == set->search.n && mean_logprob(m) <= mean_logprob(set->choice[n - 1]))
            continue;
        int at = n < set->search.n ? n++ : n - 1;
        for (; at > 0 && mean_logprob(m) > mean_logprob(set->choice[at - 1]); at--)
            set->choice[at] = set->choice[at - 1];
        set->choice[at] = m;
    }
}

/* Ends the set; running members are cancelled. */
static void finish_choices(struct choices *set, enum finish_reason why)
{
    set->finish = why;
    if (!set->started) {
        set->times = set->member[0].times;
        set->n_cached = set->member[0].n_cached;
    }
    set->times.finished = set->scheduler->now;
    for (int i = 0; i < set->n_members; i++) {
        struct request *m = &set->member[i];
        if (m->state != REQUEST_IDLE)
            scheduler_cancel(set->scheduler, m, why, set->scheduler->now);
        else if (m->finish == FINISH_NONE && !has_beams(set))
            m->finish = why; /* never queued */
    }
    set->drafts.n_places = scheduler_draft_places(set->scheduler);
    for (int i = 0; i < set->n_members; i++)
        draft_counts_add(&set->drafts, &set->member[i].drafts);
    if (has_beams(set))
        make_results(set, why);
    else if (is_ranked(set))
        rank_members(set);
}

static void fail_choices(struct choices *set, const struct err *e)
{
    set->error = *e;
    finish_choices(set, FINISH_ERROR);
}

const struct err *choices_error(const struct choices *set, int i)
{
    const struct request *r = set->choice != NULL ? set->choice[i] : NULL;
    if (r != NULL && r->finish != FINISH_ERROR)
        return NULL;
    if (r != NULL && r->error.code != ERR_NONE)
        return &r->error;
    return set->error.code != ERR_NONE ? &set->error : NULL;
}

static void release_if_done(struct choices *set)
{
    if (set->finish != FINISH_NONE && set->n_held == 0 && set->n_calls == 0)
        events_of(set)->on_release(events_of(set)->context, set);
}

void choices_cancel(struct choices *set, enum finish_reason why, double now)
{
    if (set->scheduler == NULL || set->finish != FINISH_NONE)
        return;
    set->scheduler->now = now;
    set->silent = true;
    set->n_calls++;
    finish_choices(set, why);
    set->n_calls--;
    release_if_done(set);
}

/* ---- the beginning ---- */

/* Sequences beyond the first one, if they are not beams. */
static int add_others(struct choices *set, struct err *e)
{
    for (int i = 1; i < set->n_members; i++) {
        struct request *m = &set->member[i];
        if (scheduler_fork(set->scheduler, m, &set->member[0], set->scheduler->now, e) != 0)
            return -1;
        set->n_held++;
    }
    return 0;
}

/* Is it worth waiting until the first sequence's prompt can be shared? */
static bool has_blocks_to_share(const struct choices *set)
{
    return set->prompt.n > KV_BLOCK_TOKENS;
}

int choices_submit(struct choices *set, struct scheduler *s, double now, struct err *e)
{
    uint64_t family = has_beams(set) || set->n_members > 1 ? scheduler_family(s) : 0;
    set->scheduler = s;
    for (int i = 0; i < (has_beams(set) ? 1 : set->n_members); i++) {
        init_member(set, &set->member[i], &set->variant[i]);
        set->member[i].family = family;
        set->member[i].index = i;
    }
    int status = scheduler_add(s, &set->member[0], now, e);
    set->n_held = status == 0;
    set->n_awaited = 1;
    set->n_calls++;
    if (status == 0 && !has_beams(set) && !has_blocks_to_share(set) && add_others(set, e) != 0) {
        fail_choices(set, e);
        status = -1;
    }
    set->n_calls--;
    if (status != 0)
        set->scheduler = NULL; /* there are no events */
    return status;
}

/* The first sequence has its first token, so its prompt is in the cache. */
static int go_on_from_prompt(struct choices *set, struct request *m, struct err *e)
{
    set->started = true;
    set->times = m->times;
    set->n_cached = m->n_cached;
    set->prompt_logprobs = m->prompt_logprobs;
    m->prompt_logprobs = NULL;
    return !has_beams(set) && has_blocks_to_share(set) ? add_others(set, e) : 0;
}

/* ---- beams ---- */

static struct request *free_member(struct choices *set)
{
    for (int i = 0; i < set->n_members; i++)
        if (set->member[i].rules == NULL)
            return &set->member[i];
    return NULL;
}

/* A new sequence with the tokens of a parent and one more. */
static struct request *fork_beam(struct choices *set, const struct request *parent, const struct sampled *token,
                                 struct err *e)
{
    struct request *m = free_member(set);
    size_t n = parent->output.n, capacity = n + 64;
    if (m == NULL) {
        ERR(e, ERR_INTERNAL, "no sequence is free for a beam");
        return NULL;
    }
    init_member(set, m, &set->variant[1]);
    m->family = parent->family;
    m->output = (struct token_list){err_calloc(e, capacity, sizeof *m->output.id, "a beam"), n, capacity};
    if (m->output.id == NULL)
        return NULL;
    if (n > 0)
        memcpy(m->output.id, parent->output.id, n * sizeof *m->output.id);
    if (request_append(m, token, e) != 0 || scheduler_fork(set->scheduler, m, parent, set->scheduler->now, e) != 0)
        return NULL;
    set->n_held++;
    return m;
}

/* Give the new beams sequences: a parent's goes on with its first child, the other children get new ones. */
static int assign_beams(struct choices *set, int n_parents, struct err *e)
{
    const struct beam_search *b = &set->beam;
    int member[BEAM_MAX], heir[BEAM_MAX];
    memset(heir, 0xff, sizeof heir);
    for (int i = b->n_beams - 1; i >= 0; i--)
        heir[b->beam[i].parent] = i;
    for (int i = 0; i < n_parents; i++)
        if (heir[i] < 0)
            scheduler_cancel(set->scheduler, &set->member[set->beam_member[i]], FINISH_STOP, set->scheduler->now);
    for (int i = 0; i < b->n_beams; i++) { /* before the parents go on */
        int parent = b->beam[i].parent;
        struct request *m = &set->member[set->beam_member[parent]];
        if (heir[parent] != i)
            m = fork_beam(set, m, beam_token(b, i), e);
        if (m == NULL)
            return -1;
        member[i] = (int)(m - set->member);
    }
    for (int i = 0; i < b->n_beams; i++)
        if (heir[b->beam[i].parent] == i &&
            scheduler_continue(set->scheduler, &set->member[member[i]], beam_token(b, i), e) != 0)
            return -1;
    memcpy(set->beam_member, member, (size_t)b->n_beams * sizeof member[0]);
    return 0;
}

static int take_beam(struct choices *set, struct request *m, struct err *e)
{
    int i = 0, n_parents = set->beam.n_beams;
    while (set->beam_member[i] != (int)(m - set->member))
        i++;
    set->beam_result[i] = *m->newest;
    if (--set->n_awaited > 0)
        return 0;
    if (beam_step(&set->beam, set->beam_result, e) != 0)
        return -1;
    set->n_awaited = set->beam.n_beams;
    if (!set->beam.done)
        return assign_beams(set, n_parents, e);
    finish_choices(set, FINISH_STOP);
    return 0;
}

/* ---- events ---- */

static int take_choice(struct choices *set, struct request *m)
{
    if (m->finish != FINISH_NONE)
        set->n_finished++;
    if (!is_ranked(set))
        events_of(set)->on_choice(events_of(set)->context, set, m->index);
    if (set->finish == FINISH_NONE && set->n_finished == set->n_members)
        finish_choices(set, FINISH_STOP);
    return 0;
}

void choices_on_progress(void *events, struct request *r)
{
    const struct choices_events *on = events;
    struct choices *set = r->owner;
    struct err e = {0};
    if (set->finish != FINISH_NONE)
        return;
    set->n_calls++;
    if (r->finish == FINISH_TIMEOUT)
        finish_choices(set, FINISH_TIMEOUT);
    else if ((!set->started && r == &set->member[0] && go_on_from_prompt(set, r, &e) != 0) ||
             (has_beams(set) ? take_beam(set, r, &e) : take_choice(set, r)) != 0)
        fail_choices(set, &e);
    set->n_calls--;
    if (set->finish != FINISH_NONE && !set->silent)
        on->on_finish(on->context, set);
}

void choices_on_release(void *events, struct request *r)
{
    struct choices *set = r->owner;
    (void)events;
    set->n_held--;
    if (has_beams(set) && set->finish == FINISH_NONE)
        close_member(r); /* free for another beam */
    release_if_done(set);
}
