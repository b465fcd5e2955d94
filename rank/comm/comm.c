/* rank/comm/comm.c - counts the transport's collectives and reports them to observers. */
#include "rank/comm/comm.h"
#include "base/log.h"
#include "kernels/beside.h"
#include "rank/observe/observer.h"

/* The default on GPUs: two gain 3 to 8 % of long prompts by two pieces; more GPUs have not been measured. */
static int usual_pieces(int n_ranks)
{
    return n_ranks == 2 ? 2 : 1;
}

#ifdef LOCKSTEP_CUDA
/* Cuts rows as usual where the transport can. Collective. */
static void cut_as_usual(struct comm *c, struct queue *q)
{
    struct err why = {0}, before = q->err;
    if (usual_pieces(c->n_ranks) < 2 || c->ops->begin_sum == NULL ||
        comm_cut_peer(c, usual_pieces(c->n_ranks), &why) == 0)
        return;
    q->err = before;
    log_warn("sums follow products: %s",
             why.code != ERR_NONE ? why.text : "another rank cannot have them beside products");
}
#endif

int comm_open(struct comm *c, const struct world *w, const struct ops *ops, struct queue *q, int pieces, struct err *e)
{
#ifdef LOCKSTEP_CUDA
    if (ops == &ops_cuda) {
        if (comm_open_nccl(c, w, e) != 0)
            return -1;
        if (w->n_ranks > 1)
            comm_open_peer(c, w, ops, q);
        if (w->n_ranks > 1 && pieces > 1)
            return comm_cut_peer(c, pieces, e);
        if (pieces == 0)
            cut_as_usual(c, q);
        return 0;
    }
#endif
    (void)ops;
    (void)q;
    if (comm_open_mpi(c, w, e) != 0)
        return -1;
    c->cut.pieces = pieces > 0 ? pieces : COMM_PIECES;
    return 0;
}

int comm_check_pieces(const struct ops *ops, int n_ranks, int pieces, struct err *e)
{
    if (pieces <= 1)
        return 0;
    if (n_ranks == 1)
        return ERR(e, ERR_USAGE,
                   "--sum-pieces %d: one rank has nothing to sum, expected 2 ranks or more, or --sum-pieces 1", pieces);
    if (!ops->shares_host_memory && n_ranks > BESIDE_MAX_RANKS)
        return ERR(e, ERR_UNSUPPORTED, "--sum-pieces %d on %d ranks, expected up to %d ranks, or --sum-pieces 1",
                   pieces, n_ranks, BESIDE_MAX_RANKS);
    return 0;
}

size_t comm_cut_bytes(const struct ops *ops, int n_ranks, int pieces)
{
    const struct beside_ops *beside = beside_ops_of(ops);
    bool cut = (pieces > 0 ? pieces : usual_pieces(n_ranks)) > 1 && n_ranks > 1 && n_ranks <= BESIDE_MAX_RANKS;
    return beside != NULL && cut ? beside->bytes(n_ranks) : 0;
}

void comm_lend(struct comm *c, const struct comm *from)
{
    *c = *from;
    c->n_all_reduces = 0;
    c->observers = NULL;
    c->lent = true;
}

static void begin_collective(struct comm *c, enum collective kind)
{
    observers_tell(c->observers, collective, kind);
}

static void end_collective(struct comm *c)
{
    observers_tell(c->observers, activity, RANK_WORKS);
}

void comm_all_reduce(struct comm *c, struct queue *q, void *data, size_t n)
{
    c->n_all_reduces++;
    if (c->n_ranks == 1 || n == 0) {
        end_collective(c); /* a rank that is alone makes progress, too */
        return;
    }
    begin_collective(c, COLLECTIVE_ALL_REDUCE);
    c->ops->all_reduce(c, q, data, n);
    end_collective(c);
}

void comm_all_reduce_floats(struct comm *c, struct queue *q, float *data, size_t n)
{
    c->n_all_reduces++;
    if (c->n_ranks == 1 || n == 0) {
        end_collective(c);
        return;
    }
    begin_collective(c, COLLECTIVE_ALL_REDUCE);
    c->ops->all_reduce_floats(c, q, data, n);
    end_collective(c);
}

void comm_all_reduce_largest(struct comm *c, struct queue *q, float *data, size_t n)
{
    if (c->n_ranks == 1 || n == 0) {
        end_collective(c);
        return;
    }
    begin_collective(c, COLLECTIVE_ALL_REDUCE);
    c->ops->all_reduce_largest(c, q, data, n);
    end_collective(c);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* At a multiple of a quarter of the least rows, which suits the tiles of products. */
int comm_piece_begin(const struct comm *c, int n_rows, int n_pieces, int piece)
{
    int unit = c->cut.rows / 4 > 0 ? c->cut.rows / 4 : 1;
    return piece == n_pieces ? n_rows : (int)((int64_t)n_rows * piece / n_pieces / unit * unit);
}

int comm_pieces(const struct comm *c, int n_rows, size_t row_bytes)
{
    if (c->n_ranks == 1 || c->cut.pieces < 2 || row_bytes % 16 != 0)
        return 1;
    size_t by_bytes = (size_t)n_rows * row_bytes / c->cut.bytes;
    int most = c->cut.pieces, n = smaller(by_bytes < (size_t)most ? (int)by_bytes : most, n_rows / c->cut.rows);
    return n > 1 && (size_t)n_rows * row_bytes <= c->cut.most ? n : 1;
}

void comm_begin_sum(struct comm *c, struct queue *q, int piece, int n_pieces, void *data, size_t n)
{
    if (n_pieces == 1) {
        comm_all_reduce(c, q, data, n);
        return;
    }
    comm_end_sum(c, q, piece);
    c->n_all_reduces += piece == 0;
    begin_collective(c, COLLECTIVE_ALL_REDUCE);
    c->ops->begin_sum(c, q, piece, data, n);
    c->under_way |= 1u << piece;
    end_collective(c);
}

void comm_end_sum(struct comm *c, struct queue *q, int piece)
{
    if ((c->under_way >> piece & 1) == 0)
        return;
    begin_collective(c, COLLECTIVE_ALL_REDUCE);
    c->ops->end_sum(c, q, piece);
    c->under_way &= ~(1u << piece);
    end_collective(c);
}

void comm_end_sums(struct comm *c, struct queue *q)
{
    for (int piece = 0; piece < COMM_PIECES; piece++)
        comm_end_sum(c, q, piece);
}

void comm_all_gather(struct comm *c, struct queue *q, void *out, const void *in, const size_t *n)
{
    begin_collective(c, COLLECTIVE_ALL_GATHER);
    c->ops->all_gather(c, q, out, in, n);
    end_collective(c);
}

bool comm_all_gather_columns(struct comm *c, struct queue *q, void *out, const void *in, const int *begin, int n_rows)
{
    if (c->ops->takes_columns == NULL || !c->ops->takes_columns(c, q, begin, n_rows))
        return false;
    begin_collective(c, COLLECTIVE_ALL_GATHER);
    c->ops->all_gather_columns(c, q, out, in, begin, n_rows);
    end_collective(c);
    return true;
}

int comm_check(struct comm *c, struct err *e)
{
    return c->ops != NULL && c->ops->check != NULL ? c->ops->check(c, e) : 0;
}

void comm_close(struct comm *c)
{
    if (c->ops != NULL && !c->lent)
        c->ops->close(c);
    c->ops = NULL;
}
