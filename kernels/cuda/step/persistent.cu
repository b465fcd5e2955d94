/* kernels/cuda/step/persistent.cu - the host's side of the persistent kernel: its tables and memory, the memory shared
 * by the ranks, its launch. Which models it supports: persistent_refusal.cu */
#include "kernels/cuda/step/persistent_groups.cuh"
#include "kernels/cuda/step/persistent_kernel.cuh"
#include "kernels/cuda/step/persistent_maps.cuh"
#include "kernels/cuda/step/persistent_model.h"
#include "kernels/cuda/step/persistent_one.h"

#define WIDE_FROM 4 /* fewest tokens for the wide kernel, if there is one: measured, see docs/log/2026-11-22.md */

static const void *data_of(const struct weight *w)
{
    return w != nullptr ? w->data : nullptr;
}

/* The products of a layer in the order in which they run. */
static void make_products(struct chain_args *a, const struct decode_model *m)
{
    const struct decode_layer *l = &m->layer[0];
    int width = l->out->cols;
    const int rows = CHAIN_ROWS, pieces = CHAIN_WARPS, own = m->parallel ? 1 : 0;
    struct chain_product qkv = {l->qkv->rows, m->hidden, INPUT_NORMED, OUTPUT_QKV, 0, false, 1, rows, pieces, 0, 1};
    struct chain_product out = {m->hidden, width, INPUT_ATTENDED, OUTPUT_SUM, 0, false, own, rows, pieces, 0, 1};
    struct chain_product in = {
        m->ffn, m->hidden, INPUT_NORMED, OUTPUT_ACTIVATED, 1, m->gated, own, m->gated ? CHAIN_OCTET : rows, pieces,
        0,      1};
    struct chain_product down = {
        m->hidden, m->ffn, INPUT_ACTIVATED, m->parallel ? OUTPUT_KEPT : OUTPUT_SUM, 0, false, 1, rows, pieces, 0, 1};
    struct chain_product head = {
        m->head->rows, m->hidden, INPUT_NORMED, OUTPUT_LOGITS, 0, false, 1, rows, pieces, 0, 1};
    if (m->parallel && m->shared_norm) {
        in.input = INPUT_SAME;
        in.norm = qkv.norm;
    }
    a->product[0] = qkv;
    a->product[1] = m->parallel ? in : out;
    a->product[2] = m->parallel ? down : in;
    a->product[3] = m->parallel ? out : down;
    a->product[CHAIN_HEAD] = head;
    int k = 0;
    each_product(m, [&](const struct weight *w, int product) {
        if (k++ < CHAIN_PRODUCTS || product == CHAIN_HEAD)
            a->product[product].spans = weight_is_quantised(w) ? 16 / code_bits(w->form.codes) : 1;
    });
    a->attention_before = m->parallel ? 2 : 1;
}

static void fill_layer(struct chain_layer *to, const struct decode_model *m, const struct decode_layer *l)
{
    const struct weight *const bias[2][4] = {{l->qkv_bias, l->out_bias, l->mlp_in_bias, l->mlp_out_bias},
                                             {l->qkv_bias, l->mlp_in_bias, l->mlp_out_bias, l->out_bias}};
    for (int k = 0; k < CHAIN_PRODUCTS; k++)
        to->bias[k] = data_of(bias[m->parallel][k]);
    to->norm[0] = data_of(l->attn_norm);
    to->norm_bias[0] = data_of(l->attn_norm_bias);
    to->norm[1] = data_of(l->mlp_norm);
    to->norm_bias[1] = data_of(l->mlp_norm_bias);
    to->q_norm = data_of(l->q_norm);
    to->k_norm = data_of(l->k_norm);
    to->k_cache = l->k_cache;
    to->v_cache = l->v_cache;
    to->kv_scales = l->heads.kv_scales;
    to->scale = l->heads.scale * ATTENTION_LOG2_E;
    to->window = l->heads.window;
}

/* The norm of each output, at the norm of the sum to which it is added. */
static void fill_outputs(struct chain_layer *to, const struct decode_model *m)
{
    to[0].out_norm[0] = nullptr;
    for (int l = 0; l < m->n_layers; l++) {
        to[l].out_norm[1] = data_of(m->layer[l].attn_out_norm);
        to[l + 1].out_norm[0] = data_of(m->layer[l].mlp_out_norm);
    }
}

static void open_layers(struct queue *q, struct persistent *p, const struct decode_model *m)
{
    size_t n = (size_t)m->n_layers + 1;
    struct chain_layer *host = (struct chain_layer *)err_calloc(&q->err, n, sizeof *host, "layer table");
    p->layers = (struct chain_layer *)cuda_alloc(q, n * sizeof *host);
    if (host != nullptr && p->layers != nullptr) {
        for (int l = 0; l < m->n_layers; l++)
            fill_layer(&host[l], m, &m->layer[l]);
        if (p->outputs)
            fill_outputs(host, m);
        host[m->n_layers].bias[0] = data_of(m->head_bias);
        host[m->n_layers].norm[0] = data_of(m->final_norm);
        if (!p->outputs)
            host[m->n_layers].norm_bias[0] = data_of(m->final_norm_bias);
        cuda_upload(q, p->layers, n * sizeof *host, host, n * sizeof *host, n * sizeof *host, 1);
        cuda_wait(q);
    }
    p->args.layers = p->layers;
    free(host);
}

static void open_maps(struct queue *q, struct persistent *p, const struct decode_model *m)
{
    p->maps = upload_maps(q, ((size_t)m->n_layers * CHAIN_PRODUCTS + 1) * BOX_SIZES, [&](CUtensorMap *to, auto encode) {
        each_product(m, [&](const struct weight *w, int k) {
            int pieces = is_expert(m, k) && weight_is_quantised(w) ? code_pieces(w) : CHAIN_WARPS;
            for (int i = 1; i <= BOX_SIZES; i++)
                make_map(q, to++, encode, boxed_weight(w), 2 * i, pieces);
        });
    });
    p->args.maps = p->maps;
}

/* Do the kernels of this model get keys and values through the ring? Those of INT8 do if the keys are quantised,
 * too. */
static bool takes_keys(const struct persistent *p, const struct decode_model *m)
{
    const int width = m->layer[0].heads.head_dim;
    return !p->outputs && !m->mixture &&
           (p->coded_keys ? width == KEY_HEAD : width <= KEY_HEAD && p->form != FORM_INT8);
}

/* The tensor maps of keys and values, in boxes of a block and KV head. How many blocks there are is not known here. */
static void open_key_maps(struct queue *q, struct persistent *p, const struct decode_model *m)
{
    const int width = m->layer[0].heads.head_dim;
    if (!p->keys)
        return;
    p->key_maps = upload_maps(q, (size_t)m->n_layers * 2, [&](CUtensorMap *to, auto encode) {
        for (int l = 0; l < m->n_layers; l++)
            for (void *cache : {m->layer[l].k_cache, m->layer[l].v_cache})
                make_map(q, to++, encode, {cache, q->act, INT_MAX, width, (size_t)(p->coded_keys ? width : 0)},
                         KV_BLOCK_TOKENS, p->coded_keys ? 1 : width / STEP_COLUMNS);
    });
    p->args.key_maps = p->key_maps;
}

/* The addresses of each product's row scales. */
static void open_scales(struct queue *q, struct persistent *p, const struct decode_model *m)
{
    size_t n = (size_t)m->n_layers * CHAIN_PRODUCTS + 1, bytes = n * sizeof(const float *);
    if (p->form == FORM_NONE || weight_has_groups(find_codes(m)))
        return;
    const float **host = (const float **)err_calloc(&q->err, n, sizeof *host, "table of scales"), **at = host;
    p->scales = (const float **)cuda_alloc(q, bytes);
    if (host != nullptr && p->scales != nullptr) {
        each_product(m, [&](const struct weight *w, int) {
            *at++ = weight_is_quantised(w)
                        ? (const float *)((const char *)w->data + code_scales_at(&w->form, w->rows, w->cols))
                        : nullptr;
        });
        cuda_upload(q, p->scales, bytes, host, bytes, bytes, 1);
        cuda_wait(q);
    }
    p->args.scales = p->scales;
    free(host);
}

/* The tensor maps of each product's group scales and zeros. */
static void open_groups(struct queue *q, struct persistent *p, const struct decode_model *m)
{
    if (p->form == FORM_NONE || !weight_has_groups(find_codes(m)))
        return;
    const int n = group_count(p->form);
    struct chain_args *a = &p->args;
    p->group_maps = upload_maps(q, ((size_t)m->n_layers * CHAIN_PRODUCTS + 1) * 2, [&](CUtensorMap *to, auto encode) {
        each_product(m, [&](const struct weight *w, int k) {
            if (weight_is_quantised(w) && !is_expert(m, k))
                make_group_map(q, to, encode, w, 4, a->product[k].tile_rows, n);
            if (w->form.zeros && !is_expert(m, k))
                make_group_map(q, to + 1, encode, w, 1, a->product[k].tile_rows, n);
            to += 2;
        });
    });
    a->group_maps = p->group_maps;
    a->group_zeros = find_codes(m)->form.zeros;
}

/* One allocation holds the words private to this device, another the sums that other ranks write. */
static void open_words(struct queue *q, struct persistent *p, const struct decode_model *m, void *sums)
{
    struct chain_args *a = &p->args;
    size_t tokens = PERSISTENT_MAX_TOKENS, hidden = m->hidden, qkv = m->layer[0].qkv->rows,
           width = m->layer[0].out->cols;
    size_t parts = (size_t)cuda_state(q)->n_multiprocessors +
                   tokens * (size_t)(a->n_kv_heads * attend_head_parts(a->heads_per_kv, a->head_dim));
    size_t n[] = {tokens * hidden / 2,     tokens * hidden / 2,         tokens * qkv / 2,
                  tokens * width / 2,      tokens * (size_t)m->ffn / 2, parts * ATTEND_HEADS * (size_t)a->head_dim,
                  parts * ATTEND_HEADS * 2};
    unsigned long long **const to[] = {&a->x[0],      &a->x[1],  &a->qkv,      &a->attended,
                                       &a->activated, &a->parts, &a->part_sums};
    size_t all = 0;
    for (size_t &words : n) {
        words = (words + 31) / 32 * 32;
        all += words;
    }
    p->words = (unsigned long long *)cuda_alloc(q, all * sizeof *p->words);
    if (sums != nullptr)
        cuda_clear(q, sums, sums_bytes(m->n_ranks, m->hidden));
    else
        sums = p->sums = cuda_alloc(q, sums_bytes(m->n_ranks, m->hidden));
    a->sum[m->rank] = (unsigned long long *)sums;
    unsigned long long *at = p->words;
    for (size_t i = 0; i < sizeof n / sizeof n[0]; at += n[i++])
        *to[i] = at;
}

/* Every block counts its steps from 1: cleared memory has epoch 0. */
static void open_steps(struct queue *q, struct persistent *p)
{
    uint32_t one[1024];
    size_t n = cuda_state(q)->n_multiprocessors, bytes = n * sizeof one[0];
    for (uint32_t &x : one)
        x = 1;
    p->step = (uint32_t *)cuda_alloc(q, bytes);
    p->args.step = p->step;
    if (n > sizeof one / sizeof one[0])
        ERR(&q->err, ERR_UNSUPPORTED, "a GPU of %zu multiprocessors", n);
    else if (p->step != nullptr)
        cuda_upload(q, p->step, bytes, one, bytes, bytes, 1);
    cuda_wait(q);
}

static bool has_bias(const struct decode_model *m)
{
    bool has = m->head_bias != nullptr;
    for (int l = 0; l < m->n_layers; l++) {
        const struct decode_layer *d = &m->layer[l];
        has = has || d->qkv_bias != nullptr || d->out_bias != nullptr || d->mlp_in_bias != nullptr ||
              d->mlp_out_bias != nullptr;
    }
    return has;
}

/* The layout of shared memory in a step of n tokens, with a ring of `slots` slots. Before: args.at.bias_rows is 0 where
 * no product has a bias. */
static struct chain_layout make_layout(const struct persistent *p, int n_blocks, int slots, int n_tokens)
{
    const struct chain_args *a = &p->args;
    struct chain_layout l = {};
    int input = attend_scratch_bytes(a->head_dim), at = slots * RING_SLOT_BYTES, spans = 0;
    for (int k = 0; k <= CHAIN_PRODUCTS; k++)
        for (int b = 0; b < (k == 1 ? n_blocks - n_blocks / 4 : n_blocks); b++) { /* k == 1: see chain_open_step */
            struct chain_share s = chain_make_share(a->product[k], b, k == 1 ? n_blocks - n_blocks / 4 : n_blocks);
            int bytes = s.n_spans * CHAIN_WARPS * n_tokens * 64 * 2, n = s.end - s.begin;
            input = max(input, bytes);
            spans = max(spans, s.n_spans);
            l.bias_rows = max(l.bias_rows, (a->product[k].gated ? 2 * n : n) + 2);
            l.x_rows = k == CHAIN_PRODUCTS - 1 ? max(l.x_rows, n) : l.x_rows;
        }
    int *const offset[] = {&l.groups,   &l.sums,     &l.input,   &l.partial, &l.stats,  &l.bias,   &l.scales,
                           &l.residual, &l.kept,     &l.cos_sin, &l.layers,  &l.tokens, &l.shares, &l.attend,
                           &l.keys,     &l.barriers, &l.hold,    &l.stream,  &l.bytes};
    const int size[] = {slots * group_bytes(p->form, a->group_maps != nullptr, a->group_zeros),
                        p->form == FORM_INT8 || p->form == FORM_INT4 ? spans / 2 * CHAIN_WARPS * CHAIN_OCTET * 4 : 0,
                        input,
                        2 * CHAIN_WARPS * n_tokens * CHAIN_ROWS * 4,
                        n_tokens * CHAIN_WARPS * 16 * (p->outputs ? 2 : 1),
                        a->at.bias_rows > 0 ? 2 * l.bias_rows * 4 : 0,
                        a->scales != nullptr ? 2 * l.bias_rows * 4 : 0,
                        n_tokens * l.x_rows * 4,
                        n_tokens * l.x_rows * 4,
                        n_tokens * a->rope_dims * 4 * (p->two_rotations ? 2 : 1),
                        (a->n_layers + 1) * (int)sizeof(struct chain_layer),
                        3 * n_tokens * 4,
                        (CHAIN_PRODUCTS + 1) * (int)sizeof(struct chain_share),
                        (int)sizeof(struct attend_shares),
                        (int)sizeof(struct key_requests) + a->n_layers * (int)sizeof(struct key_span),
                        2 * slots * 8,
                        2 * (int)sizeof(int),
                        p->outputs ? n_tokens * a->hidden * 2 : 0};
    place_shared(offset, size, at);
    return l;
}

/* The layout with the deepest ring that leaves room for n tokens, and its slots; 0: there is none. of_four: a ring of 4
 * slots is possible, too. */
static struct chain_layout deepest_layout(const struct persistent *p, int n_blocks, int n_tokens, bool of_four,
                                          int *slots)
{
    for (int n : {5, 4, 3, 2}) {
        struct chain_layout l = make_layout(p, n_blocks, n, n_tokens);
        *slots = n;
        if (l.bytes <= p->max_shared && (n != 4 || of_four))
            return l;
    }
    *slots = 0;
    return {};
}

static bool has_room(const struct persistent *p, int n_blocks, int n_tokens)
{
    int slots;
    (void)deepest_layout(p, n_blocks, n_tokens, false, &slots);
    return slots > 0;
}

template <typename T>
static chain_kernel find_plain(int slots)
{
    return slots == 5   ? persistent_kernel<T, 5, FORM_NONE, false>
           : slots == 3 ? persistent_kernel<T, 3, FORM_NONE, false>
                        : persistent_kernel<T, 2, FORM_NONE, false>;
}

template <typename T>
static void prepare(struct queue *q, const struct persistent *p)
{
    for (int slots : {5, 3, 2})
        CUDA_TRY(q, cudaFuncSetAttribute((const void *)find_plain<T>(slots),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, p->max_shared));
}

extern "C" void cuda_persistent_patience(struct queue *q, uint32_t for_others, uint32_t for_own)
{
    set_patience(q, for_others, for_own);
    wide_patience(q, for_others, for_own);
    const struct code_kernels *const all[] = {
        &code_kernels_full,      &code_kernels_e4m3,     &code_kernels_e4m3_full, &code_kernels_int8,
        &code_kernels_int8_full, &code_kernels_int4,     &code_kernels_int4_full, &code_kernels_outputs,
        &code_kernels_e4m3_one,  &code_kernels_int4_one, &code_kernels_keys,      &code_kernels_coded_keys,
        &code_kernels_one};
    for (const struct code_kernels *kernels : all)
        kernels->patience(q, for_others, for_own);
}

/* NULL: there are no kernels for one token alone. */
static const struct code_kernels *find_kernels_of_one(const struct persistent *p)
{
    if (p->coded_keys || !p->keys)
        return nullptr;
    return p->form == FORM_E4M3   ? &code_kernels_e4m3_one
           : p->form == FORM_INT4 ? &code_kernels_int4_one
                                  : &code_kernels_one;
}

/* NULL: the plain ones of 16-bit weights, which this file has. several: see needs_several */
static const struct code_kernels *find_code_kernels(const struct persistent *p, bool several)
{
    const bool coded = p->coded_keys;
    return p->outputs             ? &code_kernels_outputs
           : p->form == FORM_E4M3 ? coded ? &code_kernels_e4m3_full : &code_kernels_e4m3
           : p->form == FORM_INT8 ? coded ? &code_kernels_int8_full : &code_kernels_int8
           : p->form == FORM_INT4 ? coded ? &code_kernels_int4_full : &code_kernels_int4
           : several              ? &code_kernels_full
           : coded                ? p->keys ? &code_kernels_coded_keys : &code_kernels_full
           : p->keys              ? &code_kernels_keys
                                  : nullptr;
}

/* Kernels of a single token are opened beside those of several. */
static void open_kernels(struct queue *q, const struct persistent *p)
{
    if (find_kernels_of_one(p) != nullptr)
        find_kernels_of_one(p)->open(q, p->max_shared);
    for (bool several : {false, p->several}) {
        const struct code_kernels *kernels = find_code_kernels(p, several);
        if (kernels != nullptr)
            kernels->open(q, p->max_shared);
        else
            with_type(q->act, [&](auto t) {
                using T = decltype(t);
                if constexpr (sizeof(T) == 2)
                    prepare<T>(q, p);
            });
    }
}

extern "C" void *cuda_persistent_open(struct queue *q, const struct decode_model *m, void *sums)
{
    struct persistent *p = (struct persistent *)err_calloc(&q->err, 1, sizeof *p, "persistent step");
    if (p == nullptr)
        return nullptr;
    const struct heads *h = &m->layer[0].heads;
    struct chain_args *a = &p->args;
    make_products(a, m);
    a->n_layers = m->n_layers;
    a->hidden = m->hidden;
    a->n_heads = h->n_heads;
    a->n_kv_heads = h->n_kv_heads;
    a->head_dim = h->head_dim;
    a->first_head = h->first_head;
    a->first_kv_head = h->first_kv_head;
    a->heads_per_kv = h->heads_per_kv;
    a->rope_dims = m->rope != nullptr ? m->rope->dims : 0;
    a->rope_half = m->rope != nullptr && m->rope->layout == ROPE_HALF;
    a->norm = m->norm;
    a->eps = m->norm_eps;
    a->inverse_hidden = 1.0f / (float)m->hidden;
    a->activation = m->activation;
    a->embed_scale = m->embed_scale;
    a->embed = data_of(m->embed);
    a->position = data_of(m->position);
    a->first_id = m->first_id;
    a->embed_rows = m->embed->rows;
    a->position_rows = m->position != nullptr ? m->position->rows : 0;
    a->position_offset = m->position_offset;
    a->rank = m->rank;
    a->n_ranks = m->n_ranks;
    a->at.bias_rows = has_bias(m);
    int limit = 0, n_blocks = cuda_state(q)->n_multiprocessors;
    p->outputs = needs_outputs(m);
    p->two_rotations = m->window_rope != nullptr;
    p->coded_keys = h->kv_scales != nullptr;
    p->several = m->several;
    p->full = p->several || p->coded_keys;
    p->form = find_codes(m) != nullptr ? form_of_weight(find_codes(m)) : FORM_NONE;
    p->keys = takes_keys(p, m);
    open_scales(q, p, m);
    CUDA_TRY(q, cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, cuda_state(q)->device));
    p->max_shared = limit;
    open_groups(q, p, m);
    while (p->max_tokens < NARROW_TOKENS && has_room(p, n_blocks, p->max_tokens + 1))
        p->max_tokens++;
    open_layers(q, p, m);
    open_maps(q, p, m);
    open_key_maps(q, p, m);
    open_words(q, p, m, sums);
    open_steps(q, p);
    if (!m->mixture && !p->outputs)
        wide_open(q, p, m);
    open_kernels(q, p);
    return p;
}

extern "C" void cuda_persistent_close(struct queue *q, void *opened)
{
    struct persistent *p = (struct persistent *)opened;
    if (p == nullptr)
        return;
    wide_close(q, p);
    cuda_free(q, p->layers);
    cuda_free(q, p->maps);
    cuda_free(q, p->group_maps);
    cuda_free(q, p->key_maps);
    cuda_free(q, (void *)p->scales);
    cuda_free(q, p->words);
    cuda_free(q, p->sums);
    cuda_free(q, p->step);
    free(p);
}

extern "C" int cuda_persistent_max_tokens(const void *opened)
{
    const struct persistent *p = (const struct persistent *)opened;
    return p->has_wide ? PERSISTENT_MAX_TOKENS : p->max_tokens;
}

extern "C" uint32_t *cuda_persistent_steps(struct queue *q, void *p, int *n_blocks)
{
    *n_blocks = cuda_state(q)->n_multiprocessors;
    return ((struct persistent *)p)->step;
}

extern "C" void *cuda_persistent_memory(void *opened)
{
    const struct persistent *p = (const struct persistent *)opened;
    return p->args.sum[p->args.rank];
}

extern "C" void cuda_persistent_attach(struct queue *q, void *opened, void *const *memory)
{
    struct persistent *p = (struct persistent *)opened;
    cuda_state(q)->vain->n_layers = p->args.n_layers;
    cuda_persistent_patience(q, PATIENCE, PATIENCE_OWN);
    for (int r = 0; r < p->args.n_ranks; r++)
        p->args.sum[r] = p->wide.sum[r] = (unsigned long long *)memory[r];
}

/* May the step have several tokens of a sequence, or taps? A single token does not need the slower kernel for those. */
static bool needs_several(const struct persistent *p, const struct batch *batch)
{
    return p->several && (batch->n_tokens > 1 || p->args.taps.n > 0);
}

extern "C" void cuda_persistent_run(struct queue *q, void *opened, void *logits, const struct batch *batch,
                                    const float *cos_sin, const float *window_cos_sin)
{
    const struct persistent *p = (const struct persistent *)opened;
    bool wide = p->has_wide && (batch->n_tokens >= WIDE_FROM || batch->n_tokens > p->max_tokens);
    struct chain_args a = wide ? p->wide : p->args;
    set_batch(&a, batch, cos_sin, logits);
    a.window_cos_sin = p->two_rotations ? window_cos_sin : nullptr;
    int n_blocks = cuda_state(q)->n_multiprocessors;
    if (wide) {
        wide_run(q, p, &a);
        return;
    }
    const struct code_kernels *kernels = find_code_kernels(p, needs_several(p, batch));
    if (batch->n_tokens == 1 && p->args.taps.n == 0 && find_kernels_of_one(p) != nullptr)
        kernels = find_kernels_of_one(p);
    int slots;
    a.at = deepest_layout(p, n_blocks, a.n_tokens, kernels == &code_kernels_int4_one, &slots);
    if (kernels != nullptr)
        kernels->run(q, slots, &a);
    else
        with_type(q->act, [&](auto t) {
            using T = decltype(t);
            if constexpr (sizeof(T) == 2)
                launch_chain(q, find_plain<T>(slots), a);
        });
}
