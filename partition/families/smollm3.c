/* partition/families/smollm3.c - SmolLM3: Llama in which every fourth layer does not rotate. */
#include "partition/families/llama.h"

/* "no_rope_layers" has a 1 for each layer that rotates. */
static void read_rotations(struct model_config *m, const struct config *c)
{
    const json_t *rotates = json_object_get(c->json, "no_rope_layers");
    int interval = config_int(c, "no_rope_layer_interval", 4, 1, MODEL_MAX_LAYERS);
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].unrotated = (i + 1) % interval == 0;
    if (rotates == NULL || json_is_null(rotates))
        return;
    if (!json_is_array(rotates) || json_array_size(rotates) != (size_t)m->n_layers) {
        ERR(c->e, ERR_INPUT, "%s: \"no_rope_layers\" is %s of %zu, expected an array of %d integers", c->what,
            json_type_name(rotates), json_array_size(rotates), m->n_layers);
        return;
    }
    for (int i = 0; i < m->n_layers; i++) {
        const json_t *one = json_array_get(rotates, (size_t)i);
        if (!json_is_integer(one))
            ERR(c->e, ERR_INPUT, "%s: \"no_rope_layers\"[%d] is %s, expected 1 or 0", c->what, i, json_type_name(one));
        m->layer[i].unrotated = json_integer_value(one) == 0;
    }
}

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 36,
                                                .hidden = 2048,
                                                .n_heads = 16,
                                                .n_kv_heads = 4,
                                                .vocab = 128256,
                                                .ffn = 11008,
                                                .max_positions = 32768};
    static const struct rope_keys rope = {"rope_theta", 2e6, NULL, 1, ROPE_NAMES};
    llama_read(m, c, &missing, &rope);
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    m->mlp_bias = config_bool(c, "mlp_bias", false);
    m->tied_head = config_bool(c, "tie_word_embeddings", true);
    read_rotations(m, c);
    if (!config_bool(c, "use_sliding_window", false))
        return;
    int window = config_int(c, "sliding_window", 0, 1, CONFIG_MAX_POSITIONS);
    llama_read_windows(m, c, 0, 0);
    for (int i = 0; i < m->n_layers && !config_has(c, "layer_types"); i++)
        m->layer[i].window = m->layer[i].unrotated ? window : 0;
}

const struct family family_smollm3 = {"smollm3",    "SmolLM3For",  "model.",      config,
                                      llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
