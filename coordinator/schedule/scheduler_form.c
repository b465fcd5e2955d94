/* coordinator/schedule/scheduler_form.c - sequences whose text has to have a form: where their masks travel, and what
 * becomes of steps under way when text is known before it is sampled. See scheduler_parts.h. */
#include "coordinator/schedule/scheduler_parts.h"

void form_add_mask(const struct scheduler *s, const struct request *r, struct plan *p)
{
    size_t words = (size_t)s->setup.limits.mask_words;
    struct plan_seq *seq = &p->seq[p->n_seqs - 1];
    seq->masked = n_awaited(r) > 0 ? MASK_LATE : MASK_HERE;
    if (seq->masked == MASK_LATE)
        p->n_late++;
    else
        memcpy(p->mask + (size_t)p->n_masks++ * words, r->mask, words * sizeof *r->mask);
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
