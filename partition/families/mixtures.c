/* partition/families/mixtures.c - see mixtures.h. */
#include "partition/families/mixtures.h"

#include <string.h>

static int read_count(const struct config *c, const char *keys, int missing, int high)
{
    return missing > 0 ? config_int(c, keys, missing, 1, high) : config_need_int(c, keys, 1, high);
}

void mixture_read(struct model_config *m, const struct config *c, const struct mixture_defaults *missing)
{
    struct routing *r = &m->experts.routing;
    *r = missing->routing;
    r->n_experts = read_count(c, "n_routed_experts|num_local_experts|num_experts", r->n_experts, CONFIG_MAX_EXPERTS);
    r->n_chosen = read_count(c, "num_experts_per_tok", r->n_chosen, CONFIG_MAX_EXPERTS);
    r->n_groups = config_int(c, "n_group", r->n_groups, 1, ROUTING_MAX_GROUPS);
    r->n_kept = config_int(c, "topk_group", r->n_kept, 1, ROUTING_MAX_GROUPS);
    r->normalised = config_bool(c, "norm_topk_prob", r->normalised && !config_is_null(c, "norm_topk_prob"));
    r->scale = (float)config_real(c, "routed_scaling_factor", r->scale, 0, 1e6);
    m->experts.router_bias = r->sigmoid;
    m->experts.ffn = config_int(c, "moe_intermediate_size", missing->ffn, 1, CONFIG_MAX_FFN / 16);
    m->experts.shared_ffn =
        m->experts.ffn * read_count(c, "n_shared_experts|num_shared_experts", missing->n_shared, 16);
    if (config_int(c, "moe_layer_freq", 1, 1, MODEL_MAX_LAYERS) != 1)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"moe_layer_freq\" is not 1, which is not implemented", c->what);
}

void mixture_read_first_dense(struct model_config *m, const struct config *c, int missing)
{
    for (int i = config_int(c, "first_k_dense_replace", missing, 0, MODEL_MAX_LAYERS); i < m->n_layers; i++)
        m->layer[i].experts = true;
}

void mixture_read_layer_types(struct model_config *m, const struct config *c, int n_dense)
{
    const json_t *types = json_object_get(c->json, "mlp_layer_types");
    bool listed = types != NULL && !json_is_null(types);
    if (listed && (!json_is_array(types) || json_array_size(types) != (size_t)m->n_layers)) {
        ERR(c->e, ERR_INPUT, "%s: \"mlp_layer_types\" is %s of %zu, expected an array of %d strings", c->what,
            json_type_name(types), json_array_size(types), m->n_layers);
        return;
    }
    for (int i = 0; i < m->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        m->layer[i].experts = listed ? type != NULL && strcmp(type, "sparse") == 0 : i >= n_dense;
        if (listed && (type == NULL || (strcmp(type, "sparse") != 0 && strcmp(type, "dense") != 0)))
            ERR(c->e, ERR_UNSUPPORTED, "%s: \"mlp_layer_types\"[%d] is \"%.60s\", expected dense or sparse", c->what, i,
                type != NULL ? type : "no string");
    }
}

enum { EXPERTS_APART = 1, EXPERTS_TOGETHER }; /* forms */

/* clang-format off */
const struct weight_source mixture_source[] = {
    LLAMA_AROUND,
    LLAMA_LAYER,
    LLAMA_SHARED_EXPERTS,
    LLAMA_CORRECTION,
    LLAMA_PREDICTING,
    {0},
};
/* clang-format on */
