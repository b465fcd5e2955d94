/* kernels/cuda/step/persistent_experts.cu - the host's side of the persistent kernel for mixtures of experts: which
 * models it supports, its memory, its launch. persistent.cu opens the products, layers, maps and words that dense
 * layers have, too, with one expert in place of the MLP: the matrices of all experts are one matrix with more rows. */
#include "kernels/cuda/persistent_any.h"
#include "kernels/cuda/step/persistent_attention_item.cuh"
#include "kernels/cuda/step/persistent_experts_codes.cuh"
#include "kernels/cuda/step/persistent_experts_kernels.h"
#include "kernels/cuda/step/persistent_experts_route.cuh"
#include "kernels/cuda/step/persistent_host.cuh"
#include "kernels/cuda/step/persistent_latent.cuh"
#include "kernels/cuda/step/persistent_maps.cuh"
#include "kernels/decode_latent.h"

#define MAX_CHOSEN 32 /* for a token */

/* Bytes: maximum of a slot with two tiles of a second product; minimum of a packed ring, if that leaves room for some
 * of the pairs' activations, and its maximum. */
#define SLOT_MOST   (52 * 1024)
#define RING_LEAST  (2 * RING_SLOT_BYTES)
#define RING_WANTED (72 * 1024)
#define RING_MOST   (5 * RING_SLOT_BYTES)

/* The part of a step that only mixtures have: p->experts of the p that cuda_persistent_open returned. */
struct expert_step {
    struct persistent *p;
    struct expert_args args;                     /* but for the chain_args that change */
    enum chain_form form;                        /* of the experts' weights */
    const struct expert_kernels *kernels, *lone; /* lone: for one token; NULL: there are none */
    int bias_rows, max_tokens;
    bool has_biases, has_gates; /* of the experts' second products; of shared MLPs */
    bool plain;                 /* see expert_plain */
};

/* FORM_NONE: 16-bit weights, or codes that no kernel supports. */
static enum chain_form expert_form(const struct weight *w)
{
    const struct code_form *f = &w->form;
    if (f->codes == CODES_E2M1 && f->scale == SCALE_E8M0 && f->group == SMALL_GROUP && f->first == 0)
        return FORM_E2M1;
    return form_of_weight(w) == FORM_E4M3 ? FORM_E4M3 : FORM_NONE;
}

/* The columns of the experts' products are multiples of this. */
static int expert_columns(enum chain_form form)
{
    return form == FORM_E2M1 ? SMALL_GROUP : form == FORM_E4M3 ? GROUP_COLUMNS : EXPERT_COLUMNS;
}

static const char *refuse_experts(const struct decode_model *m, const struct decode_layer *l)
{
    const struct decode_layer *first = &m->layer[0];
    const enum chain_form form = expert_form(first->mlp_in);
    const struct weight *const dense[] = {l->qkv, l->out, m->head};
    for (const struct weight *w : dense)
        if (weight_is_quantised(w) && form_of_weight(w) != form)
            return "experts and other weights that are quantised in different ways";
    const struct weight *const experts[][2] = {{l->mlp_in, first->mlp_in}, {l->mlp_out, first->mlp_out}};
    for (const auto &w : experts) {
        if (weight_is_quantised(w[0]) && expert_form(w[0]) == FORM_NONE)
            return "quantised experts other than FP8 with scales of rows or of whole groups of 128 inputs, and MXFP4";
        if (expert_form(w[0]) != form || !code_form_equal(&w[0]->form, &w[1]->form))
            return "experts that are not quantised alike";
        if (w[0]->cols % expert_columns(form) != 0)
            return "experts whose sizes are not multiples of 64, in FP8 of 128, in MXFP4 of 32";
    }
    return nullptr;
}

static const struct weight *router_bias_of(const struct decode_mixture *m, int layer)
{
    return m->router_bias != nullptr ? m->router_bias[layer] : nullptr;
}

static enum dtype router_bias_type(const struct decode_mixture *m)
{
    for (int l = 0; l < m->model.n_layers; l++)
        if (router_bias_of(m, l) != nullptr)
            return router_bias_of(m, l)->type;
    return DTYPE_F32;
}

/* The scope that the kernel needs. */
static enum expert_scope find_scope(const struct decode_mixture *m)
{
    bool full = m->routing->sigmoid || m->routing->n_groups > 1;
    for (int l = 0; l < m->model.n_layers; l++)
        full = full || m->router[l] == nullptr || m->common[l].out != nullptr;
    return decode_latent_of(&m->model) != nullptr ? SCOPE_LATENT : full ? SCOPE_FULL : SCOPE_PLAIN;
}

/* Returns why a layer's router or shared MLP is refused. */
static const char *refuse_more(struct queue *q, const struct decode_mixture *m, int layer)
{
    const struct decode_common *common = &m->common[layer];
    const struct weight *const all[] = {m->router[layer], common->in, common->out, common->gate};
    for (const struct weight *w : all)
        if (w != nullptr && weight_is_quantised(w))
            return "quantised routers or shared experts";
    for (const struct weight *w : all)
        if (w != nullptr && (w->type != q->act || (uintptr_t)w->data % 16 != 0))
            return "weights of more than one type";
    const struct weight *bias = router_bias_of(m, layer);
    if (bias != nullptr && bias->type != (m->routing->sigmoid ? router_bias_type(m) : q->act))
        return "biases of routers of another type than the other weights";
    if (common->out != nullptr && common->out->cols % EXPERT_COLUMNS != 0)
        return "shared experts or MLPs beside mixtures whose sizes are not multiples of 64";
    return common->out != nullptr && m->model.activation == ACTIVATION_SWIGLU ? "shared experts whose gates take turns"
                                                                              : nullptr;
}

static const char *refuse_layer(struct queue *q, const struct decode_mixture *m, int layer)
{
    const struct decode_layer *l = &m->model.layer[layer];
    const struct weight *const products[] = {l->qkv, l->out, l->mlp_in, l->mlp_out, m->model.head};
    for (const struct weight *w : products)
        if (weight_is_quantised(w) && q->act == DTYPE_F16)
            return "quantised mixtures of experts in float16";
    for (const struct weight *w : products)
        if (weight_is_quantised(w) && find_scope(m) != SCOPE_PLAIN)
            return "quantised weights with routers of sigmoids or groups, shared experts, layers without experts or "
                   "latent attention";
    if (l->heads.sinks != nullptr && l->heads.sinks_type != q->act)
        return "attention sinks of another type than the other weights";
    if (l->heads.kv_scales != nullptr)
        return "keys and values in FP8 beside mixtures of experts";
    return refuse_more(q, m, layer);
}

/* A step's memory for biases is sized by the first layer's. */
static bool biases_alike(const struct decode_layer *a, const struct decode_layer *b)
{
    return (a->qkv_bias != nullptr) == (b->qkv_bias != nullptr) &&
           (a->out_bias != nullptr) == (b->out_bias != nullptr) &&
           (a->mlp_out_bias != nullptr) == (b->mlp_out_bias != nullptr);
}

/* Returns why latent attention is refused. */
static const char *refuse_latents(struct queue *q, const struct decode_latent *d)
{
    const struct decode_model *m = &d->mixture.model;
    if (d->rank != LATENT_RANK || d->rotated != LATENT_TURNED || d->key != LATENT_KEY || d->value != LATENT_VALUE)
        return "latents of another size than 512, or heads of other parts than 128, 64 rotated ones and 128";
    if (m->rope == nullptr || m->rope->dims != LATENT_TURNED)
        return "latent attention without a rotation";
    if (m->layer[0].qkv->rows / 2 < cuda_state(q)->n_multiprocessors)
        return "latent attention with fewer rows of queries than two for each of the GPU's multiprocessors";
    for (int l = 0; l < m->n_layers; l++) {
        const struct decode_latent_layer *layer = &d->layer[l];
        const struct weight *const all[] = {layer->latent, layer->norm, layer->key_up, layer->value_up};
        for (const struct weight *w : all)
            if (weight_is_quantised(w) || w->type != q->act || (uintptr_t)w->data % 16 != 0)
                return "weights of latent attention that are quantised or of another type";
        if (m->layer[l].qkv_bias != nullptr || m->layer[l].heads.sinks != nullptr)
            return "latent attention with biases or sinks";
    }
    return nullptr;
}

static const char *refuse_mixture(struct queue *q, const struct decode_mixture *m)
{
    const struct routing *how = m->routing;
    if (q->act == DTYPE_F16 && find_scope(m) == SCOPE_LATENT)
        return "latent attention in float16";
    if (how->n_experts > EXPERT_MAX || how->n_chosen > MAX_CHOSEN)
        return "more than 256 experts, or 32 for a token";
    if (m->model.norm == NORM_LAYER)
        return "mixtures of experts with LayerNorm";
    if (m->model.hidden % EXPERT_COLUMNS != 0)
        return "a hidden size that is not a multiple of 64";
    if (m->model.hidden / 2 < cuda_state(q)->n_multiprocessors)
        return "experts in layers of fewer rows than two for each of the GPU's multiprocessors";
    for (int l = 0; l < m->model.n_layers; l++) {
        const char *why = refuse_layer(q, m, l);
        if (why == nullptr && m->router[l] != nullptr)
            why = refuse_experts(&m->model, &m->model.layer[l]);
        if (why == nullptr && !biases_alike(&m->model.layer[0], &m->model.layer[l]))
            why = "mixtures of experts with biases in some layers only";
        if (why != nullptr)
            return why;
    }
    const struct decode_latent *latents = decode_latent_of(&m->model);
    return latents != nullptr ? refuse_latents(q, latents) : nullptr;
}

/* The model with one expert as its MLP. */
static struct decode_model dense_model(const struct decode_mixture *m)
{
    struct decode_model d = m->model;
    d.ffn = m->expert_ffn;
    return d;
}

/* Refuses by name: only the kernels for mixtures support these. */
static const char *refuse_dense(const struct decode_model *m)
{
    if (m->norm == NORM_RMS_ONCE)
        return "norms that are rounded after their weight";
    return m->layer[0].heads.sinks != nullptr ? "attention sinks in dense layers" : nullptr;
}

extern "C" const char *cuda_any_refusal(struct queue *q, const struct decode_model *m)
{
    const struct decode_mixture *mixture = decode_mixture_of(m);
    if (mixture == nullptr)
        return refuse_dense(m) != nullptr ? refuse_dense(m) : cuda_persistent_refusal(q, m);
    struct decode_model dense = dense_model(mixture);
    const char *why = refuse_mixture(q, mixture);
    return why != nullptr ? why : cuda_persistent_refusal(q, &dense);
}

/* The maximum of a block's rows of a product; 0 if it has no bias. */
static int rows_of_bias(const struct chain_product &p, bool has, int n_blocks)
{
    return has ? (p.rows / 2 + n_blocks) / n_blocks * 2 + 2 : 0;
}

static const char *scales_of(const struct weight *w)
{
    return (const char *)w->data + code_scales_at(&w->form, w->rows, w->cols);
}

static void open_more(struct queue *q, struct expert_args *a, const struct decode_mixture *m)
{
    size_t n = (size_t)m->model.n_layers, bytes = n * sizeof *a->more;
    struct expert_layer *host = (struct expert_layer *)err_calloc(&q->err, n, sizeof *host, "layer table"),
                        *there = (struct expert_layer *)cuda_alloc(q, bytes);
    for (size_t l = 0; host != nullptr && l < n; l++) {
        const struct weight *bias = router_bias_of(m, (int)l);
        host[l].router_bias = bias != nullptr ? bias->data : nullptr;
        host[l].sinks = m->model.layer[l].heads.sinks;
        host[l].scales[0] = scales_of(m->model.layer[l].mlp_in);
        host[l].scales[1] = scales_of(m->model.layer[l].mlp_out);
        host[l].gate = m->common[l].gate != nullptr ? m->common[l].gate->data : nullptr;
        host[l].routed = m->router[l] != nullptr;
        host[l].common = m->common[l].out == nullptr ? -1 : host[l].routed ? COMMON_BESIDE : COMMON_ALONE;
    }
    if (host != nullptr && there != nullptr) {
        cuda_upload(q, there, bytes, host, bytes, bytes, 1);
        cuda_wait(q);
    }
    a->more = there;
    free(host);
}

static void fill_codes(struct expert_codes *c, const struct decode_layer *l)
{
    const struct weight *const experts[] = {l->mlp_in, l->mlp_out};
    for (int k = 0; k < 2; k++) {
        const struct code_form *f = &experts[k]->form;
        c->pitch[k] = code_groups(f, experts[k]->cols) * (int)scale_bytes(f->scale);
        c->pieces[k] = code_pieces(experts[k]);
    }
}

/* The division of the second products: the tiles, and experts, that share a slot. Set before: pitch, pieces */
static void share_out_codes(struct expert_codes *c, enum chain_form form, const struct chain_product &p, int n_blocks)
{
    int columns = form == FORM_E2M1 ? EXPERT_WARP_COLUMNS<FORM_E2M1> : EXPERT_WARP_COLUMNS<FORM_E4M3>;
    int rows = ((p.rows + 1) / 2 + n_blocks - 1) / n_blocks * 2, first = min(rows, CHAIN_ROWS);
    const coded_slot one(first, 0, false, c->pieces[1], c->pitch[1]),
        both(CHAIN_ROWS, CHAIN_ROWS, false, c->pieces[1], c->pitch[1]);
    c->tiles = rows > CHAIN_ROWS && both.bytes <= SLOT_MOST ? SECOND_TILES : 1;
    c->warps = min(CHAIN_WARPS, (p.cols + columns - 1) / columns);
    c->groups = max(1, min(CHAIN_WARPS / c->warps, SLOT_MOST / (c->tiles > 1 ? both.bytes : one.bytes)));
}

/* The shared MLPs. Set before: products of the chain, pair_pitch. */
static void open_common(struct queue *q, struct expert_step *x, const struct decode_mixture *m)
{
    struct expert_args *a = &x->args;
    int most = 0;
    for (struct expert_common &common : a->common) {
        common.in = x->p->args.product[2];
        common.in.rows = 0;
    }
    for (int l = 0; l < m->model.n_layers; l++) {
        const struct decode_common *common = &m->common[l];
        if (common->out == nullptr)
            continue;
        struct expert_common *to = &a->common[m->router[l] != nullptr ? COMMON_BESIDE : COMMON_ALONE];
        to->in.rows = common->out->cols;
        to->out_steps = (common->out->cols + CHAIN_WARPS * STEP_COLUMNS - 1) / (CHAIN_WARPS * STEP_COLUMNS);
        most = max(most, common->out->cols);
        x->has_gates = x->has_gates || common->gate != nullptr;
    }
    if (most == 0)
        return;
    a->common_words = (unsigned long long *)cuda_alloc(q, NARROW_TOKENS * (size_t)most / 2 * sizeof *a->common_words);
    a->common_maps = upload_maps(q, (size_t)m->model.n_layers * 2 * BOX_SIZES, [&](CUtensorMap *to, auto encode) {
        for (int i = 0; i < m->model.n_layers * 2 * BOX_SIZES; i++, to++) {
            const struct decode_common *common = &m->common[i / (2 * BOX_SIZES)];
            if (common->out != nullptr)
                make_map(q, to, encode, boxed_weight(i / BOX_SIZES % 2 == 0 ? common->in : common->out),
                         2 * (i % BOX_SIZES + 1), CHAIN_WARPS);
        }
    });
}

static void open_latent_layers(struct queue *q, struct expert_latents *to, const struct decode_latent *d)
{
    size_t n = (size_t)d->mixture.model.n_layers, bytes = n * sizeof(struct latent_layer);
    struct latent_layer *host = (struct latent_layer *)err_calloc(&q->err, n, sizeof *host, "layer table"),
                        *there = (struct latent_layer *)cuda_alloc(q, bytes);
    for (size_t l = 0; host != nullptr && l < n; l++)
        host[l] = {d->layer[l].norm->data, d->layer[l].key_up->data, d->layer[l].value_up->data};
    if (host != nullptr && there != nullptr) {
        cuda_upload(q, there, bytes, host, bytes, bytes, 1);
        cuda_wait(q);
    }
    to->layers = there;
    free(host);
}

/* Latent attention. The chain sees every head as a KV head of its own, with as many elements as its values. */
static void open_latents(struct queue *q, struct expert_step *x, const struct decode_latent *d)
{
    struct expert_latents *to = &x->args.latents;
    struct chain_args *a = &x->p->args;
    a->n_kv_heads = a->n_heads;
    a->heads_per_kv = 1;
    a->first_head = a->first_kv_head = 0;
    a->head_dim = LATENT_VALUE;
    to->product = a->product[0];
    to->product.rows = LATENT_CACHED;
    to->eps = d->norm_eps;
    open_latent_layers(q, to, d);
    to->words = (unsigned long long *)cuda_alloc(q, NARROW_TOKENS * (size_t)LATENT_CACHED / 2 * sizeof *to->words);
    to->maps = upload_maps(q, (size_t)d->mixture.model.n_layers * BOX_SIZES, [&](CUtensorMap *map, auto encode) {
        for (int i = 0; i < d->mixture.model.n_layers * BOX_SIZES; i++)
            make_map(q, map + i, encode, boxed_weight(d->layer[i / BOX_SIZES].latent), 2 * (i % BOX_SIZES + 1),
                     CHAIN_WARPS);
    });
}

/* Elements of the activations of a step's second products, in layers of one kind. */
static int second_inputs(const struct expert_args *a, int n_tokens, int common, bool routed)
{
    int columns = a->common[common].in.rows, pairs = routed ? a->how.n_chosen * a->pair_pitch : 0;
    return n_tokens * (pairs + (columns > 0 ? expert_pair_pitch(columns) : 0));
}

/* A pair's activations include all columns of a step's last warp. */
static int pair_columns(enum chain_form form, int ffn)
{
    int unit = form == FORM_E2M1   ? EXPERT_WARP_COLUMNS<FORM_E2M1>
               : form == FORM_E4M3 ? EXPERT_WARP_COLUMNS<FORM_E4M3>
                                   : EXPERT_COLUMNS;
    return (ffn + unit - 1) / unit * unit;
}

static void fill_args(struct queue *q, struct expert_step *x, const struct decode_mixture *m)
{
    const struct decode_layer *l = &m->model.layer[0];
    const struct chain_product *product = x->p->args.product;
    struct expert_args *a = &x->args;
    int n_blocks = cuda_state(q)->n_multiprocessors;
    size_t pairs = NARROW_TOKENS * (size_t)m->routing->n_chosen;
    a->router = product[0];
    a->router.rows = m->routing->n_experts;
    a->router.spans = 1;
    a->how = *m->routing;
    a->router_bias_type = router_bias_type(m);
    open_more(q, a, m);
    a->first_held = m->first_held;
    a->n_held = m->n_held;
    /* Few of the tokens have the same expert: where memory is scarce, padding against conflicts does not pay. */
    a->pair_pitch = x->form != FORM_NONE ? expert_pair_pitch(pair_columns(x->form, m->expert_ffn)) : m->expert_ffn;
    if (x->form != FORM_NONE) {
        fill_codes(&a->codes, l);
        share_out_codes(&a->codes, x->form, product[3], n_blocks);
    }
    open_common(q, x, m);
    a->pairs = (unsigned long long *)cuda_alloc(q, pairs * (size_t)m->expert_ffn / 2 * sizeof *a->pairs);
    a->logit_words = (unsigned long long *)cuda_alloc(
        q, (size_t)(NARROW_TOKENS * expert_logits_pitch(m->routing->n_experts)) * sizeof *a->logit_words);
    a->router_maps = upload_maps(q, (size_t)m->model.n_layers * BOX_SIZES, [&](CUtensorMap *to, auto encode) {
        for (int i = 0; i < m->model.n_layers * BOX_SIZES; i++)
            if (m->router[i / BOX_SIZES] != nullptr)
                make_map(q, to + i, encode, boxed_weight(m->router[i / BOX_SIZES]), 2 * (i % BOX_SIZES + 1),
                         CHAIN_WARPS);
    });
    x->has_biases = l->mlp_out_bias != nullptr;
    bool scales = x->p->args.scales != nullptr;
    x->bias_rows = max(rows_of_bias(product[0], scales || l->qkv_bias != nullptr, n_blocks),
                       max(rows_of_bias(product[1], scales || l->out_bias != nullptr, n_blocks),
                           rows_of_bias(product[CHAIN_HEAD], scales || m->model.head_bias != nullptr, n_blocks)));
}

static int input_bytes(const struct chain_product &p, int n_blocks, int n_tokens)
{
    return chain_make_share(p, 0, n_blocks).n_spans * CHAIN_WARPS * n_tokens * STEP_COLUMNS * 2;
}

/* The first product's activations, if they are converted for codes. */
static int recoded_bytes(const struct expert_step *x, int n_tokens)
{
    int cols = x->p->args.product[2].cols;
    return x->form == FORM_E2M1   ? recoded_columns<FORM_E2M1>(cols) * n_tokens * 2
           : x->form == FORM_E4M3 ? recoded_columns<FORM_E4M3>(cols) * n_tokens * 2
                                  : 0;
}

/* Are the keys of the choice behind the input of the first products? */
static bool keys_behind(const struct expert_step *x, int n_tokens)
{
    return x->plain && n_tokens > 1;
}

/* The input of the router and of the first products. */
static int first_input(const struct expert_step *x, int n_blocks, int n_tokens)
{
    return input_bytes(x->args.router, n_blocks, n_tokens) + recoded_bytes(x, n_tokens);
}

/* Maximum of activations in shared memory. places: pairs that fit at once */
static int most_input(const struct expert_step *x, int n_blocks, int n_tokens, int places)
{
    const struct chain_args *a = &x->p->args;
    bool latents = x->args.latents.layers != nullptr;
    int input = latents ? (int)sizeof(latent_scratch) : attend_scratch_bytes(a->head_dim);
    input = max(input, x->form != FORM_NONE ? 2 * places * x->args.pair_pitch
                                            : 2 * second_inputs(&x->args, n_tokens, COMMON_BESIDE, true));
    input = max(input, 2 * second_inputs(&x->args, n_tokens, COMMON_ALONE, false));
    input = max(input, first_input(x, n_blocks, n_tokens) +
                           (keys_behind(x, n_tokens) ? expert_keys_bytes(x->args.how, n_tokens) : 0));
    for (const struct chain_product &p : a->product) /* except for that of the experts' results */
        if (p.input != INPUT_ACTIVATED)
            input = max(input, input_bytes(p, n_blocks, n_tokens));
    return input;
}

/* Shared memory in a step of n tokens, with a ring of `slots` slots in `ring` bytes. args: receives its offsets beyond
 * chain_args. */
static struct chain_layout make_layout(const struct expert_step *x, int n_blocks, int slots, int ring, int n_tokens,
                                       int places, struct expert_args *args)
{
    const struct chain_args *a = &x->p->args;
    struct chain_layout l = {};
    bool latents = x->args.latents.layers != nullptr, packed = x->form != FORM_NONE;
    for (int b = 0; b < n_blocks; b++) {
        struct chain_share s = chain_make_share(a->product[CHAIN_PRODUCTS - 1], b, n_blocks);
        l.x_rows = max(l.x_rows, s.end - s.begin);
    }
    l.bias_rows = x->bias_rows;
    int *const offset[] = {&l.groups,         &l.input,        &l.partial, &l.stats,      &l.bias,        &l.scales,
                           &l.residual,       &l.kept,         &l.cos_sin, &l.layers,     &l.tokens,      &l.shares,
                           &l.attend,         &l.barriers,     &l.hold,    &args->choice, &args->more_at, &args->gates,
                           &args->latents.at, &args->route.at, &l.bytes};
    const int size[] = {slots * group_bytes(x->p->form, a->group_maps != nullptr, a->group_zeros),
                        most_input(x, n_blocks, n_tokens, places),
                        2 * CHAIN_WARPS * n_tokens * CHAIN_ROWS * 4,
                        n_tokens * CHAIN_WARPS * 16,
                        2 * l.bias_rows * 4,
                        a->scales != nullptr ? 2 * l.bias_rows * 4 : 0,
                        n_tokens * l.x_rows * 4,
                        x->has_biases ? n_tokens * l.x_rows * 4 : 0,
                        n_tokens * a->rope_dims * 4,
                        (a->n_layers + 1) * (int)sizeof(struct chain_layer),
                        3 * n_tokens * 4,
                        (CHAIN_PRODUCTS + 1) * (int)sizeof(struct chain_share),
                        (int)sizeof(struct attend_shares),
                        slots * (packed ? 2 * 8 + 2 * 4 : 2 * 8),
                        (int)sizeof(int),
                        expert_choice_bytes(x->args.how, n_tokens) +
                            (keys_behind(x, n_tokens) ? 0 : expert_keys_bytes(x->args.how, n_tokens)),
                        a->n_layers * (int)sizeof(struct expert_layer),
                        x->has_gates ? CHAIN_WARPS * n_tokens * 4 : 0,
                        latents ? latent_tables_bytes(a->n_layers) : 0,
                        x->lone != nullptr && n_tokens == 1 ? route_bytes(x->args.how.n_experts, l.x_rows) : 0};
    place_shared(offset, size, ring);
    args->codes.places = places;
    args->codes.ring = ring;
    args->codes.input = l.input + input_bytes(x->args.router, n_blocks, n_tokens);
    args->keys = keys_behind(x, n_tokens) ? l.input + first_input(x, n_blocks, n_tokens) - args->choice
                                          : expert_choice_bytes(x->args.how, n_tokens);
    return l;
}

/* The same with a packed ring: all pairs fit, unless that leaves too little for the ring. */
static struct chain_layout make_packed(const struct expert_step *x, int n_blocks, int n_tokens,
                                       struct expert_args *args)
{
    const int pairs = n_tokens * x->args.how.n_chosen, pair = 2 * x->args.pair_pitch, room = x->p->max_shared;
    struct chain_layout l = make_layout(x, n_blocks, PACKED_SLOTS, 0, n_tokens, pairs, args);
    int missing = l.bytes + RING_WANTED - room;
    int least = min(n_tokens * x->args.codes.groups, pairs);
    int places = missing <= 0 ? pairs : max(least, pairs - (missing + pair - 1) / pair);
    if (places < pairs)
        l = make_layout(x, n_blocks, PACKED_SLOTS, 0, n_tokens, places, args);
    int ring = min((room - l.bytes) / 1024 * 1024, RING_MOST);
    return make_layout(x, n_blocks, PACKED_SLOTS, ring, n_tokens, places, args);
}

/* Maximum bytes of a slot in the ring. */
static int largest_slot(const struct expert_codes *c)
{
    const coded_slot gated(CHAIN_OCTET, CHAIN_OCTET, true, c->pieces[0], c->pitch[0]),
        in_turns(CHAIN_ROWS, 0, false, c->pieces[0], c->pitch[0]),
        second(CHAIN_ROWS, c->tiles > 1 ? CHAIN_ROWS : 0, false, c->pieces[1], c->pitch[1]);
    return max(max(gated.bytes, in_turns.bytes), second.bytes * c->groups);
}

/* The slots of the deepest ring that leaves room for n tokens, and its layout; 0: there is none. */
static int find_slots(const struct expert_step *x, int n_blocks, int n_tokens, struct chain_layout *l,
                      struct expert_args *args)
{
    const int pairs = n_tokens * x->args.how.n_chosen;
    if (x->form != FORM_NONE) {
        *l = make_packed(x, n_blocks, n_tokens, args);
        return args->codes.ring >= max(RING_LEAST, largest_slot(&x->args.codes)) ? PACKED_SLOTS : 0;
    }
    for (int slots : {5, 3, 2}) {
        *l = make_layout(x, n_blocks, slots, slots * RING_SLOT_BYTES, n_tokens, pairs, args);
        if (l->bytes <= x->p->max_shared)
            return slots;
    }
    return 0;
}

/* The maximum tokens of a step that fit. */
static int find_most(const struct expert_step *x, int n_blocks)
{
    struct expert_args args = x->args;
    struct chain_layout l;
    int n = 0;
    while (n < NARROW_TOKENS && find_slots(x, n_blocks, n + 1, &l, &args) > 0)
        n++;
    return n;
}

/* The kernels for steps of one token; NULL: there are none. */
static const struct expert_kernels *find_lone(struct queue *q, const struct expert_step *x,
                                              const struct decode_mixture *m)
{
    const struct chain_args *a = &x->p->args;
    const struct expert_kernels *lone = find_lone_kernels(x->form, a->head_dim, a->norm, a->n_ranks > 1);
    bool can = lone != nullptr && a->n_ranks <= LONE_RANKS && q->act == DTYPE_BF16 && find_scope(m) == SCOPE_PLAIN &&
               a->hidden <= LONE_COLUMNS && a->product[1].cols <= LONE_COLUMNS &&
               route_shares(a->product[1], a->n_ranks, cuda_state(q)->n_multiprocessors) <= SHARES_MOST;
    for (int l = 0; l < m->model.n_layers; l++)
        can = can && m->model.layer[l].mlp_norm != nullptr;
    return can ? lone : nullptr;
}

/* The router of steps of one token. */
static void open_route(struct queue *q, struct expert_route *to, const struct chain_args *a,
                       const struct decode_mixture *m)
{
    size_t n = (size_t)m->model.n_layers, bytes = n * sizeof(void *);
    const void **host = (const void **)err_calloc(&q->err, n, sizeof *host, "router table"),
               **there = (const void **)cuda_alloc(q, bytes);
    for (size_t l = 0; host != nullptr && l < n; l++)
        host[l] = m->router[l]->data;
    if (host != nullptr && there != nullptr) {
        cuda_upload(q, there, bytes, host, bytes, bytes, 1);
        cuda_wait(q);
    }
    to->weights = there;
    to->n_shares = route_shares(a->product[1], a->n_ranks, cuda_state(q)->n_multiprocessors);
    to->sums = (unsigned long long *)cuda_alloc(q, (size_t)route_sum_at(m->routing->n_experts) *
                                                       sizeof *to->sums); /* any values will do */
    free(host);
}

static void open_mixture(struct queue *q, struct persistent *p, const struct decode_mixture *m)
{
    struct expert_step *x = (struct expert_step *)err_calloc(&q->err, 1, sizeof *x, "step of experts");
    int n_blocks = cuda_state(q)->n_multiprocessors;
    if (x == nullptr)
        return;
    x->p = p;
    x->form = expert_form(m->model.layer[0].mlp_in);
    x->plain = x->form == FORM_NONE && find_scope(m) == SCOPE_PLAIN;
    p->experts = x;
    fill_args(q, x, m);
    if (decode_latent_of(&m->model) != nullptr)
        open_latents(q, x, decode_latent_of(&m->model));
    x->lone = find_lone(q, x, m);
    x->max_tokens = find_most(x, n_blocks);
    x->kernels = find_expert_kernels(q->act, x->form, find_scope(m));
    x->kernels->open(q, p->max_shared);
    if (x->lone != nullptr) {
        open_route(q, &x->args.route, &p->args, m);
        x->lone->open(q, p->max_shared);
    }
}

extern "C" void *cuda_any_open(struct queue *q, const struct decode_model *m, void *sums)
{
    const struct decode_mixture *mixture = decode_mixture_of(m);
    const struct decode_model dense = mixture != nullptr ? dense_model(mixture) : *m;
    struct persistent *p = (struct persistent *)cuda_persistent_open(q, &dense, sums);
    if (p == nullptr)
        return nullptr;
    p->args.taps = p->wide.taps = *decode_taps_of(m);
    if (mixture != nullptr)
        open_mixture(q, p, mixture);
    return p;
}

extern "C" void cuda_any_close(struct queue *q, void *p)
{
    struct expert_step *x = p != nullptr ? ((struct persistent *)p)->experts : nullptr;
    if (x != nullptr) {
        cuda_free(q, x->args.pairs);
        cuda_free(q, x->args.logit_words);
        cuda_free(q, (void *)x->args.router_maps);
        cuda_free(q, (void *)x->args.more);
        cuda_free(q, x->args.common_words);
        cuda_free(q, (void *)x->args.common_maps);
        cuda_free(q, (void *)x->args.latents.layers);
        cuda_free(q, x->args.latents.words);
        cuda_free(q, (void *)x->args.latents.maps);
        cuda_free(q, (void *)x->args.route.weights);
        cuda_free(q, x->args.route.sums);
        free(x);
    }
    cuda_persistent_close(q, p);
}

extern "C" void cuda_any_attach(struct queue *q, void *p, void *const *memory)
{
    const struct expert_step *x = ((const struct persistent *)p)->experts;
    cuda_persistent_attach(q, p, memory);
    if (x != nullptr)
        x->kernels->patience(q, PATIENCE, PATIENCE_OWN);
    if (x != nullptr && x->lone != nullptr)
        x->lone->patience(q, PATIENCE, PATIENCE_OWN);
}

extern "C" void cuda_any_patience(struct queue *q, uint32_t for_others, uint32_t for_own)
{
    cuda_persistent_patience(q, for_others, for_own);
    for (const struct expert_kernels *k :
         {&expert_kernels_bf16, &expert_kernels_bf16_full, &expert_kernels_bf16_latent, &expert_kernels_f16,
          &expert_kernels_e4m3, &expert_kernels_e2m1, &expert_kernels_bf16_lone, &expert_kernels_bf16_lone_once,
          &expert_kernels_e4m3_lone, &expert_kernels_e2m1_lone_once, &expert_kernels_bf16_lone_ranks,
          &expert_kernels_bf16_lone_ranks_once, &expert_kernels_e4m3_lone_ranks, &expert_kernels_e2m1_lone_ranks_once})
        k->patience(q, for_others, for_own);
}

extern "C" int cuda_any_max_tokens(const void *p)
{
    const struct expert_step *x = ((const struct persistent *)p)->experts;
    return x != nullptr ? x->max_tokens : cuda_persistent_max_tokens(p);
}

extern "C" void cuda_any_run(struct queue *q, void *p, void *logits, const struct batch *batch, const float *cos_sin,
                             const float *window_cos_sin)
{
    const struct expert_step *x = ((const struct persistent *)p)->experts;
    if (x == nullptr) {
        cuda_persistent_run(q, p, logits, batch, cos_sin, window_cos_sin);
        return;
    }
    struct expert_args a = x->args;
    static_cast<struct chain_args &>(a) = x->p->args;
    int slots = find_slots(x, cuda_state(q)->n_multiprocessors, batch->n_tokens, &a.at, &a);
    set_batch(&a, batch, cos_sin, logits);
    bool fits = x->form != FORM_NONE ? a.codes.places >= a.how.n_chosen : slots == LONE_SLOTS;
    bool lone = x->lone != nullptr && batch->n_tokens == 1 && fits;
    (lone ? x->lone : x->kernels)->run(q, slots, &a);
}
