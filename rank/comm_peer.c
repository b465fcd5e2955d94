/* rank/comm_peer.c - sums over memory that the devices of a host share (kernels/peer.h), before another transport: what is
 * larger than these sums may be, and gathering, is left to that one.
 *
 * Which way a sum takes depends on its size and on the number of ranks only, not on a measurement: on 3 and more ranks the
 * transport behind may round otherwise, and a job's results shall not change from start to start. */
#include "base/log.h"
#include "rank/comm.h"
#include "rank/peers.h"

#include <stdlib.h>
#include <string.h>

struct comm_peer {
    struct comm inner; /* the transport behind */
    const struct world *world;
    const struct ops *ops;
    struct queue *q;
    struct peers peers;
    void *sums; /* of ops->peer */
    size_t most;
};

static void all_reduce(struct comm *c, struct queue *q, void *data, size_t n)
{
    struct comm_peer *p = c->impl;
    if (n * dtype_bytes(q->act) <= p->most)
        p->ops->peer->sum(q, p->sums, data, n);
    else
        p->inner.ops->all_reduce(&p->inner, q, data, n);
}

static bool all_reduce_norm(struct comm *c, struct queue *q, void *out, void *x, const void *partial,
                            enum norm_kind kind, const struct weight *w, const struct weight *b, int n_tokens, int dim,
                            float eps)
{
    struct comm_peer *p = c->impl;
    size_t bytes = (size_t)n_tokens * (size_t)dim * dtype_bytes(q->act);
    static int fuse = -1;
    if (fuse < 0)
        fuse = getenv("PEER_FUSE") == NULL || atoi(getenv("PEER_FUSE"));
    if (!fuse)
        return false;
    if (bytes > p->ops->peer->most_normed(q, p->sums, n_tokens, dim))
        return false;
    p->ops->peer->sum_norm(q, p->sums, out, x, partial, kind, w, b, n_tokens, dim, eps);
    return true;
}

static void all_gather(struct comm *c, struct queue *q, void *out, const void *in, const size_t *n)
{
    struct comm_peer *p = c->impl;
    p->inner.ops->all_gather(&p->inner, q, out, in, n);
}

static int check(struct comm *c, struct err *e)
{
    struct comm_peer *p = c->impl;
    return comm_check(&p->inner, e);
}

static void comm_peer_close(struct comm *c)
{
    struct comm_peer *p = c->impl;
    peers_close(&p->peers, p->world, p->ops, p->q);
    p->ops->peer->close_sums(p->q, p->sums);
    comm_close(&p->inner);
    free(p);
    c->impl = NULL;
}

static const struct comm_ops comm_peer_ops = {"peer", all_reduce, all_reduce_norm, all_gather, check, comm_peer_close};

/* Why not here, NULL: it works. */
static const char *open_sums(struct comm_peer *p)
{
    struct queue *q = p->q;
    const struct world *w = p->world;
    if (w->n_ranks > PEER_MAX_RANKS)
        return "more than 8 ranks";
    p->sums = p->ops->peer->open_sums(q, w->rank, w->n_ranks);
    const char *why = peers_agree(p->sums != NULL ? NULL : "too little memory", w);
    if (why == NULL)
        why = peers_open(&p->peers, p->ops->peer->memory(p->sums), w, p->ops, q);
    if (why == NULL)
        p->ops->peer->attach(p->sums, p->peers.memory);
    else
        p->ops->peer->close_sums(q, p->sums);
    return why;
}

const char *comm_open_peer(struct comm *c, const struct world *w, const struct ops *ops, struct queue *q)
{
    struct err e = {0};
    struct comm_peer *p = err_calloc(&e, 1, sizeof *p, "sums over peer memory");
    const char *why = peers_agree(p != NULL ? NULL : "too little memory", w);
    if (why == NULL) {
        *p = (struct comm_peer){.inner = *c, .world = w, .ops = ops, .q = q};
        why = open_sums(p);
    }
    if (why != NULL) {
        free(p);
        return why;
    }
    p->most = ops->peer->most(p->sums);
    c->ops = &comm_peer_ops;
    c->impl = p;
    c->small = NULL;
    c->small_bytes = 0;
    return NULL;
}
