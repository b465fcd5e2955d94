/* rank/step/persistent_sums.c - see persistent_sums.h. */
#include "rank/step/persistent_sums.h"

#include <string.h>

/* The reason why this rank has none. */
static const char *refuse(struct persistent_sums *s, const struct world *w, const struct ops *ops, struct queue *q)
{
    if (!w->on_one_host)
        return "ranks on more than one host";
    s->place_bytes = ops->persistent->sums_bytes(q, w->n_ranks);
    return s->place_bytes == 0 ? "these GPUs" : NULL;
}

int persistent_sums_open(struct persistent_sums *s, int n_places, const struct world *w, const struct ops *ops,
                         struct queue *q, struct err *e)
{
    *s = (struct persistent_sums){.n_places = n_places};
    if (ops->persistent == NULL || w->n_ranks == 1)
        return 0;
    s->why_not = peers_agree(refuse(s, w, ops, q), w);
    if (s->why_not != NULL)
        return 0;
    s->memory = ops->alloc(q, (size_t)n_places * s->place_bytes);
    s->why_not = peers_agree(s->memory != NULL ? NULL : "too little memory", w);
    if (s->why_not == NULL)
        s->why_not = peers_open(&s->peers, s->memory, w, ops, q);
    if (s->why_not != NULL) {
        ops->free(q, s->memory);
        s->memory = NULL;
    }
    return q->err.code == ERR_NONE ? 0 : ERR(e, q->err.code, "memory for sums: %s", q->err.text);
}

struct persistent_place persistent_sums_place(const struct persistent_sums *s, int place)
{
    struct persistent_place p = {.why_not = s->why_not};
    for (int r = 0; s->memory != NULL && r < s->peers.n_ranks; r++)
        p.memory[r] = (char *)s->peers.memory[r] + (size_t)place * s->place_bytes;
    return p;
}

void persistent_sums_close(struct persistent_sums *s, const struct world *w, const struct ops *ops, struct queue *q)
{
    if (s->memory != NULL) {
        peers_close(&s->peers, w, ops, q);
        ops->free(q, s->memory);
    }
    memset(s, 0, sizeof *s);
}
