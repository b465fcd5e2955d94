/* partition/config.c - see config.h. */
#include "partition/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The first of the keys "a|b|c" that is present and not null, copied to `key`; without any, the first one. */
static bool choose_key(const struct config *c, const char *keys, char *key, size_t key_bytes)
{
    for (const char *from = keys;;) {
        size_t n = strcspn(from, "|");
        (void)snprintf(key, key_bytes, "%.*s", (int)n, from);
        if (config_has(c, key))
            return true;
        if (from[n] == '\0')
            break;
        from += n + 1;
    }
    (void)snprintf(key, key_bytes, "%.*s", (int)strcspn(keys, "|"), keys);
    return false;
}

bool config_has(const struct config *c, const char *key)
{
    const json_t *value = json_object_get(c->json, key);
    return value != NULL && !json_is_null(value);
}

bool config_is_null(const struct config *c, const char *key)
{
    return json_is_null(json_object_get(c->json, key));
}

int config_int(const struct config *c, const char *keys, int missing, int low, int high)
{
    char key[64];
    (void)choose_key(c, keys, key, sizeof key);
    return (int)json_get_int(c->json, key, missing, low, high, c->what, c->e);
}

double config_real(const struct config *c, const char *keys, double missing, double low, double high)
{
    char key[64];
    (void)choose_key(c, keys, key, sizeof key);
    return json_get_real(c->json, key, missing, low, high, c->what, c->e);
}

int config_need_int(const struct config *c, const char *keys, int low, int high)
{
    char key[64];
    if (!choose_key(c, keys, key, sizeof key))
        ERR(c->e, ERR_INPUT, "%s: \"%s\" is missing, expected an integer in [%d, %d]", c->what, key, low, high);
    return (int)json_get_int(c->json, key, low, low, high, c->what, c->e);
}

double config_need_real(const struct config *c, const char *keys, double low, double high)
{
    char key[64];
    if (!choose_key(c, keys, key, sizeof key))
        ERR(c->e, ERR_INPUT, "%s: \"%s\" is missing, expected a number in [%g, %g]", c->what, key, low, high);
    return json_get_real(c->json, key, low, low, high, c->what, c->e);
}

bool config_bool(const struct config *c, const char *key, bool missing)
{
    return json_get_bool(c->json, key, missing, c->what, c->e);
}

void config_refuse_other(const struct config *c, const char *key, const char *expected)
{
    const char *found = json_get_string(c->json, key, expected, c->what, c->e);
    if (strcmp(found, expected) != 0)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"%s\" is \"%.60s\", expected %s", c->what, key, found, expected);
}

void config_list_layers(const struct config *c, const char *key, int n_layers, bool *listed)
{
    const json_t *array = json_object_get(c->json, key);
    memset(listed, 0, (size_t)n_layers * sizeof *listed);
    if (array == NULL || json_is_null(array))
        return;
    if (!json_is_array(array))
        ERR(c->e, ERR_INPUT, "%s: \"%s\" is %s, expected an array of layers", c->what, key, json_type_name(array));
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *layer = json_array_get(array, i);
        if (!json_is_integer(layer))
            ERR(c->e, ERR_INPUT, "%s: \"%s\"[%zu] is %s, expected the number of a layer", c->what, key, i,
                json_type_name(layer));
        else if (json_integer_value(layer) >= 0 && json_integer_value(layer) < n_layers)
            listed[json_integer_value(layer)] = true;
    }
}

enum activation config_activation(const struct config *c, const char *key, enum activation missing)
{
    static const struct {
        const char *name;
        enum activation activation;
    } table[] = {{"gelu", ACTIVATION_GELU},
                 {"gelu_python", ACTIVATION_GELU},
                 {"gelu_new", ACTIVATION_GELU_TANH},
                 {"gelu_fast", ACTIVATION_GELU_TANH},
                 {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
                 {"relu", ACTIVATION_RELU},
                 {"silu", ACTIVATION_SILU},
                 {"swish", ACTIVATION_SILU},
                 {"quick_gelu", ACTIVATION_QUICK_GELU}};
    const char *name = json_get_string(c->json, key, NULL, c->what, c->e);
    if (name == NULL)
        return missing;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(name, table[i].name) == 0)
            return table[i].activation;
    ERR(c->e, ERR_UNSUPPORTED,
        "%s: \"%s\" is \"%.60s\", expected gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, relu, silu, swish or "
        "quick_gelu",
        c->what, key, name);
    return missing;
}

void config_dtype(struct model_config *m, const struct config *c)
{
    const char *key = config_has(c, "dtype") ? "dtype" : "torch_dtype";
    const char *name = json_get_string(c->json, key, "float32", c->what, c->e);
    if (strcmp(name, "float32") == 0)
        m->dtype = DTYPE_F32;
    else if (strcmp(name, "float16") == 0)
        m->dtype = DTYPE_F16;
    else if (strcmp(name, "bfloat16") == 0)
        m->dtype = DTYPE_BF16;
    else
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"%s\" is \"%.60s\", expected float32, float16 or bfloat16", c->what, key,
            name);
}

void config_sizes(struct model_config *m, const struct config *c, const struct model_config *missing)
{
    m->n_layers = config_int(c, "n_layer|num_hidden_layers|num_layers", missing->n_layers, 1, MODEL_MAX_LAYERS);
    m->hidden = config_int(c, "n_embed|n_embd|hidden_size", missing->hidden, 1, CONFIG_MAX_HIDDEN);
    m->n_heads = config_int(c, "n_head|num_attention_heads|num_heads", missing->n_heads, 1, CONFIG_MAX_HEADS);
    m->vocab = config_int(c, "vocab_size", missing->vocab, 1, CONFIG_MAX_VOCAB);
    m->embed_dim = m->hidden;
    m->n_kv_heads = m->n_heads;
    m->head_dim = m->hidden % m->n_heads == 0 ? m->hidden / m->n_heads : 0;
}

void config_divide_heads(const struct model_config *m, const struct config *c)
{
    if (m->head_dim == 0)
        ERR(c->e, ERR_INPUT, "%s: \"hidden_size\" (or \"n_embd\") is %d, expected a multiple of the %d attention heads",
            c->what, m->hidden, m->n_heads);
}
