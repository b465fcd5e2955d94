/* rank/model/latent.c - see latent.h. The cache has a token's latent and its rotated key, the same for all heads and
 * ranks. Keys and values of the heads are never computed: a query is multiplied by the transposed key matrix and
 * attends to the latents themselves; attention's output is multiplied by the value matrix. So all heads read one KV
 * head, whose keys are also its values. */
#include "rank/model/latent.h"

/* The queries of this rank's heads: [tokens, heads, key + rotated]. */
static void make_queries(const struct layer_run *r, const struct weight *const *w, const void *in)
{
    const struct model_config *m = &r->network->config;
    struct activations *a = r->act;
    int n = r->batch->n_tokens, rank = m->latent.query_rank;
    if (rank == 0) {
        r->ops->matmul(r->q, a->heads, in, w[WEIGHT_QUERY], NULL, n, false);
        return;
    }
    r->ops->matmul(r->q, a->query_latent, in, w[WEIGHT_QUERY_DOWN], w[WEIGHT_QUERY_DOWN_BIAS], n, false);
    r->ops->norm(r->q, a->query_latent, a->query_latent, NULL, NORM_RMS, w[WEIGHT_QUERY_NORM], NULL, n, rank,
                 m->latent.norm_eps);
    r->ops->matmul(r->q, a->heads, a->query_latent, w[WEIGHT_QUERY_UP], NULL, n, false);
}

void latent_attention(const struct layer_run *r, int layer, const void *in)
{
    const struct network *net = r->network;
    const struct model_config *m = &net->config;
    const struct model_latent *l = &m->latent;
    const struct weight *const *w = net->layer[layer];
    struct activations *a = r->act;
    struct heads heads = network_heads(net, layer);
    int n = r->batch->n_tokens, query_dim = l->key + l->rotated;
    struct head_rows query = {a->heads, heads.n_heads * query_dim, query_dim};
    struct head_rows absorbed = {a->qkv, (heads.n_heads + 2 * heads.n_kv_heads) * m->head_dim, m->head_dim};
    struct head_rows said = {a->attended, heads.n_heads * m->head_dim, m->head_dim};
    struct head_rows value = {a->heads, heads.n_heads * l->value, l->value};
    make_queries(r, w, in);
    r->ops->matmul(r->q, a->latent, in, w[WEIGHT_LATENT], w[WEIGHT_LATENT_BIAS], n, false);
    r->ops->matmul_heads(r->q, absorbed, query, w[WEIGHT_KEY_UP], heads.n_heads, n);
    r->ops->latent_store(r->q, a->qkv, a->heads, query_dim, a->latent, net->k_cache[layer], &heads,
                         layer_batch(r, layer), &m->rope, a->cos_sin, w[WEIGHT_LATENT_NORM], l->norm_eps);
    r->ops->attention(r->q, a->attended, a->qkv, net->k_cache[layer], net->v_cache[layer], &heads,
                      layer_batch(r, layer));
    r->ops->matmul_heads(r->q, value, said, w[WEIGHT_VALUE_UP], heads.n_heads, n);
}
