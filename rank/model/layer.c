/* rank/model/layer.c - see layer.h. Every family is one of three shapes:
 *
 *   sequential  x += attn(norm x);  x += mlp(norm x)                 two all-reduces
 *   post-norm   x = norm(x + attn x);  x = norm(x + mlp x)           two all-reduces, before the norms
 *   parallel    x += attn(norm x) + mlp(norm' x)                     one all-reduce
 */
#include "rank/model/layer.h"

_Static_assert(WEIGHT_ATTN_NORM_BIAS == WEIGHT_ATTN_NORM + 1 && WEIGHT_MLP_NORM_BIAS == WEIGHT_MLP_NORM + 1,
               "a norm's bias follows its weight");

static void norm(const struct layer_run *r, int layer, enum weight_id id, void *out, const void *add)
{
    const struct model_config *m = &r->network->config;
    const struct weight *const *w = r->network->layer[layer];
    r->ops->norm(r->q, out, r->act->x, add, m->norm, w[id], w[id + 1], r->batch->n_tokens, m->hidden, m->norm_eps);
}

/* partial = this rank's share of attn(in) */
static void attention(const struct layer_run *r, int layer, const void *in)
{
    const struct model_config *m = &r->network->config;
    const struct weight *const *w = r->network->layer[layer];
    struct activations *a = r->act;
    struct heads heads = network_heads(r->network, layer);
    void *k_cache = r->network->k_cache[layer], *v_cache = r->network->v_cache[layer];
    int n = r->batch->n_tokens;
    r->ops->matmul(r->q, a->qkv, in, w[WEIGHT_QKV], w[WEIGHT_QKV_BIAS], n, false);
    r->ops->qkv_store(r->q, a->qkv, k_cache, v_cache, &heads, r->batch, m->position == POSITION_ROPE ? &m->rope : NULL,
                      a->cos_sin, w[WEIGHT_Q_NORM], w[WEIGHT_K_NORM], m->norm_eps);
    r->ops->attention(r->q, a->attended, a->qkv, k_cache, v_cache, &heads, r->batch);
    r->ops->matmul(r->q, a->partial, a->attended, w[WEIGHT_OUT], w[WEIGHT_OUT_BIAS], n, false);
}

/* partial (+)= this rank's share of mlp(in) */
static void mlp(const struct layer_run *r, int layer, const void *in, bool accumulate)
{
    const struct model_config *m = &r->network->config;
    const struct weight *const *w = r->network->layer[layer];
    struct activations *a = r->act;
    int n = r->batch->n_tokens;
    r->ops->matmul(r->q, a->mlp, in, w[WEIGHT_MLP_IN], w[WEIGHT_MLP_IN_BIAS], n, false);
    r->ops->activate(r->q, a->activated, a->mlp, m->activation, m->gated_mlp, n, range_length(r->network->shard.ffn));
    r->ops->matmul(r->q, a->partial, a->activated, w[WEIGHT_MLP_OUT], w[WEIGHT_MLP_OUT_BIAS], n, accumulate);
}

static const void *reduce(const struct layer_run *r)
{
    comm_all_reduce(r->comm, r->q, r->act->partial, (size_t)r->batch->n_tokens * (size_t)r->network->config.hidden);
    return r->act->partial;
}

static const void *parallel_layer(const struct layer_run *r, int layer, const void *pending)
{
    void *normed = r->act->normed;
    norm(r, layer, WEIGHT_ATTN_NORM, normed, pending);
    attention(r, layer, normed);
    if (!r->network->config.shared_norm)
        norm(r, layer, WEIGHT_MLP_NORM, normed, NULL);
    mlp(r, layer, normed, true);
    return reduce(r);
}

static const void *post_norm_layer(const struct layer_run *r, int layer)
{
    void *x = r->act->x;
    attention(r, layer, x);
    norm(r, layer, WEIGHT_ATTN_NORM, x, reduce(r));
    mlp(r, layer, x, false);
    norm(r, layer, WEIGHT_MLP_NORM, x, reduce(r));
    return NULL;
}

static const void *sequential_layer(const struct layer_run *r, int layer, const void *pending)
{
    /* Norming in place makes the normed value the residual, as BLOOM's flag wants. */
    void *normed = r->network->config.residual_is_normed ? r->act->x : r->act->normed;
    norm(r, layer, WEIGHT_ATTN_NORM, normed, pending);
    attention(r, layer, normed);
    norm(r, layer, WEIGHT_MLP_NORM, normed, reduce(r));
    mlp(r, layer, normed, false);
    return reduce(r);
}

const void *layer_forward(const struct layer_run *r, int layer, const void *pending)
{
    if (r->network->config.parallel_residual)
        return parallel_layer(r, layer, pending);
    if (r->network->config.post_norm)
        return post_norm_layer(r, layer);
    return sequential_layer(r, layer, pending);
}
