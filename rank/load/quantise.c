/* rank/load/quantise.c - see quantise.h. */
#include "rank/load/quantise.h"
#include "rank/world/agree.h"
#include "rank/world/fatal.h"

#include <math.h>
#include <stdlib.h>

#define LARGEST 448.0f /* of E4M3 */

/* The conversion of one matrix. */
struct conversion {
    const struct weight *from;
    struct weight to;
    const void *dense;     /* of `from`, in host memory */
    unsigned char *codes;  /* of `to`, in host memory */
    void *room[2];         /* the same, where they are its own */
    float *largest;        /* [rows] */
    bool cut;              /* every rank has some of the inputs of all rows */
    const struct ops *ops; /* and its queue */
    struct queue *q;
};

static int open_conversion(struct conversion *t, struct err *e)
{
    const struct weight *w = t->from;
    size_t rows = (size_t)w->rows, dense = rows * (size_t)w->cols * dtype_bytes(w->type);
    size_t bytes = code_bytes(&t->to.form, w->rows, w->cols);
    bool here = t->ops->shares_host_memory;
    t->largest = err_calloc(e, rows + 1, sizeof *t->largest, "scales of rows");
    if (t->largest == NULL || (bytes > 0 && (t->to.data = t->ops->alloc(t->q, bytes)) == NULL))
        return ERR(e, ERR_MEMORY, "weights in FP8: %s", t->q->err.text);
    if (!here && ((t->room[0] = malloc(dense + 1)) == NULL || (t->room[1] = calloc(bytes + 1, 1)) == NULL))
        return ERR(e, ERR_MEMORY, "weights in FP8: out of host memory for a matrix of %zu bytes", dense);
    t->dense = here ? w->data : t->room[0];
    t->codes = here ? t->to.data : t->room[1];
    if (!here && dense > 0)
        t->ops->download(t->q, t->room[0], w->data, dense);
    t->ops->wait(t->q);
    return t->q->err.code == ERR_NONE ? 0 : ERR(e, t->q->err.code, "%s", t->q->err.text);
}

static void close_conversion(struct conversion *t)
{
    free(t->room[0]);
    free(t->room[1]);
    free(t->largest);
}

/* The largest magnitude of this rank's part of every row, or NaN. */
static void find_largest(struct conversion *t)
{
    const struct weight *w = t->from;
    if (t->dense == NULL) /* the rank has no inputs */
        return;
#pragma omp parallel for num_threads(t->q->n_threads) schedule(static)
    for (int r = 0; r < w->rows; r++) {
        float most = 0;
        for (int c = 0; c < w->cols && isfinite(most); c++) {
            float x = fabsf(dtype_load(t->dense, w->type, (size_t)r * (size_t)w->cols + (size_t)c));
            most = x <= most ? most : x;
        }
        t->largest[r] = most;
    }
}

static void encode_rows(struct conversion *t)
{
    const struct weight *w = t->from;
    size_t pitch = code_pitch(&t->to.form, w->cols);
    float *scales = (float *)(void *)(t->codes + code_scales_at(&t->to.form, w->rows, w->cols));
#pragma omp parallel for num_threads(t->q->n_threads) schedule(static)
    for (int r = 0; r < w->rows; r++) {
        float scale = t->largest[r] > 0 ? t->largest[r] / LARGEST : 1;
        scales[r] = scale > 0 ? scale : 1; /* subnormal rows become zero */
        for (int c = 0; c < w->cols; c++)
            t->codes[(size_t)r * pitch + (size_t)c] =
                float_to_e4m3(dtype_load(t->dense, w->type, (size_t)r * (size_t)w->cols + (size_t)c) / scales[r]);
    }
}

static int check_numbers(const struct conversion *t, enum weight_id id, struct err *e)
{
    for (int r = 0; r < t->from->rows; r++)
        if (!isfinite(t->largest[r]))
            return ERR(e, ERR_INPUT, "--quantization fp8: %s has a weight that is not a number, expected finite ones",
                       weight_name(id));
    return 0;
}

/* Converts t->from to t->to. Collective. */
static int run_conversion(struct conversion *t, enum weight_id id, const struct world *w, struct err *e)
{
    bool opened = open_conversion(t, e) == 0;
    if (agree_failed(w, e) || !opened)
        return -1;
    find_largest(t);
    (void)check_numbers(t, id, e); /* before the maximum over all ranks, in which NaN may get lost */
    if (t->cut)
        MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, t->largest, t->from->rows, MPI_FLOAT, MPI_MAX, w->comm));
    if (e->code == ERR_NONE && t->to.data != NULL && t->dense != NULL) {
        encode_rows(t);
        size_t bytes = code_bytes(&t->to.form, t->to.rows, t->to.cols);
        if (!t->ops->shares_host_memory)
            t->ops->upload(t->q, t->to.data, bytes, t->codes, bytes, bytes, 1);
        t->ops->wait(t->q);
    }
    if (e->code == ERR_NONE && t->q->err.code != ERR_NONE)
        ERR(e, t->q->err.code, "%s", t->q->err.text);
    return agree_failed(w, e) ? -1 : 0;
}

/* A new matrix in FP8 in *to. Collective. */
static int make_fp8(const struct model_config *m, const struct weight *from, struct weight *to, enum weight_id id,
                    const struct world *w, const struct ops *ops, struct queue *q, struct err *e)
{
    struct conversion t = {.from = from, .to = *from, .ops = ops, .q = q, .cut = weight_is_cut_along_inputs(m, id)};
    t.to.data = NULL;
    t.to.form = weight_fp8_form();
    int rc = run_conversion(&t, id, w, e);
    if (rc == 0)
        *to = t.to;
    else
        ops->free(q, t.to.data);
    close_conversion(&t);
    return rc;
}

int load_quantise(struct network *n, const struct world *w, const struct ops *ops, struct queue *q, struct err *e)
{
    for (int i = 0; i < n->map.n_slots; i++) {
        struct weight old = n->weight[i];
        if (!weight_becomes_fp8(&n->config, &n->map.slot[i]))
            continue;
        if (make_fp8(&n->config, &old, &n->weight[i], n->map.slot[i].id, w, ops, q, e) != 0)
            return -1;
        n->map.slot[i].form = n->weight[i].form;
        ops->free(q, old.data);
    }
    if (!n->config.head_fp8 || !n->config.tied_head)
        return 0;
    if (make_fp8(&n->config, n->once[WEIGHT_EMBED], &n->tied_head, WEIGHT_HEAD, w, ops, q, e) != 0)
        return -1;
    n->once[WEIGHT_HEAD] = &n->tied_head;
    return 0;
}
