/* coordinator/schedule/scheduler_bound.c - keeps steps with decoding sequences within setup.max_step: further tokens of
 * prompts wait for the next step; see scheduler_parts.h. */
#include "coordinator/schedule/scheduler_parts.h"

#define LEAST 32 /* minimum of prompt tokens per step, so that prompts advance even if decoding alone takes longer */

void bound_begin(struct scheduler *s, int n_rows)
{
    s->work = (struct step_work){.rows = n_rows};
    for (int i = 0; i < s->n_turns; i++)
        if (n_feedable(s->turn[i]) == 1)
            s->work.keys += s->turn[i]->n_fed;
    s->bounded = s->setup.max_step > 0 && n_rows > 0;
}

bool bound_has_room(const struct scheduler *s)
{
    struct step_work more = step_work_with(&s->work, 0, KV_BLOCK_TOKENS);
    return !s->bounded || s->work.tokens < LEAST || step_model_seconds(&s->step_model, &more) <= s->setup.max_step;
}

int bound_fit(const struct scheduler *s, int pos, int n)
{
    if (!s->bounded)
        return n;
    if (!bound_has_room(s))
        return 0;
    int least = LEAST - (int)s->work.tokens, fits = step_model_fit(&s->step_model, &s->work, pos, n, s->setup.max_step);
    least = least > KV_BLOCK_TOKENS ? least : KV_BLOCK_TOKENS;
    return smaller(n, fits > least ? fits : least);
}

void bound_note(struct scheduler *s, int pos, int n)
{
    s->work = step_work_with(&s->work, pos, n);
}

int bound_part(const struct scheduler *s, int n)
{
    int deepest = 0;
    for (int i = 0; i < s->n_turns; i++)
        if (n_feedable(s->turn[i]) > 1 && s->turn[i]->n_fed > deepest)
            deepest = s->turn[i]->n_fed;
    return s->n_queues > 1 ? bound_fit(s, deepest, n) : n;
}

/* The work of a plan. A sequence with a row for each of its tokens decodes. */
static struct step_work work_of(const struct plan *p)
{
    struct step_work work = {0};
    for (int i = 0; i < p->n_seqs; i++) {
        const struct plan_seq *seq = &p->seq[i];
        if (seq->n_tokens > seq->sample) {
            work = step_work_with(&work, seq->pos, seq->n_tokens);
            continue;
        }
        work.rows += seq->n_tokens;
        work.keys += (double)seq->pos;
    }
    return work;
}

void bound_end(struct scheduler *s, struct flight *f, const struct plan *p)
{
    f->work = work_of(p);
    f->bounded = s->bounded;
}

void bound_measure(struct scheduler *s, const struct flight *f, double seconds)
{
    if (s->setup.max_step > 0 && f->work.tokens + f->work.rows > 0)
        step_model_add(&s->step_model, &f->work, f->bounded, seconds);
}
