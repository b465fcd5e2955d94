/* rank/model/network.c - see network.h. */
#include "rank/model/network.h"
#include "kernels/pool.h"
#include "rank/model/network_inputs.h"
#include "rank/model/slab.h"
#include "rank/model/taps.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int open_alibi(struct network *n, const struct ops *ops, struct queue *q, struct err *e)
{
    int n_heads = range_length(n->shard.heads);
    if (n->config.position != POSITION_ALIBI || n_heads == 0)
        return 0;
    float *slopes = err_calloc(e, (size_t)n_heads, sizeof *slopes, "ALiBi slopes");
    n->alibi_slopes = ops->alloc(q, (size_t)n_heads * sizeof *slopes);
    if (slopes == NULL || n->alibi_slopes == NULL) {
        free(slopes);
        return ERR(e, ERR_MEMORY, "%s", q->err.text);
    }
    for (int h = 0; h < n_heads; h++)
        slopes[h] = model_alibi_slope(n->shard.heads.begin + h, n->config.n_heads);
    size_t bytes = (size_t)n_heads * sizeof *slopes;
    ops->upload(q, n->alibi_slopes, bytes, slopes, bytes, bytes, 1);
    ops->wait(q);
    free(slopes);
    return 0;
}

/* The scales of keys and values in FP8: those of the checkpoint, or 1. */
static int open_kv_scales(struct network *n, const struct checkpoint *c, const struct ops *ops, struct queue *q,
                          struct err *e)
{
    int n_layers = n->config.n_layers, all = n->config.n_kv_heads, first = n->shard.kv_heads.begin;
    int mine = range_length(n->shard.kv_heads);
    if (!n->config.kv_fp8 || mine == 0)
        return 0;
    size_t count = 2 * (size_t)n_layers * (size_t)mine, bytes = count * sizeof(float);
    float *scales = err_calloc(e, count, sizeof *scales, "scales of keys and values");
    n->kv_scales = ops->alloc(q, bytes);
    if (scales == NULL || n->kv_scales == NULL) {
        free(scales);
        return ERR(e, ERR_MEMORY, "%s", q->err.text);
    }
    for (int i = 0; i < 2 * n_layers; i++)
        for (int h = 0; h < mine; h++)
            scales[i * mine + h] = c != NULL && c->kv_scale != NULL ? c->kv_scale[(size_t)i * all + first + h] : 1;
    ops->upload(q, n->kv_scales, bytes, scales, bytes, bytes, 1);
    ops->wait(q);
    free(scales);
    return 0;
}

/* The rows of logits of a head that drafts only some tokens; without a checkpoint the first ones. */
static int open_drafted(struct network *n, const struct checkpoint *c, const struct ops *ops, struct queue *q,
                        struct err *e)
{
    const struct model_config *m = &n->config;
    size_t bytes = (size_t)m->vocab * sizeof *n->drafted;
    if (model_logits(m) == m->vocab)
        return 0;
    n->drafted = err_calloc(e, (size_t)m->vocab, sizeof *n->drafted, "tokens that are drafted");
    n->drafted_dev = ops->alloc(q, bytes);
    if (n->drafted == NULL || n->drafted_dev == NULL)
        return ERR(e, ERR_MEMORY, "tokens that are drafted: %s", q->err.text);
    memset(n->drafted, -1, bytes);
    for (int i = 0; i < m->drafting.vocab; i++)
        n->drafted[c != NULL && c->n_drafted > 0 ? c->drafted[i] : i] = i;
    ops->upload(q, n->drafted_dev, bytes, n->drafted, bytes, bytes, 1);
    ops->wait(q);
    return 0;
}

/* Memory for products of many tokens with quantised matrices, if there are any; on the CPU they need none. */
static int open_wide(struct network *n, const struct ops *ops, struct queue *q, struct err *e)
{
    bool all = n->config.weights_fp8 || n->config.head_fp8;
    for (int i = 0; i < n->map.n_slots && n->wide == NULL && !ops->shares_host_memory; i++)
        if ((all || n->map.slot[i].form.codes != CODES_NONE) && (n->wide = ops->alloc(q, WIDE_BYTES)) == NULL)
            return ERR(e, ERR_MEMORY, "working memory of quantised weights: %s", q->err.text);
    return 0;
}

#define GENTLE_RATE 400               /* bytes/ns: a tenth of that of a device's memory */
#define SLAB_BYTES  ((size_t)1 << 30) /* at most, if no weight is larger */

/* Zeroing at the device's full rate would leave other work half of the bandwidth, so it is done with pauses. */
static void clear_gently(void *p, size_t bytes, const struct ops *ops, struct queue *q)
{
    const struct timespec pause = {0, (long)(bytes / GENTLE_RATE)};
    ops->clear(q, p, bytes);
    if (ops->async == NULL)
        return;
    ops->wait(q);
    (void)nanosleep(&pause, NULL);
}

static size_t place_bytes(const struct network *n, int slot)
{
    return slab_bytes(weight_slot_bytes(&n->map.slot[slot]));
}

/* Memory for slot i and as many of the next ones as fit into a slab with it. */
static void *open_slab(struct network *n, int i, const struct ops *ops, struct queue *q)
{
    size_t bytes = place_bytes(n, i);
    for (int k = i + 1; k < n->map.n_slots && bytes + place_bytes(n, k) <= SLAB_BYTES; k++)
        bytes += place_bytes(n, k);
    void *slab = pool_ops_of(ops)->take(q, bytes);
    if (slab != NULL)
        n->slab[n->n_slabs++] = slab;
    return slab;
}

/* Gives each weight its place in a slab, zeroed unless the checkpoint fills all of it. unfilled: of
 * weight_map_unfilled. */
static int place_weights(struct network *n, const int64_t *unfilled, const struct ops *ops, struct queue *q)
{
    void *slab = NULL;
    size_t at = 0;
    for (int i = 0; i < n->map.n_slots; i++) {
        size_t bytes = place_bytes(n, i);
        if (bytes == 0)
            continue;
        if (slab == NULL || (at > 0 && at + bytes > SLAB_BYTES)) {
            slab = open_slab(n, i, ops, q);
            at = 0;
        }
        if (slab == NULL)
            return -1;
        n->weight[i].data = slab_take(slab, &at, bytes);
        if (unfilled[i] != 0)
            clear_gently(n->weight[i].data, bytes, ops, q);
    }
    return 0;
}

static int take_slabs(struct network *n, const struct ops *ops, struct queue *q, struct err *e)
{
    size_t n_slots = (size_t)n->map.n_slots;
    int64_t *unfilled = err_calloc(e, n_slots, sizeof *unfilled, "weight table");
    n->slab = err_calloc(e, n_slots, sizeof *n->slab, "weight table");
    if (unfilled != NULL)
        weight_map_unfilled(&n->map, unfilled);
    int failed = unfilled != NULL && n->slab != NULL ? place_weights(n, unfilled, ops, q) : -1;
    free(unfilled);
    return failed;
}

/* Allocates each weight separately. */
static int take_pieces(struct network *n, const struct ops *ops, struct queue *q)
{
    for (int i = 0; i < n->map.n_slots; i++) {
        size_t bytes = weight_slot_bytes(&n->map.slot[i]);
        if (bytes > 0 && (n->weight[i].data = ops->alloc(q, bytes)) == NULL)
            return -1;
    }
    return 0;
}

static int open_weights(struct network *n, bool gently, const struct ops *ops, struct queue *q, struct err *e)
{
    if ((gently ? take_slabs(n, ops, q, e) : take_pieces(n, ops, q)) != 0)
        return e->code != ERR_NONE
                   ? -1
                   : ERR(e, ERR_MEMORY, "weights need %zu bytes in all: %s", weight_map_bytes(&n->map), q->err.text);
    for (int i = 0; i < n->map.n_slots; i++) {
        const struct weight_slot *slot = &n->map.slot[i];
        struct weight *w = &n->weight[i];
        *w = (struct weight){.data = w->data,
                             .type = slot->type,
                             .rows = slot->rows,
                             .cols = slot->cols,
                             .form = slot->form,
                             .wide = n->wide};
        if (slot->order != NULL && w->data != NULL) {
            w->order = (const int32_t *)(const void *)((const char *)w->data + weight_slot_order_at(slot));
            w->n_inputs = slot->order->inputs;
        }
        if ((slot->rows == 1 && slot->cols == 0) || (slot->rows == 0 && slot->id == WEIGHT_EXPERTS_OUT_BIAS))
            continue; /* a bias that another rank adds: for this layer as if the model had none */
        if (slot->layer < 0)
            n->once[slot->id] = w;
        else
            n->layer[slot->layer][slot->id] = w;
    }
    return 0;
}

int network_open(struct network *n, const struct model_config *m, const struct shard *s, const struct checkpoint *c,
                 bool gently, const struct ops *ops, struct queue *q, struct err *e)
{
    memset(n, 0, sizeof *n);
    n->config = *m;
    n->shard = *s;
    if (weight_map_build(&n->map, m, s, c, e) != 0)
        return -1;
    n->weight = err_calloc(e, (size_t)n->map.n_slots, sizeof *n->weight, "weight table");
    n->layer = err_calloc(e, (size_t)m->n_layers, sizeof *n->layer, "layer table");
    if (n->weight == NULL || n->layer == NULL || open_wide(n, ops, q, e) != 0 ||
        open_weights(n, gently, ops, q, e) != 0 || network_open_inputs(n, ops, q, e) != 0)
        return -1;
    if (open_alibi(n, ops, q, e) != 0 || open_drafted(n, c, ops, q, e) != 0)
        return -1;
    return open_kv_scales(n, c, ops, q, e);
}

size_t network_kv_part_bytes(const struct model_config *m, const struct shard *s, enum dtype act)
{
    return (size_t)range_length(s->kv_heads) * KV_BLOCK_TOKENS * (size_t)m->head_dim *
           (m->kv_fp8 ? 1 : dtype_bytes(act));
}

size_t network_kv_block_bytes(const struct model_config *m, const struct shard *s, int window, enum kv_kind kind,
                              enum dtype act)
{
    size_t n_layers = 0;
    for (int i = 0; i < m->n_layers; i++)
        n_layers += model_layer_is_windowed(m, i, window) == (kind == KV_WINDOWED);
    size_t states = kind == KV_MAIN ? taps_block_bytes(m, s, act) : 0;
    return n_layers * (size_t)model_cache_arrays(m) * network_kv_part_bytes(m, s, act) + states;
}

static size_t kv_bytes(const struct network *n, const int n_blocks[KV_KINDS], enum dtype act)
{
    size_t sum = 0;
    for (int kind = 0; kind < KV_KINDS; kind++)
        sum +=
            (size_t)n_blocks[kind] * network_kv_block_bytes(&n->config, &n->shard, n->window, (enum kv_kind)kind, act);
    return sum;
}

static int open_tables(struct network *n, struct err *e)
{
    size_t layers = (size_t)n->config.n_layers;
    n->k_cache = err_calloc(e, layers, sizeof *n->k_cache, "KV table");
    n->v_cache = err_calloc(e, layers, sizeof *n->v_cache, "KV table");
    return n->k_cache != NULL && n->v_cache != NULL ? 0 : -1;
}

int network_open_kv(struct network *n, const int n_blocks[KV_KINDS], int window, const struct ops *ops, struct queue *q,
                    struct err *e)
{
    size_t layers = (size_t)n->config.n_layers, arrays = (size_t)model_cache_arrays(&n->config);
    size_t block = network_kv_part_bytes(&n->config, &n->shard, q->act);
    n->window = window;
    if (open_tables(n, e) != 0)
        return -1;
    for (size_t i = 0; i < layers && block > 0; i++) {
        size_t bytes = block * (size_t)n_blocks[network_kv_kind(n, (int)i)];
        n->k_cache[i] = ops->alloc(q, bytes);
        n->v_cache[i] = arrays > 1 ? ops->alloc(q, bytes) : n->k_cache[i];
        if (n->k_cache[i] == NULL || n->v_cache[i] == NULL)
            return ERR(e, ERR_MEMORY, "KV cache needs %zu bytes for %d and %d blocks of %d tokens: %s",
                       kv_bytes(n, n_blocks, q->act), n_blocks[KV_MAIN], n_blocks[KV_WINDOWED], KV_BLOCK_TOKENS,
                       q->err.text);
    }
    return 0;
}

/* A block is one piece, of all caches of its kind: the first layer's keys, its values, the next layer's keys, ... So
 * the blocks of a cache are a constant number of parts apart, and the cache begins at its part of the first block. */
int network_share_kv(struct network *n, struct kv_arena *arena, const int per_unit[KV_KINDS], int window,
                     struct queue *q, struct err *e)
{
    int arrays = model_cache_arrays(&n->config);
    size_t part = network_kv_part_bytes(&n->config, &n->shard, q->act);
    if (open_tables(n, e) != 0)
        return -1;
    n->arena = arena;
    n->window = window;
    for (int kind = 0; kind < KV_KINDS; kind++)
        n->blocks[kind] = (struct network_blocks){.per_unit = per_unit[kind]};
    for (int i = 0; i < n->config.n_layers; i++) {
        struct network_blocks *b = &n->blocks[network_kv_kind(n, i)];
        if (part > 0) {
            n->k_cache[i] = arena->base + (size_t)b->parts * part;
            n->v_cache[i] = arena->base + (size_t)(b->parts + arrays - 1) * part;
        }
        b->parts += arrays;
    }
    return 0;
}

int32_t network_find_block(struct network *n, enum kv_kind kind, int32_t block, int model, const struct ops *ops,
                           struct queue *q)
{
    const struct network_blocks *b = &n->blocks[kind];
    int unit = block / b->per_unit;
    size_t part = network_kv_part_bytes(&n->config, &n->shard, q->act);
    if (part == 0)
        return 0; /* no head is here */
    kv_arena_claim(n->arena, unit, model, ops, q);
    return (int32_t)(kv_arena_first(n->arena, unit, part) + (size_t)(block % b->per_unit) * (size_t)b->parts);
}

void network_close(struct network *n, const struct ops *ops, struct queue *q)
{
    for (int i = 0; n->slab == NULL && n->weight != NULL && i < n->map.n_slots; i++)
        ops->free(q, n->weight[i].data);
    for (int i = 0; n->slab != NULL && i < n->n_slabs; i++)
        ops->free(q, n->slab[i]);
    free((void *)n->slab);
    for (int i = 0; n->v_cache != NULL && n->arena == NULL && i < n->config.n_layers; i++) {
        ops->free(q, n->k_cache[i]);
        if (n->v_cache[i] != n->k_cache[i])
            ops->free(q, n->v_cache[i]);
    }
    ops->free(q, n->tied_head.data);
    ops->free(q, n->alibi_slopes);
    ops->free(q, n->kv_scales);
    ops->free(q, n->wide);
    ops->free(q, n->drafted_dev);
    free(n->drafted);
    free(n->k_cache);
    free(n->v_cache);
    free(n->input_form);
    free(n->weight);
    free(n->layer);
    weight_map_free(&n->map);
    memset(n, 0, sizeof *n);
}

struct heads network_heads(const struct network *n, int layer)
{
    const struct model_config *m = &n->config;
    const struct weight *sinks = n->layer[layer][WEIGHT_SINKS];
    return (struct heads){
        .n_heads = range_length(n->shard.heads),
        .n_kv_heads = range_length(n->shard.kv_heads),
        .head_dim = m->head_dim,
        .first_head = n->shard.heads.begin,
        .first_kv_head = n->shard.kv_heads.begin,
        .heads_per_kv = m->n_heads / m->n_kv_heads,
        .scale = model_attention_scale(m, layer),
        .window = m->layer[layer].window,
        .chunk = m->layer[layer].chunk,
        .alibi_slopes = n->alibi_slopes,
        .sinks = sinks != NULL ? sinks->data : NULL,
        .sinks_type = sinks != NULL ? sinks->type : DTYPE_F32,
        .cap = m->attention_cap,
        .kv_scales =
            n->kv_scales != NULL ? n->kv_scales + (size_t)layer * 2 * (size_t)range_length(n->shard.kv_heads) : NULL,
    };
}
