/* rank/model/layer.c - see layer.h. Every family is one of three shapes:
 *
 *   sequential  x += attn(norm x);  x += mlp(norm x)                 two all-reduces
 *   post-norm   x = norm(x + attn x);  x = norm(x + mlp x)           two all-reduces, before the norms
 *   parallel    x += attn(norm x) + mlp(norm' x)                     one all-reduce
 *
 * Some sequential families also, or only, normalise the outputs: x += norm(attn(norm' x)), x += norm(attn x).
 *
 * In a step of many tokens all but attention itself is done with one piece of the rows after the other (piece.h): first
 * the last products of attention or MLP of all pieces, then all that follows of the first piece while the sums of later
 * ones are under way. */
#include "rank/model/layer.h"
#include "kernels/adding.h"
#include "kernels/inputs.h"
#include "rank/model/latent.h"
#include "rank/model/piece.h"

_Static_assert(WEIGHT_ATTN_NORM_BIAS == WEIGHT_ATTN_NORM + 1 && WEIGHT_MLP_NORM_BIAS == WEIGHT_MLP_NORM + 1,
               "a norm's bias follows its weight");

static void norm(const struct layer_run *r, int layer, enum weight_id id, void *out, const void *add)
{
    const struct model_config *m = &r->network->config;
    const struct weight *const *w = r->network->layer[layer];
    r->ops->norm(r->q, out, r->act->x, add, m->norm, w[id], w[id + 1], r->batch->n_tokens, m->hidden, m->norm_eps);
}

const void *layer_inputs(const struct layer_run *r, const void *in, const struct weight *w, int n_rows)
{
    const struct input_form *f = w->inputs;
    struct activations *a = r->act;
    if (f == NULL || r->ops->inputs->quantise == NULL)
        return in;
    if (f->scale == 0)
        r->ops->inputs->find_largest(r->q, a->largest, in, f, n_rows, w->cols);
    if (f->scale == 0 && f->shared)
        comm_all_reduce_largest(r->comm, r->q, a->largest, (size_t)n_rows * (size_t)f->n_groups);
    r->ops->inputs->quantise(r->q, a->coded, in, a->largest, f, n_rows, w->cols);
    return a->coded;
}

void layer_product(const struct layer_run *r, void *out, const void *in, const struct weight *w,
                   const struct weight *bias, int n, bool accumulate)
{
    if (w->order != NULL) {
        r->ops->gather_columns(r->q, r->act->ordered, in, w->order, n, w->n_inputs, w->cols);
        in = r->act->ordered;
    }
    r->ops->matmul(r->q, out, layer_inputs(r, in, w, n), w, bias, n, accumulate);
}

/* The sums of squares of all q and all k heads of the model; a KV head shared by ranks counts once, on the rank of its
 * first query head. */
static void sum_squares(const struct layer_run *r, const struct heads *heads)
{
    const struct shard *s = &r->network->shard;
    int per_kv = heads->heads_per_kv, n = r->batch->n_tokens;
    struct kv_range own = {0, 0};
    if (heads->n_heads > 0)
        own = (struct kv_range){(s->heads.begin + per_kv - 1) / per_kv - s->kv_heads.begin,
                                (s->heads.end + per_kv - 1) / per_kv - s->kv_heads.begin};
    r->ops->head_squares(r->q, r->act->squares, r->act->qkv, heads, own, n);
    comm_all_reduce_floats(r->comm, r->q, r->act->squares, 2 * (size_t)n);
}

/* Attends with q, k and v as projected in act->qkv: normalises and rotates them, and stores k and v in the cache. */
static void attend(const struct layer_run *r, int layer, const struct heads *heads)
{
    const struct network *n = r->network;
    const struct model_config *m = &n->config;
    const struct weight *const *w = n->layer[layer];
    struct activations *a = r->act;
    void *k_cache = n->k_cache[layer], *v_cache = n->v_cache[layer];
    const struct batch *batch = layer_batch(r, layer);
    const struct rope *rope = model_rope(m, layer);
    const float *cos_sin = rope == &m->window_rope ? a->window_cos_sin : a->cos_sin;
    const struct head_norms norms = {.q = w[WEIGHT_Q_NORM],
                                     .k = w[WEIGHT_K_NORM],
                                     .unit = m->qk_norm_unit && !m->layer[layer].unrotated,
                                     .rotated = m->qk_norm_rotated,
                                     .kind = m->norm,
                                     .eps = m->norm_eps,
                                     .squares = m->qk_norm_row ? a->squares : NULL,
                                     .n_q = m->n_heads * m->head_dim,
                                     .n_k = m->n_kv_heads * m->head_dim};
    if (m->qk_norm_row)
        sum_squares(r, heads);
    if (r->ops->store_and_attend(r->q, a->attended, a->qkv, k_cache, v_cache, heads, batch, rope, cos_sin, &norms))
        return;
    r->ops->qkv_store(r->q, a->qkv, k_cache, v_cache, heads, batch, rope, cos_sin, &norms);
    r->ops->attention(r->q, a->attended, a->qkv, k_cache, v_cache, heads, batch);
}

/* Does the product with w take inputs that the operation before it has quantised (kernels/inputs.h)? */
static bool takes_left_inputs(const struct layer_run *r, const struct weight *w, const struct weight *bias)
{
    return w->inputs != NULL && r->ops->inputs->norm != NULL && (bias == NULL || bias->type == r->q->act);
}

/* Computes the activation with quantised results for the MLP's second product; false: nothing was done. */
static bool activate_quantised(const struct layer_run *r, int layer)
{
    const struct model_config *m = &r->network->config;
    const struct weight *const *w = r->network->layer[layer];
    return m->gated_mlp && takes_left_inputs(r, w[WEIGHT_MLP_OUT], w[WEIGHT_MLP_OUT_BIAS]) &&
           r->ops->inputs->activate(r->q, w[WEIGHT_MLP_OUT], r->act->mlp, m->activation, r->batch->n_tokens);
}

/* The first product of a gated MLP and its activation as one operation; false: nothing was done. */
static bool gated_at_once(const struct layer_run *r, const void *in, const struct weight *w, const struct weight *bias)
{
    const struct model_config *m = &r->network->config;
    return m->gated_mlp && bias == NULL && w->order == NULL &&
           r->ops->gated_product(r->q, r->act->activated, in, w, m->activation, r->batch->n_tokens);
}

static void activate(const struct layer_run *r, int layer)
{
    const struct model_config *m = &r->network->config;
    const struct activations *a = r->act;
    int n = r->batch->n_tokens, columns = range_length(r->network->shard.ffn);
    if (m->activation == ACTIVATION_XIELU)
        r->ops->xielu(r->q, a->activated, a->mlp, m->layer[layer].xielu, n, columns);
    else
        r->ops->activate(r->q, a->activated, a->mlp, m->activation, m->gated_mlp, n, columns);
}

/* to (+)= this rank's share of the dense MLP's output */
static void dense(const struct layer_run *r, int layer, const void *in, void *to, bool accumulate)
{
    const struct weight *const *w = r->network->layer[layer];
    struct activations *a = r->act;
    int n = r->batch->n_tokens;
    if (!gated_at_once(r, in, w[WEIGHT_MLP_IN], w[WEIGHT_MLP_IN_BIAS])) {
        layer_product(r, a->mlp, in, w[WEIGHT_MLP_IN], w[WEIGHT_MLP_IN_BIAS], n, false);
        if (activate_quantised(r, layer)) {
            layer_product(r, to, NULL, w[WEIGHT_MLP_OUT], w[WEIGHT_MLP_OUT_BIAS], n, accumulate);
            return;
        }
        activate(r, layer);
    }
    layer_product(r, to, a->activated, w[WEIGHT_MLP_OUT], w[WEIGHT_MLP_OUT_BIAS], n, accumulate);
}

/* partial (+)= this rank's share of the chosen experts' outputs for each token: of those on this rank, or of its
 * columns of every expert. On GPUs the first product may read its input before the operation before it is done: that is
 * the router, which has read it, too, unless the input is weighed or reordered (products/experts_few.cu). */
static void chosen_experts(const struct layer_run *r, int layer, const void *in, bool accumulate)
{
    const struct model_config *m = &r->network->config;
    const struct routing *how = &m->experts.routing;
    const struct weight *const *w = r->network->layer[layer];
    struct activations *a = r->act;
    int n = r->batch->n_tokens;
    r->ops->route(r->q, &a->routes, in, w[WEIGHT_ROUTER], w[WEIGHT_ROUTER_BIAS], how, n);
    if (how->of_input) { /* `said` is free until the second product */
        r->ops->weigh_input(r->q, a->said, in, &a->routes, n, m->hidden);
        in = a->said;
    }
    in = layer_inputs(r, in, w[WEIGHT_EXPERTS_IN], n);
    r->ops->experts_first(r->q, a->activated, in, w[WEIGHT_EXPERTS_IN], w[WEIGHT_EXPERTS_IN_BIAS], &a->routes, how,
                          m->activation, a->mlp, n);
    in = layer_inputs(r, a->activated, w[WEIGHT_EXPERTS_OUT], n * how->n_chosen);
    r->ops->experts_second(r->q, a->partial, in, w[WEIGHT_EXPERTS_OUT], w[WEIGHT_EXPERTS_OUT_BIAS], &a->routes, how,
                           a->said, n, m->hidden, accumulate);
}

/* partial += this rank's share of the shared expert's output. Its gate multiplies the whole sum, and so every rank's
 * part of it. */
static void shared(const struct layer_run *r, int layer, const void *in)
{
    const struct model_config *m = &r->network->config;
    const struct weight *const *w = r->network->layer[layer];
    struct activations *a = r->act;
    int n = r->batch->n_tokens, columns = range_length(r->network->shard.shared_ffn);
    if (!gated_at_once(r, in, w[WEIGHT_SHARED_IN], NULL)) {
        layer_product(r, a->mlp, in, w[WEIGHT_SHARED_IN], NULL, n, false);
        r->ops->activate(r->q, a->activated, a->mlp, m->activation, true, n, columns);
    }
    if (m->experts.shared_gate)
        r->ops->gate(r->q, a->activated, in, w[WEIGHT_SHARED_GATE], n, columns);
    layer_product(r, a->partial, a->activated, w[WEIGHT_SHARED_OUT], NULL, n, true);
}

/* to (+)= this rank's share of mlp(in); of experts: partial */
static void mlp(const struct layer_run *r, int layer, const void *in, void *to, bool accumulate)
{
    const struct model_config *m = &r->network->config;
    if (!m->layer[layer].experts) {
        dense(r, layer, in, to, accumulate);
        return;
    }
    chosen_experts(r, layer, in, accumulate);
    if (m->experts.shared_ffn > 0)
        shared(r, layer, in);
}

/* The place of the results of w, the last product of attention or MLP: act->x if they can be added to the residual
 * right away at no cost and no other rank's have to be added first; otherwise act->partial. w NULL: that, too. */
static void *result_place(const struct layer_run *r, const struct weight *w)
{
    const struct model_config *m = &r->network->config;
    bool plain = r->comm->n_ranks == 1 && !m->output_norms && !(m->residual_scale > 0);
    bool added = plain && w != NULL && adds_at_no_cost(r->ops, r->q, w, r->batch->n_tokens);
    return added ? r->act->x : r->act->partial;
}

/* Computes the norm before attention or MLP with quantised results for their first product; false: nothing was done. */
static bool norm_quantised(const struct layer_run *r, int layer, enum weight_id id, const void *pending)
{
    const struct model_config *m = &r->network->config;
    const struct weight *const *w = r->network->layer[layer];
    bool attention = id == WEIGHT_ATTN_NORM;
    enum weight_id product = attention ? WEIGHT_QKV : WEIGHT_MLP_IN;
    enum weight_id bias = attention ? WEIGHT_QKV_BIAS : WEIGHT_MLP_IN_BIAS;
    if (m->residual_is_normed || (attention ? m->latent.rank > 0 : m->layer[layer].experts) ||
        !takes_left_inputs(r, w[product], w[bias]))
        return false;
    return r->ops->inputs->norm(r->q, w[product], r->act->x, pending, m->norm, w[id], w[id + 1], r->batch->n_tokens,
                                m->norm_eps);
}

/* The input of attention or MLP: the residual after the pending sum, normalised unless the model has no such norm; for
 * an EAGLE-3 head's attention, embedding and state. NULL: the first product's inputs have been quantised. */
static const void *input(const struct layer_run *r, int layer, enum weight_id id, const void *pending)
{
    const struct model_config *m = &r->network->config;
    if (model_is_eagle(m) && id == WEIGHT_ATTN_NORM)
        return r->act->joined;
    /* Normalising in place makes the normalised value the residual, as BLOOM's flag requires. */
    void *normed = m->residual_is_normed ? r->act->x : r->act->normed;
    if (!m->no_input_norms && norm_quantised(r, layer, id, pending))
        return NULL;
    if (!m->no_input_norms) {
        norm(r, layer, id, normed, pending);
        return normed;
    }
    if (pending != NULL)
        r->ops->add(r->q, r->act->x, pending, (size_t)r->batch->n_tokens * (size_t)m->hidden);
    return r->act->x;
}

/* Does the model change a sum before it is added to the residual? */
static bool changes_sums(const struct model_config *m)
{
    return m->output_norms || m->residual_scale > 0;
}

/* The sum of the ranks' outputs for the piece, as it is added to the residual; id: its norm, if the model has one.
 * NULL: the residual has it already. */
static const void *end_sum(const struct piece *p, int layer, enum weight_id id, void *sum)
{
    const struct layer_run *r = &p->run;
    const struct model_config *m = &r->network->config;
    const struct weight *w = r->network->layer[layer][id];
    int n = p->batch.n_tokens;
    comm_end_sum(r->comm, r->q, p->index);
    if (sum == p->act.x)
        return NULL;
    if (m->output_norms)
        r->ops->norm(r->q, sum, sum, NULL, m->norm, w, NULL, n, m->hidden, m->norm_eps);
    if (m->residual_scale > 0)
        r->ops->scale(r->q, sum, m->residual_scale, 0, (size_t)n * (size_t)m->hidden);
    return sum;
}

/* The input of the piece's attention, after `pending`, the piece's of the layer before. */
static const void *attention_input(const struct layer_run *r, int layer, const void *pending)
{
    const struct model_config *m = &r->network->config;
    if (m->post_norm)
        return r->act->x;
    if (!m->parallel_residual)
        return input(r, layer, WEIGHT_ATTN_NORM, pending);
    norm(r, layer, WEIGHT_ATTN_NORM, r->act->normed, pending);
    return r->act->normed;
}

/* Attention up to the last product's inputs. */
static void attention(const struct layer_run *r, int layer, const void *pending)
{
    const struct weight *const *w = r->network->layer[layer];
    const bool latent = r->network->config.latent.rank > 0;
    const struct heads heads = network_heads(r->network, layer);
    const void *first = NULL;
    for (int i = 0; i < r->n_pieces; i++) {
        struct piece p;
        piece_take(&p, r, layer, i);
        comm_end_sum(r->comm, r->q, i);
        const void *in = attention_input(&p.run, layer, pending != NULL ? p.act.partial : NULL);
        first = i == 0 ? in : first;
        if (!latent)
            layer_product(&p.run, p.act.qkv, in, w[WEIGHT_QKV], w[WEIGHT_QKV_BIAS], p.batch.n_tokens, false);
    }
    if (latent)
        latent_attention(r, layer, first);
    else
        attend(r, layer, &heads);
}

/* to = this rank's share of the piece's attention; to act->x, the residual, it is added */
static void end_attention(const struct piece *p, int layer, void *to)
{
    const struct weight *const *w = p->run.network->layer[layer];
    layer_product(&p->run, to, p->attended, w[WEIGHT_OUT], w[WEIGHT_OUT_BIAS], p->batch.n_tokens, to == p->act.x);
}

/* Begins the sums of the ranks' attention outputs. */
static void summed_attention(const struct layer_run *r, int layer, const void *pending)
{
    attention(r, layer, pending);
    for (int i = 0; i < r->n_pieces; i++) {
        struct piece p;
        piece_take(&p, r, layer, i);
        void *to = result_place(&p.run, r->network->layer[layer][WEIGHT_OUT]);
        end_attention(&p, layer, to);
        piece_begin_sum(&p, to);
    }
}

/* The input of the piece's MLP, after the sum of attention's outputs. */
static const void *mlp_input(const struct piece *p, int layer)
{
    const struct layer_run *r = &p->run;
    void *to = result_place(r, r->network->layer[layer][WEIGHT_OUT]);
    const void *sum = end_sum(p, layer, WEIGHT_ATTN_OUT_NORM, to);
    if (!r->network->config.post_norm)
        return input(r, layer, WEIGHT_MLP_NORM, sum);
    norm(r, layer, WEIGHT_ATTN_NORM, p->act.x, sum);
    return p->act.x;
}

/* The place of an MLP's results. */
static void *mlp_place(const struct layer_run *r, int layer)
{
    bool experts = r->network->config.layer[layer].experts;
    return result_place(r, experts ? NULL : r->network->layer[layer][WEIGHT_MLP_OUT]);
}

/* Begins the sums of the experts' outputs. Experts take all rows at once: each piece would read most of them again. */
static void summed_experts(const struct layer_run *r, int layer)
{
    const void *first = NULL;
    struct piece p;
    for (int i = 0; i < r->n_pieces; i++) {
        piece_take(&p, r, layer, i);
        const void *in = mlp_input(&p, layer);
        first = i == 0 ? in : first;
    }
    mlp(r, layer, first, r->act->partial, false);
    for (int i = 0; i < r->n_pieces; i++) {
        piece_take(&p, r, layer, i);
        piece_begin_sum(&p, p.act.partial);
    }
}

/* Begins the sums of the MLP's outputs. */
static void summed_mlp(const struct layer_run *r, int layer)
{
    if (r->network->config.layer[layer].experts) {
        summed_experts(r, layer);
        return;
    }
    for (int i = 0; i < r->n_pieces; i++) {
        struct piece p;
        piece_take(&p, r, layer, i);
        const void *in = mlp_input(&p, layer);
        void *to = mlp_place(&p.run, layer);
        mlp(&p.run, layer, in, to, to == p.act.x);
        piece_begin_sum(&p, to);
    }
}

/* The same with attention's outputs in the sums. */
static void parallel_sums(const struct layer_run *r, int layer, const void *pending)
{
    const bool shared_norm = r->network->config.shared_norm;
    attention(r, layer, pending);
    for (int i = 0; i < r->n_pieces; i++) {
        struct piece p;
        piece_take(&p, r, layer, i);
        end_attention(&p, layer, p.act.partial);
        if (!shared_norm)
            norm(&p.run, layer, WEIGHT_MLP_NORM, p.act.normed, NULL);
        mlp(&p.run, layer, p.act.normed, p.act.partial, true);
        piece_begin_sum(&p, p.act.partial);
    }
}

/* Ends the layer's sums if more follows them than the next layer's first norm. */
static void end_layer(const struct layer_run *r, int layer)
{
    const struct model_config *m = &r->network->config;
    for (int i = 0; i < r->n_pieces && (m->post_norm || changes_sums(m)); i++) {
        struct piece p;
        piece_take(&p, r, layer, i);
        const void *sum = end_sum(&p, layer, WEIGHT_MLP_OUT_NORM, mlp_place(&p.run, layer));
        if (m->post_norm)
            norm(&p.run, layer, WEIGHT_MLP_NORM, p.act.x, sum);
    }
}

const void *layer_forward(const struct layer_run *r, int layer, const void *pending)
{
    const struct model_config *m = &r->network->config;
    if (m->parallel_residual) {
        parallel_sums(r, layer, pending);
    } else {
        summed_attention(r, layer, pending);
        summed_mlp(r, layer);
    }
    end_layer(r, layer);
    bool added = m->post_norm || (!m->parallel_residual && mlp_place(r, layer) == r->act->x);
    return added ? NULL : r->act->partial;
}
