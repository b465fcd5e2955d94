/* coordinator/schedule/scheduler_form.c - sequences with a form: the way of their masks, and the handling of steps
 * under way when text is known before it is sampled. See scheduler_parts.h. */
#include "coordinator/schedule/scheduler_parts.h"

/* Did the attempt end since the text would be complete? */
static bool completes(const struct grammar_run *form)
{
    return form->ahead.state >= 0 && grammar_run_ended(form);
}

static bool is_end(const struct request *r, int32_t token)
{
    for (int i = 0; i < r->rules->n_stop_ids; i++)
        if (r->rules->stop_id[i] == token)
            return true;
    return false;
}

/* A token that ends the text is not fed either, but need not be wrong. */
int form_allows(struct request *r, int n)
{
    int i = 0;
    grammar_run_try(r->form);
    while (i < n && !is_end(r, r->draft[i]) && grammar_run_goes_on(r->form, r->draft[i]))
        i++;
    bool ends = i < n && is_end(r, r->draft[i]) ? grammar_run_may_end(r->form) : completes(r->form);
    r->barred = i < n && !ends ? i + 1 : 0;
    grammar_run_return(r->form);
    return i;
}

/* A form that cannot continue after a draft ends the request only if the draft is right. */
static int add_draft_masks(const struct request *r, const struct plan *p, uint32_t *mask)
{
    size_t words = (size_t)p->limits.mask_words;
    struct err why = {0};
    int n = 0;
    grammar_run_try(r->form);
    while (n < r->n_drafts && (mask[r->draft[n] / 32] >> r->draft[n] % 32 & 1) != 0 &&
           grammar_run_goes_on(r->form, r->draft[n]) &&
           grammar_run_mask(r->form, r->rules->stop_id, r->rules->n_stop_ids, mask + words, &why) == 0) {
        mask += words;
        n++;
    }
    grammar_run_return(r->form);
    return n;
}

enum plan_mask form_add_masks(const struct scheduler *s, struct request *r, struct plan *p)
{
    size_t words = (size_t)s->setup.limits.mask_words;
    uint32_t *mask = p->mask + (size_t)p->n_masks * words;
    if (n_awaited(r) > 0) {
        p->n_late++;
        return MASK_LATE;
    }
    memcpy(mask, r->mask, words * sizeof *mask);
    if (r->n_drafts > 0)
        r->n_drafts = add_draft_masks(r, p, mask);
    p->n_masks += 1 + r->n_drafts;
    return MASK_HERE;
}

void scheduler_masks(const struct scheduler *s, struct plan *p)
{
    const struct flight *f = &s->flight[p->step % SCHEDULER_FLIGHTS];
    size_t words = (size_t)p->limits.mask_words;
    uint32_t *mask = plan_late_masks(p);
    for (int i = 0, sampled = 0; i < p->n_seqs; i++) {
        if (p->seq[i].masked == MASK_LATE) {
            memcpy(mask, f->request[sampled]->mask, words * sizeof *mask);
            mask += words;
        }
        sampled += p->seq[i].sample != 0;
    }
}

void form_note_jump(struct request *r, size_t n)
{
    if (n <= 1)
        return;
    r->n_void = r->n_in_flight;
    r->in_slot = false;
}

bool form_drops(struct request *r)
{
    if (r->n_void == 0)
        return false;
    r->n_void--;
    return true;
}
