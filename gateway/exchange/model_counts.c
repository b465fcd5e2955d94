/* gateway/exchange/model_counts.c - see model_counts.h. */
#include "gateway/exchange/model_counts.h"

#include <string.h>

const struct model_count *model_counts_find(const struct model_counts *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->model[i].name, name) == 0)
            return &c->model[i];
    return NULL;
}

static struct model_count *find_count(struct model_counts *c, const char *name, bool good)
{
    struct model_count *m = (struct model_count *)model_counts_find(c, name);
    if (m != NULL || !good || c->n == MODEL_COUNTS || strlen(name) >= sizeof m->name || name[0] == '\0')
        return m;
    m = &c->model[c->n++];
    memcpy(m->name, name, strlen(name) + 1);
    return m;
}

void model_counts_take(struct model_counts *c, const struct tally *t, double now)
{
    bool good = t->status == 200 && !t->left;
    struct model_count *m = t->is_generate ? find_count(c, t->model, good) : NULL;
    if (m == NULL)
        return;
    m->last = now;
    m->n_good += good;
    m->n_bad += !good;
    *(good ? &m->good_seconds : &m->bad_seconds) += t->total;
    m->queue_seconds += good && t->queue > 0 ? t->queue : 0;
    m->compute_seconds += good && t->compute > 0 ? t->compute : 0;
}
