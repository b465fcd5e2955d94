/* gateway/exchange/answer_counts.c - see answer_counts.h. */
#include "gateway/exchange/answer_counts.h"

#include <string.h>

const struct answer_count *answer_counts_find(const struct answer_counts *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->model[i].name, name) == 0)
            return &c->model[i];
    return NULL;
}

static struct answer_count *find_count(struct answer_counts *c, const char *name, bool good)
{
    struct answer_count *m = (struct answer_count *)answer_counts_find(c, name);
    if (m != NULL || !good || c->n == ANSWER_COUNTS || strlen(name) >= sizeof m->name || name[0] == '\0')
        return m;
    m = &c->model[c->n++];
    memcpy(m->name, name, strlen(name) + 1);
    return m;
}

void answer_counts_take(struct answer_counts *c, const struct tally *t, double now)
{
    bool good = t->status == 200 && !t->left;
    struct answer_count *m = t->is_generate ? find_count(c, t->model, good) : NULL;
    if (m == NULL)
        return;
    m->last = now;
    m->n_good += good;
    m->n_bad += !good;
    *(good ? &m->good_seconds : &m->bad_seconds) += t->total;
    m->queue_seconds += good && t->queue > 0 ? t->queue : 0;
    m->compute_seconds += good && t->compute > 0 ? t->compute : 0;
}
