/* kernels/cuda/step/persistent_wide.cu - the host's side of the wide persistent kernel: which models it supports, how
 * their products are tiled, its memory, its launch. */
#include "kernels/cuda/step/persistent_keys.cuh"
#include "kernels/cuda/step/persistent_maps.cuh"
#include "kernels/cuda/step/persistent_wide_kernels.h"

/* The results in the largest of n_blocks shares of a product. */
static int largest_share(const struct chain_product &p, int n_blocks)
{
    int most = 0;
    for (int b = 0; b < n_blocks; b++) {
        struct chain_share s = chain_make_share(p, b, n_blocks);
        most = max(most, (s.end - s.begin + 1) / 2 * 2);
    }
    return most;
}

/* The tiles of a wide step: as few as possible, with slots nearly full. */
static void make_wide_tiles(struct chain_product *p, int n_blocks)
{
    const int lines = RING_SLOT_BYTES / 128, factor = p->gated ? 2 : 1, rows = largest_share(*p, n_blocks);
    int fewest = (rows * factor + WIDE_ROWS - 1) / WIDE_ROWS, best = 0;
    for (int n_tiles = fewest; n_tiles < fewest + 4; n_tiles++) {
        int height = max(2, ((rows + n_tiles - 1) / n_tiles + 1) / 2 * 2);
        int pieces =
            min(min(lines / (height * factor + PERSISTENT_MAX_TOKENS * p->spans), p->cols / (STEP_COLUMNS * p->spans)),
                CHAIN_WARPS);
        int filled = pieces * height * factor;
        if (filled * 16 < best * 17)
            continue;
        best = filled;
        p->tile_rows = height;
        p->pieces = pieces;
    }
    p->last_rows = max(2, rows - (rows - 1) / p->tile_rows * p->tile_rows);
}

/* The layout of shared memory in a step of n tokens. */
static struct chain_layout make_layout(const struct chain_args *a, int n_blocks, int n_tokens)
{
    struct chain_layout l = {};
    int sums = 0, at = WIDE_SLOTS * RING_SLOT_BYTES;
    for (int k = 0; k <= CHAIN_PRODUCTS; k++) {
        const struct chain_product *p = &a->product[k];
        int rows = largest_share(*p, n_blocks), sixteens = p->gated ? (p->tile_rows + 7) / 8 : (p->tile_rows + 15) / 16;
        for (int n = 1; n <= sixteens; n++) /* any last tile's, too */
            sums = max(sums, CHAIN_WARPS / n * PERSISTENT_MAX_TOKENS * (n * 16 + 4) * 4);
        l.bias_rows = max(l.bias_rows, p->gated ? 2 * rows : rows);
        l.x_rows = k == CHAIN_PRODUCTS - 1 ? rows : l.x_rows;
    }
    int *const offset[] = {&l.input,  &l.bias,   &l.scales, &l.residual, &l.scale,    &l.cos_sin, &l.layers,
                           &l.tokens, &l.shares, &l.attend, &l.keys,     &l.barriers, &l.hold,    &l.bytes};
    const int size[] = {max(sums, attend_scratch_bytes(a->head_dim)),
                        l.bias_rows * 4,
                        a->scales != nullptr ? l.bias_rows * 4 : 0,
                        n_tokens * l.x_rows * 4,
                        l.x_rows * 4,
                        n_tokens * a->rope_dims * 4,
                        (a->n_layers + 1) * (int)sizeof(struct chain_layer),
                        3 * n_tokens * 4,
                        (CHAIN_PRODUCTS + 1) * (int)sizeof(struct chain_share),
                        (int)sizeof(struct attend_shares),
                        (int)sizeof(struct key_requests) + a->n_layers * (int)sizeof(struct key_span),
                        3 * WIDE_SLOTS * 8,
                        2 * (int)sizeof(int)};
    place_shared(offset, size, at);
    l.partial = l.input;
    return l;
}

/* Are these weights those of a kernel? Either all are of 16 bits, or those of the layers are E4M3 with scales of rows,
 * and perhaps the head's. */
static bool fits_kernel(const struct persistent *p)
{
    if (p->form == FORM_NONE)
        return true;
    bool coded = p->form == FORM_E4M3 && p->args.scales != nullptr;
    for (int k = 0; k < CHAIN_PRODUCTS; k++)
        coded = coded && p->args.product[k].spans == 2;
    return coded;
}

static bool can_run(struct queue *q, const struct chain_args *a)
{
    int shared_begin = 0;
    CUDA_TRY(q, cudaDeviceGetAttribute(&shared_begin, cudaDevAttrReservedSharedMemoryPerBlock, cuda_state(q)->device));
    bool can = q->act == DTYPE_BF16 && a->norm == NORM_RMS && a->attention_before == 1 &&
               cuda_state(q)->n_multiprocessors <= WIDE_BLOCKS && shared_begin == WIDE_SHARED_BEGIN;
    for (const struct chain_product &p : a->product)
        can = can && p.cols % (STEP_COLUMNS * p.spans) == 0;
    return can;
}

/* Vectors, sums of squares and epochs, one after the other. */
static void open_memory(struct queue *q, struct persistent *p)
{
    struct chain_args *a = &p->wide;
    size_t n_blocks = (size_t)cuda_state(q)->n_multiprocessors, bytes[CHAIN_VECTORS + 2], all = 0;
    const int cols[CHAIN_VECTORS] = {a->hidden, a->hidden, a->product[1].cols, a->product[3].cols};
    for (int v = 0; v < CHAIN_VECTORS; v++)
        bytes[v] = (size_t)PERSISTENT_MAX_TOKENS * (size_t)cols[v] * 2;
    bytes[CHAIN_VECTORS] = 2 * PERSISTENT_MAX_TOKENS * WIDE_BLOCKS * sizeof(float);
    bytes[CHAIN_VECTORS + 1] = CHAIN_VECTORS * n_blocks * sizeof(uint32_t);
    for (size_t &b : bytes)
        all += b = (b + 255) / 256 * 256;
    unsigned char *at = p->wide_memory = (unsigned char *)cuda_alloc(q, all);
    for (int v = 0; v < CHAIN_VECTORS; at += bytes[v++])
        a->wide.vector[v] = at;
    a->wide.squares = (float *)at;
    a->wide.ready = (uint32_t *)(at + bytes[CHAIN_VECTORS]);
}

static void open_maps(struct queue *q, struct persistent *p, const struct decode_model *m)
{
    struct chain_args *a = &p->wide;
    a->maps = p->wide_maps =
        upload_maps(q, ((size_t)m->n_layers * CHAIN_PRODUCTS + 1) * WIDE_BOXES, [&](CUtensorMap *to, auto encode) {
            each_product(m, [&](const struct weight *w, int k) {
                const struct chain_product *c = &a->product[k];
                const int height[WIDE_BOXES] = {c->tile_rows, c->last_rows, max(2, c->last_rows - 2)};
                for (int rows : height)
                    make_map(q, to++, encode, boxed_weight(w), rows, c->pieces);
            });
        });
    const int vector[CHAIN_PRODUCTS + 1] = {VECTOR_AFTER_MLP, VECTOR_ATTENDED, VECTOR_AFTER_ATTENTION, VECTOR_ACTIVATED,
                                            VECTOR_AFTER_MLP};
    a->input_maps = p->input_maps = upload_maps(q, 2 * (CHAIN_PRODUCTS + 1), [&](CUtensorMap *to, auto encode) {
        for (int tokens = 8; tokens <= PERSISTENT_MAX_TOKENS; tokens *= 2)
            for (int k = 0; k <= CHAIN_PRODUCTS; k++)
                make_map(q, to++, encode,
                         {a->wide.vector[vector[k]], q->act, PERSISTENT_MAX_TOKENS, a->product[k].cols, 0}, tokens,
                         a->product[k].pieces * a->product[k].spans);
    });
}

static const struct wide_kernels *find_kernels(const struct persistent *p)
{
    return p->form == FORM_NONE ? &wide_kernels_plain : &wide_kernels_e4m3;
}

void wide_open(struct queue *q, struct persistent *p, const struct decode_model *m)
{
    int n_blocks = cuda_state(q)->n_multiprocessors;
    p->wide = p->args;
    if (!fits_kernel(p) || !can_run(q, &p->wide))
        return;
    for (struct chain_product &product : p->wide.product)
        make_wide_tiles(&product, n_blocks);
    if (make_layout(&p->wide, n_blocks, PERSISTENT_MAX_TOKENS).bytes > p->max_shared)
        return;
    p->has_wide = true;
    open_memory(q, p);
    open_maps(q, p, m);
    find_kernels(p)->open(q, p->full, p->max_shared);
}

void wide_close(struct queue *q, struct persistent *p)
{
    cuda_free(q, p->wide_maps);
    cuda_free(q, p->input_maps);
    cuda_free(q, p->wide_memory);
}

void wide_patience(struct queue *q, uint32_t for_others, uint32_t for_own)
{
    wide_kernels_plain.patience(q, for_others, for_own);
    wide_kernels_e4m3.patience(q, for_others, for_own);
}

void wide_run(struct queue *q, const struct persistent *p, struct chain_args *a)
{
    a->at = make_layout(a, cuda_state(q)->n_multiprocessors, a->n_tokens);
    find_kernels(p)->run(q, p->full, a);
}
