/* rank/step/persistent_step.c - see persistent_step.h. */
#include "rank/step/persistent_step.h"
#include "kernels/decode_latent.h"
#include "rank/model/taps.h"
#include "rank/world/fatal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct persistent_model {
    struct decode_latent all;           /* or a model of dense layers only, or with another attention */
    const struct weight **router;       /* [2 n_layers]: of all layers, then their biases */
    struct decode_common *common;       /* [n_layers] */
    struct decode_latent_layer *latent; /* [n_layers] */
    struct decode_layer layer[];
};

/* As refuse_network, of mixtures of experts. */
static const char *refuse_experts(const struct network *n)
{
    const struct model_config *m = &n->config;
    for (int i = 0; i < m->n_layers; i++)
        if (!m->layer[i].experts && (!m->gated_mlp || m->mlp_bias || range_length(n->shard.ffn) < 1))
            return "layers without experts whose MLP has no gate, has biases, or has no columns on a rank";
    if (m->experts.shared_ffn > 0 && range_length(n->shard.shared_ffn) < 1)
        return "a rank without columns of the shared expert";
    if (m->experts.routing.of_input)
        return "routers that scale the experts' inputs";
    if (m->experts.routing.corrected)
        return "routers whose softmax is corrected";
    if (m->parallel_residual)
        return "mixtures of experts in parallel layers";
    return range_length(n->shard.experts) < 1 || range_length(n->shard.expert_ffn) < 1 ? "a rank without experts"
                                                                                       : NULL;
}

/* As refuse_network, of latent attention. */
static const char *refuse_latents(const struct network *n)
{
    const struct model_config *m = &n->config;
    if (m->latent.query_rank > 0)
        return "queries that are made of a latent";
    if (m->latent.biases)
        return "latents with biases";
    return m->experts.routing.n_experts == 0 ? "latent attention without experts" : NULL;
}

/* Dense layers of 16-bit weights: see kernels/decode_mixture.h. */
static bool is_plain(const struct network *n)
{
    bool plain = n->config.experts.routing.n_experts == 0;
    for (int i = 0; i < n->map.n_slots; i++)
        plain = plain && !weight_is_quantised(&n->weight[i]);
    return plain;
}

/* A property of the model that no backend's persistent step supports, as the end of a sentence; NULL: none. */
static const char *refuse_network(const struct network *n, const struct world *w)
{
    const struct model_config *m = &n->config;
    if (n->taps != NULL && n->taps->head == n)
        return "a draft head";
    if (taps_after_norm(n))
        return "a layer that predicts, which reads what the last norm says";
    if (n->taps != NULL && !is_plain(n))
        return "a head that drafts beside experts or quantised weights";
    if (m->post_norm || m->residual_is_normed || m->embed_norm || !m->final_norm)
        return "norms elsewhere than before attention, MLP and head";
    if (m->embed_dim != m->hidden)
        return "an embedding of another width than the layers";
    if (m->position == POSITION_ALIBI)
        return "ALiBi";
    if (m->latent.rank > 0 && refuse_latents(n) != NULL)
        return refuse_latents(n);
    if (m->experts.routing.n_experts > 0 && refuse_experts(n) != NULL)
        return refuse_experts(n);
    for (int i = 0; i < m->n_layers; i++)
        if (m->layer[i].unrotated || m->layer[i].chunk > 0)
            return "layers that do not rotate, or attend in chunks";
    for (int i = 0; i < m->n_layers; i++)
        if (n->window > 0 && m->layer[i].window > n->window)
            return "windows of which some are as long as the context";
    if (m->activation == ACTIVATION_XIELU)
        return "an activation with constants of its layer";
    if (m->no_input_norms)
        return "norms of the outputs of attention and MLP alone";
    if (m->qk_norm_unit)
        return "norms of q and k without weights";
    if (m->qk_norm &&
        (m->norm == NORM_LAYER || m->norm == NORM_RMS_ONCE || m->qk_norm_each || m->qk_norm_row || m->qk_norm_rotated))
        return "norms of q and k of another kind than one RMS norm for all heads";
    if (m->residual_scale > 0 || m->logit_scale > 0 || m->logit_cap > 0)
        return "factors of the residual or the logits";
    if (m->quantization.reordered)
        return "inputs that are not in the order of their groups";
    if (m->attention_cap > 0)
        return "capped scores";
    if (m->rope.query_growth > 0)
        return "queries that grow with their position";
    if (!w->on_one_host)
        return "ranks on more than one host";
    bool columns = m->experts.routing.n_experts > 0 || range_length(n->shard.ffn) > 0;
    if (range_length(n->shard.heads) < 1 || !columns || range_length(n->shard.vocab) < 1)
        return "a rank without heads, columns or vocabulary";
    return NULL;
}

static struct decode_layer describe_layer(const struct network *n, int l)
{
    const struct weight *const *w = n->layer[l];
    bool experts = n->config.layer[l].experts;
    return (struct decode_layer){
        .attn_norm = w[WEIGHT_ATTN_NORM],
        .attn_norm_bias = w[WEIGHT_ATTN_NORM_BIAS],
        .mlp_norm = w[WEIGHT_MLP_NORM],
        .mlp_norm_bias = w[WEIGHT_MLP_NORM_BIAS],
        .attn_out_norm = w[WEIGHT_ATTN_OUT_NORM],
        .mlp_out_norm = w[WEIGHT_MLP_OUT_NORM],
        .qkv = w[n->config.latent.rank > 0 ? WEIGHT_QUERY : WEIGHT_QKV],
        .qkv_bias = w[WEIGHT_QKV_BIAS],
        .q_norm = w[WEIGHT_Q_NORM],
        .k_norm = w[WEIGHT_K_NORM],
        .out = w[WEIGHT_OUT],
        .out_bias = w[WEIGHT_OUT_BIAS],
        .mlp_in = w[experts ? WEIGHT_EXPERTS_IN : WEIGHT_MLP_IN],
        .mlp_in_bias = w[experts ? WEIGHT_EXPERTS_IN_BIAS : WEIGHT_MLP_IN_BIAS],
        .mlp_out = w[experts ? WEIGHT_EXPERTS_OUT : WEIGHT_MLP_OUT],
        .mlp_out_bias = w[experts ? WEIGHT_EXPERTS_OUT_BIAS : WEIGHT_MLP_OUT_BIAS],
        .k_cache = n->k_cache[l],
        .v_cache = n->v_cache[l],
        .heads = network_heads(n, l),
    };
}

static struct decode_latent_layer describe_latent(const struct network *n, int l)
{
    const struct weight *const *w = n->layer[l];
    return (struct decode_latent_layer){.latent = w[WEIGHT_LATENT],
                                        .norm = w[WEIGHT_LATENT_NORM],
                                        .key_up = w[WEIGHT_KEY_UP],
                                        .value_up = w[WEIGHT_VALUE_UP]};
}

_Static_assert(DECODE_TAPS == MODEL_TAPS, "all that a head reads");

/* The hidden states of this model that a drafting head reads. */
static struct decode_taps describe_taps(const struct network *n)
{
    struct decode_taps taps = {0};
    if (n->taps == NULL)
        return taps;
    const struct model_drafting *d = &n->taps->head->config.drafting;
    taps.n = d->n_taps;
    for (int i = 0; i < d->n_taps; i++)
        taps.layer[i] = d->tap[i];
    taps.to = n->taps->tapped;
    return taps;
}

static struct decode_common describe_common(const struct network *n, int l)
{
    const struct weight *const *w = n->layer[l];
    bool experts = n->config.layer[l].experts;
    return (struct decode_common){
        .in = w[experts ? WEIGHT_SHARED_IN : WEIGHT_MLP_IN],
        .out = w[experts ? WEIGHT_SHARED_OUT : WEIGHT_MLP_OUT],
        .gate = experts && n->config.experts.shared_gate ? w[WEIGHT_SHARED_GATE] : NULL,
    };
}

static struct decode_model describe_network(const struct network *n, const struct decode_layer *layer, bool several,
                                            enum dtype act)
{
    const struct model_config *m = &n->config;
    bool experts = m->experts.routing.n_experts > 0;
    return (struct decode_model){
        .n_layers = m->n_layers,
        .hidden = m->hidden,
        .ffn = experts ? 0 : range_length(n->shard.ffn),
        .gated = experts || m->gated_mlp,
        .mixture = experts,
        .several = several,
        .parallel = m->parallel_residual,
        .shared_norm = m->shared_norm,
        .activation = m->activation,
        .norm = m->norm,
        .norm_eps = m->norm_eps,
        .rope = m->position == POSITION_ROPE ? &m->rope : NULL,
        .window_rope = m->position == POSITION_ROPE && m->window_rope.dims > 0 ? &m->window_rope : NULL,
        .embed_scale = model_embed_scale(m, act),
        .embed = n->once[WEIGHT_EMBED],
        .position = m->position == POSITION_LEARNED ? n->once[WEIGHT_POSITION] : NULL,
        .first_id = n->shard.vocab.begin,
        .position_offset = m->position_offset,
        .final_norm = n->once[WEIGHT_FINAL_NORM],
        .final_norm_bias = n->once[WEIGHT_FINAL_NORM_BIAS],
        .head = network_head(n),
        .head_bias = n->once[WEIGHT_HEAD_BIAS],
        .layer = layer,
        .rank = n->shard.rank,
        .n_ranks = n->shard.n_ranks,
    };
}

static void free_model(struct persistent_model *p)
{
    if (p != NULL) {
        free((void *)p->router);
        free(p->common);
        free(p->latent);
    }
    free(p);
}

/* NULL and *e: there is no memory for it. */
static struct persistent_model *take_model(const struct network *n, struct err *e)
{
    size_t n_layers = (size_t)n->config.n_layers;
    struct persistent_model *p = err_calloc(e, 1, sizeof *p + n_layers * sizeof p->layer[0], "layer table");
    if (p == NULL)
        return NULL;
    p->router = err_calloc(e, 2 * n_layers, sizeof *p->router, "table of routers");
    p->common = err_calloc(e, n_layers, sizeof *p->common, "table of MLPs");
    p->latent = err_calloc(e, n_layers, sizeof *p->latent, "table of latents");
    if (p->router != NULL && p->common != NULL && p->latent != NULL)
        return p;
    free_model(p);
    return NULL;
}

static struct persistent_model *describe_all(const struct network *n, bool several, enum dtype act, struct err *e)
{
    const struct model_latent *latent = &n->config.latent;
    size_t n_layers = (size_t)n->config.n_layers;
    struct persistent_model *p = take_model(n, e);
    if (p == NULL)
        return NULL;
    for (size_t l = 0; l < n_layers; l++) {
        p->layer[l] = describe_layer(n, (int)l);
        p->router[l] = n->layer[l][WEIGHT_ROUTER];
        p->router[n_layers + l] = n->layer[l][WEIGHT_ROUTER_BIAS];
        p->common[l] = describe_common(n, (int)l);
        p->latent[l] = describe_latent(n, (int)l);
    }
    p->all = (struct decode_latent){
        .rank = latent->rank,
        .key = latent->key,
        .rotated = latent->rotated,
        .value = latent->value,
        .norm_eps = latent->norm_eps,
        .layer = p->latent,
    };
    p->all.mixture = (struct decode_mixture){
        .model = describe_network(n, p->layer, several, act),
        .routing = &n->config.experts.routing,
        .router = p->router,
        .router_bias = n->config.experts.router_bias ? p->router + n_layers : NULL,
        .common = p->common,
        .first_held = n->shard.experts.begin,
        .n_held = range_length(n->shard.experts),
        .expert_ffn = range_length(n->shard.expert_ffn),
        .taps = describe_taps(n),
    };
    return p;
}

/* Whether all ranks can run it. Collective. why: this rank's reason if it cannot, or NULL. */
static bool all_can(struct persistent_step *p, const char *why, const struct world *w)
{
    why = peers_agree(why, w);
    if (why != NULL)
        (void)snprintf(p->why_not, sizeof p->why_not, "%s", why);
    return why == NULL;
}

/* Gives every device the addresses of the others' memory for sums. */
static bool connect_ranks(struct persistent_step *p, const struct world *w, const struct ops *ops, struct queue *q)
{
    void *mine = ops->persistent->memory(p->step);
    p->place.memory[w->rank] = mine;
    const char *why = p->lent ? NULL : peers_open(&p->peers, mine, w, ops, q);
    if (why != NULL)
        (void)snprintf(p->why_not, sizeof p->why_not, "%s", why);
    else
        ops->persistent->attach(q, p->step, p->lent ? p->place.memory : p->peers.memory);
    return why == NULL;
}

int persistent_step_prepare(struct persistent_step *p, const struct network *n, const struct limits *l,
                            const struct world *w, const struct persistent_place *lent, const struct ops *ops,
                            struct queue *q, struct err *e)
{
    memset(p, 0, sizeof *p);
    const char *why = ops->persistent == NULL ? "the CPU backend" : refuse_network(n, w);
    p->several = l->max_drafts > 0 && is_plain(n);
    p->longest = n->config.latent.rank > 0 ? LATENT_LONGEST : 0;
    if (lent != NULL) {
        p->lent = true;
        p->place = *lent;
        why = why == NULL ? lent->why_not : why;
    }
    p->model = why == NULL ? describe_all(n, p->several, q->act, e) : NULL;
    if (p->model != NULL)
        why = ops->persistent->refusal(q, &p->model->all.mixture.model);
    else if (why == NULL)
        why = "too little memory";
    p->refused = why;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): there is a model where there is no reason */
    p->step = why == NULL ? ops->persistent->open(q, &p->model->all.mixture.model, p->place.memory[w->rank]) : NULL;
    if (q->err.code != ERR_NONE)
        ERR(e, q->err.code, "%s", q->err.text);
    return e->code == ERR_NONE ? 0 : -1;
}

/* Ranks agree, since shards differ and may fit into a multiprocessor on some ranks only. Collective. */
static int common_tokens(const struct persistent_step *p, const struct world *w, const struct ops *ops)
{
    int mine = ops->persistent->max_tokens(p->step), all = 0;
    MPI_CHECK(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, w->comm));
    return all;
}

void persistent_step_join(struct persistent_step *p, const struct world *w, const struct ops *ops, struct queue *q)
{
    if (all_can(p, p->refused, w)) {
        p->max_tokens = common_tokens(p, w, ops);
        if (p->max_tokens < 1)
            (void)snprintf(p->why_not, sizeof p->why_not, "more shared memory than the GPU has");
        else if (connect_ranks(p, w, ops, q))
            return;
    }
    if (p->step != NULL) {
        ops->wait(q);
        ops->persistent->close(q, p->step);
    }
    p->step = NULL;
    p->max_tokens = 0;
}

void persistent_step_close(struct persistent_step *p, const struct world *w, const struct ops *ops, struct queue *q)
{
    if (p->step != NULL) {
        if (p->peers.n_ranks > 0)
            peers_close(&p->peers, w, ops, q);
        ops->persistent->close(q, p->step);
    }
    free_model(p->model);
    memset(p, 0, sizeof *p);
}
