/* kernels/cuda/step/persistent_experts.cu - the host's side of the persistent kernel for mixtures of experts: its
 * memory and its launch. persistent.cu opens the products, layers, maps and words that dense layers have, too, with one
 * expert in place of the MLP: the matrices of all experts are one matrix with more rows. */
#include "kernels/cuda/persistent_any.h"
#include "kernels/cuda/step/persistent_experts_code_second.cuh"
#include "kernels/cuda/step/persistent_experts_layout.cuh"
#include "kernels/cuda/step/persistent_maps.cuh"

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
    c->teams = max(1, min(CHAIN_WARPS / c->warps, SLOT_MOST / (c->tiles > 1 ? both.bytes : one.bytes)));
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
