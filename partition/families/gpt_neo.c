/* partition/families/gpt_neo.c - GPT-Neo: GPT-2 with q, k and v apart and without bias, scores that are not scaled, and
 * a window in every second layer. */
#include "partition/families.h"

/* "attention_types": [[["global", "local"], 12]] gives sequences of layer types and how often each is repeated. */
static void read_windows(struct model_config *m, const struct config *c)
{
    static const char fallback[] = "[[[\"global\",\"local\"],12]]";
    json_t *own = config_has(c, "attention_types") ? NULL : json_loads(fallback, 0, NULL);
    const json_t *types = own != NULL ? own : json_object_get(c->json, "attention_types"), *run, *kind;
    int window = config_int(c, "window_size", 256, 1, CONFIG_MAX_POSITIONS), n = 0;
    size_t i, k;
    json_array_foreach(types, i, run)
    {
        const json_t *kinds = json_array_get(run, 0);
        for (json_int_t times = json_integer_value(json_array_get(run, 1)); times > 0 && n <= m->n_layers; times--)
            json_array_foreach(kinds, k, kind)
            {
                const char *name = json_string_value(kind);
                if (name == NULL || (strcmp(name, "local") != 0 && strcmp(name, "global") != 0))
                    ERR(c->e, ERR_UNSUPPORTED, "%s: \"attention_types\" has \"%.60s\", expected local or global",
                        c->what, name != NULL ? name : "no string");
                else if (n < m->n_layers && strcmp(name, "local") == 0)
                    m->layer[n].window = window;
                n++;
            }
    }
    json_decref(own);
    if (n != m->n_layers)
        ERR(c->e, ERR_INPUT, "%s: \"attention_types\" is of %s%d layers, expected %d", c->what,
            n > m->n_layers ? "at least " : "", n, m->n_layers);
}

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 24, .hidden = 2048, .n_heads = 16, .vocab = 50257};
    config_sizes(m, c, &missing);
    config_divide_heads(m, c);
    m->ffn = config_int(c, "intermediate_size", 4 * m->hidden, 1, CONFIG_MAX_FFN);
    m->max_positions = config_int(c, "max_position_embeddings", 2048, 1, CONFIG_MAX_POSITIONS);
    m->positions_end = true;
    m->norm = NORM_LAYER;
    m->norm_eps = (float)config_real(c, "layer_norm_epsilon", 1e-5, 0, 1);
    m->activation = config_activation(c, "activation_function", ACTIVATION_GELU_TANH);
    m->final_norm = m->norm_affine = m->norm_bias = true;
    m->out_bias = m->mlp_bias = true;
    m->tied_head = config_bool(c, "tie_word_embeddings", true);
    m->attention_scale = 1;
    m->position = POSITION_LEARNED;
    read_windows(m, c);
}

static const struct weight_source source[] = {
    {WEIGHT_EMBED, PART_WHOLE, "wte.weight", false, 0},
    {WEIGHT_POSITION, PART_WHOLE, "wpe.weight", false, 0},
    {WEIGHT_FINAL_NORM, PART_WHOLE, "ln_f.weight", false, 0},
    {WEIGHT_FINAL_NORM_BIAS, PART_WHOLE, "ln_f.bias", false, 0},
    {WEIGHT_HEAD, PART_WHOLE, "lm_head.weight", false, 0},
    {WEIGHT_ATTN_NORM, PART_WHOLE, "h.%d.ln_1.weight", false, 0},
    {WEIGHT_ATTN_NORM_BIAS, PART_WHOLE, "h.%d.ln_1.bias", false, 0},
    {WEIGHT_QKV, PART_Q, "h.%d.attn.attention.q_proj.weight", false, 0},
    {WEIGHT_QKV, PART_K, "h.%d.attn.attention.k_proj.weight", false, 0},
    {WEIGHT_QKV, PART_V, "h.%d.attn.attention.v_proj.weight", false, 0},
    {WEIGHT_OUT, PART_WHOLE, "h.%d.attn.attention.out_proj.weight", false, 0},
    {WEIGHT_OUT_BIAS, PART_WHOLE, "h.%d.attn.attention.out_proj.bias", false, 0},
    {WEIGHT_MLP_NORM, PART_WHOLE, "h.%d.ln_2.weight", false, 0},
    {WEIGHT_MLP_NORM_BIAS, PART_WHOLE, "h.%d.ln_2.bias", false, 0},
    {WEIGHT_MLP_IN, PART_WHOLE, "h.%d.mlp.c_fc.weight", false, 0},
    {WEIGHT_MLP_IN_BIAS, PART_WHOLE, "h.%d.mlp.c_fc.bias", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "h.%d.mlp.c_proj.weight", false, 0},
    {WEIGHT_MLP_OUT_BIAS, PART_WHOLE, "h.%d.mlp.c_proj.bias", false, 0},
    {0},
};
static const char *const outside[] = {"lm_head.weight", NULL};
static const char *const ignored[] = {".attn.attention.bias", ".attn.attention.masked_bias", NULL};

const struct family family_gpt_neo = {"gpt_neo", "GPTNeoForC", "transformer.", config,
                                      source,    outside,      ignored,        NOT_WRAPPED};
