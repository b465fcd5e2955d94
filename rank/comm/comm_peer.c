/* rank/comm/comm_peer.c - sums and the gathering of columns over memory that the devices of a host share
 * (kernels/peer.h), in front of another transport, which gets all other collectives; with memory for it, sums of pieces
 * of a step's rows beside other operations (kernels/beside.h). */
#include "base/log.h"
#include "kernels/beside.h"
#include "rank/comm/comm.h"
#include "rank/comm/peers.h"

#include <stdlib.h>
#include <string.h>

struct comm_peer {
    struct comm inner; /* the transport for everything else */
    const struct world *world;
    const struct ops *ops;
    struct queue *q;
    struct peers peers;
    void *peer; /* of ops->peer */
    struct {
        const struct beside_ops *ops;
        struct peers peers;
        void *sums; /* of ops; NULL: rows are not cut */
    } beside;
};

static void all_reduce(struct comm *c, struct queue *q, void *data, size_t n)
{
    struct comm_peer *p = c->impl;
    p->ops->peer->sum(q, p->peer, data, n);
}

static void all_reduce_floats(struct comm *c, struct queue *q, float *data, size_t n)
{
    struct comm_peer *p = c->impl;
    p->inner.ops->all_reduce_floats(&p->inner, q, data, n);
}

static void begin_sum(struct comm *c, struct queue *q, int piece, void *data, size_t n)
{
    struct comm_peer *p = c->impl;
    p->beside.ops->begin(q, p->beside.sums, piece, data, n);
}

static void end_sum(struct comm *c, struct queue *q, int piece)
{
    struct comm_peer *p = c->impl;
    p->beside.ops->end(q, p->beside.sums, piece);
}

static void all_gather(struct comm *c, struct queue *q, void *out, const void *in, const size_t *n)
{
    struct comm_peer *p = c->impl;
    p->inner.ops->all_gather(&p->inner, q, out, in, n);
}

static bool takes_columns(const struct comm *c, const struct queue *q, const int *begin, int n_rows)
{
    const struct comm_peer *p = c->impl;
    return p->ops->peer->takes_columns(q, p->peer, begin, n_rows);
}

static void all_gather_columns(struct comm *c, struct queue *q, void *out, const void *in, const int *begin, int n_rows)
{
    struct comm_peer *p = c->impl;
    p->ops->peer->gather_columns(q, p->peer, out, in, begin, n_rows);
}

static int check_inner(struct comm *c, struct err *e)
{
    struct comm_peer *p = c->impl;
    return comm_check(&p->inner, e);
}

static void comm_peer_close(struct comm *c)
{
    struct comm_peer *p = c->impl;
    if (p->beside.sums != NULL) {
        peers_close(&p->beside.peers, p->world, p->ops, p->q);
        p->beside.ops->close(p->q, p->beside.sums);
    }
    peers_close(&p->peers, p->world, p->ops, p->q);
    p->ops->peer->close(p->q, p->peer);
    comm_close(&p->inner);
    free(p);
    c->impl = NULL;
}

static const struct comm_ops comm_peer_ops = {
    .name = "peer",
    .ordered = true,
    .all_reduce = all_reduce,
    .all_reduce_floats = all_reduce_floats,
    .begin_sum = begin_sum,
    .end_sum = end_sum,
    .all_gather = all_gather,
    .takes_columns = takes_columns,
    .all_gather_columns = all_gather_columns,
    .check = check_inner,
    .close = comm_peer_close,
};

/* NULL, or the reason. */
static const char *open_memory(struct comm_peer *p)
{
    const struct peer_ops *peer = p->ops->peer;
    const struct world *w = p->world;
    if (!w->on_one_host)
        return "ranks on more than one host";
    const char *why = peers_agree(peer == NULL ? "this backend" : peer->refusal(p->q, w->n_ranks), w);
    if (why != NULL)
        return why;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a rank without it would have said why not */
    p->peer = peer->open(p->q, w->rank, w->n_ranks);
    why = peers_agree(p->peer != NULL ? NULL : "too little memory", w);
    if (why == NULL)
        why = peers_open(&p->peers, peer->memory(p->peer), w, p->ops, p->q);
    if (why == NULL)
        peer->attach(p->peer, p->peers.memory);
    else
        peer->close(p->q, p->peer);
    return why;
}

static const char *open_peer(struct comm *c, const struct world *w, const struct ops *ops, struct queue *q)
{
    struct err e = {0};
    struct comm_peer *p = err_calloc(&e, 1, sizeof *p, "peer memory");
    const char *why = peers_agree(p != NULL ? NULL : "too little memory", w);
    if (why == NULL) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a rank without it would have said why not */
        *p = (struct comm_peer){.inner = *c, .world = w, .ops = ops, .q = q};
        why = open_memory(p);
    }
    if (why != NULL) {
        free(p);
        return why;
    }
    c->ops = &comm_peer_ops;
    c->impl = p;
    return NULL;
}

/* Rank 0 reports; with a warning if the path is a slow one. */
static void say_way(const struct comm *c, const struct world *w, bool wanted, const char *why)
{
    if (wanted && why == NULL)
        log_info("%s; sums within the host over the GPUs' own memory", c->name);
    else if (!wanted)
        log_warn(
            "%s: P2P is switched off (NCCL_P2P_DISABLE, NCCL_P2P_LEVEL): sums within a host go through host memory",
            c->name);
    else if (w->gpus_apart)
        log_warn("%s: GPUs without P2P: sums within a host go through host memory", c->name);
    else if (!w->on_one_host)
        log_info("%s: no sums over the GPUs' own memory across hosts", c->name);
    else
        log_warn("%s: no sums over the GPUs' own memory (%s), they take a slower path", c->name, why);
}

void comm_open_peer(struct comm *c, const struct world *w, const struct ops *ops, struct queue *q)
{
    bool wanted = peers_wanted(w);
    const char *why = wanted ? open_peer(c, w, ops, q) : NULL;
    say_way(c, w, wanted, why);
}

#define MIB (1 << 20)

/* Opens the memory for sums of pieces on all ranks, or on none: -1, with *e where this rank is the reason. */
static int open_beside(struct comm_peer *p, int pieces, struct err *e)
{
    const struct beside_ops *ops = p->beside.ops;
    const struct world *w = p->world;
    void *sums = ops->open(p->q, w->rank, w->n_ranks);
    if (sums == NULL)
        ERR(e, p->q->err.code, "no sums beside products (--sum-pieces %d), which take %zu MiB of this GPU's memory: %s",
            pieces, ops->bytes(w->n_ranks) / MIB, p->q->err.text);
    if (peers_agree(sums != NULL ? NULL : "too little memory", w) != NULL) {
        ops->close(p->q, sums);
        return -1;
    }
    const char *why = peers_open(&p->beside.peers, ops->memory(sums), w, p->ops, p->q);
    if (why != NULL) {
        ops->close(p->q, sums);
        return ERR(e, ERR_UNSUPPORTED, "no sums beside products (--sum-pieces %d): %s", pieces, why);
    }
    ops->attach(sums, p->beside.peers.memory);
    p->beside.sums = sums;
    return 0;
}

int comm_cut_peer(struct comm *c, int pieces, struct err *e)
{
    if (c->ops != &comm_peer_ops)
        return ERR(
            e, ERR_UNSUPPORTED,
            "--sum-pieces %d: %d ranks whose sums do not go over the GPUs' own memory (%s), expected GPUs of one "
            "host that share it, or --sum-pieces 1",
            pieces, c->n_ranks, c->name);
    struct comm_peer *p = c->impl;
    p->beside.ops = beside_ops_of(p->ops);
    if (open_beside(p, pieces, e) != 0)
        return -1;
    c->cut = (struct comm_cut){pieces, COMM_CUT_ROWS, COMM_CUT_BYTES, BESIDE_BYTES};
    log_info("sums of steps of %d tokens and more in up to %d pieces, which GPUs copy beside products",
             2 * COMM_CUT_ROWS, pieces);
    return 0;
}
