/* partition/families/ministral3.c - Ministral 3: Mistral whose queries grow with their position; and the language model
 * of Mistral 3 folders (Mistral Small 3.1 and later, Ministral 3), which is Ministral 3 or Mistral. */
#include "partition/families/llama.h"

#include <string.h>

/* The class default of the rotation, where the config says nothing of it. */
static json_t *default_rope(void)
{
    return json_pack("{s:s, s:f, s:f, s:i, s:f, s:f, s:f, s:f, s:f}", "rope_type", "yarn", "rope_theta", 1e6, "factor",
                     16.0, "original_max_position_embeddings", 16384, "beta_fast", 32.0, "beta_slow", 1.0, "mscale",
                     1.0, "mscale_all_dim", 1.0, "llama_4_scaling_beta", 0.1);
}

static void read_growth(struct rope *rope, const struct config *c)
{
    const struct config p = {json_object_get(c->json, rope_key(c)), c->what, c->e};
    rope->query_growth = (float)config_real(&p, "llama_4_scaling_beta", 0, 0, 1e6);
    if (rope->query_growth > 0)
        rope->query_period = config_need_int(&p, "original_max_position_embeddings", 1, CONFIG_MAX_POSITIONS);
}

static void config_ministral3(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 34,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .n_kv_heads = 8,
                                                .head_dim = 128,
                                                .vocab = 131072,
                                                .ffn = 14336,
                                                .max_positions = 262144,
                                                .norm_eps = 1e-5f};
    struct config filled = *c;
    json_t *json = json_copy((json_t *)c->json);
    if (!rope_is_there(c))
        (void)json_object_set_new(json, "rope_parameters", default_rope());
    filled.json = json;
    llama_read(m, &filled, &missing, &llama_rope);
    read_growth(&m->rope, &filled);
    json_decref(json);
    for (int i = 0, window = config_int(c, "sliding_window", 0, 1, CONFIG_MAX_POSITIONS); i < m->n_layers; i++)
        m->layer[i].window = window;
}

static void config_mistral3(struct model_config *m, const struct config *c)
{
    const char *type = json_get_string(c->json, "model_type", "mistral", c->what, c->e);
    if (strcmp(type, "ministral3") == 0)
        config_ministral3(m, c);
    else if (strcmp(type, "mistral") == 0)
        family_mistral.config(m, c);
    else
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"model_type\" is \"%.60s\", expected mistral or ministral3", c->what, type);
}

const struct family family_ministral3 = {"ministral3", "Ministral3For", "model.",      config_ministral3,
                                         llama_source, llama_outside,   llama_ignored, NOT_WRAPPED};
const struct family family_mistral3 = {"mistral3",   "Mistral3For", "model.",       config_mistral3,
                                       llama_source, llama_outside, llama_pictures, WRAPPED};
