/* partition/families/exaone4.c - EXAONE 4.0: norms after attention and MLP and none before them, and a norm of each q
 * and k head. A model with windows in some layers rotates in these only; one without windows rotates in all. */
#include "partition/families/llama.h"

#include <string.h>

/* "sliding_window_pattern" as a string: layer i has a window if letter i, counted from the start again after the last
 * one, is L, and none if it is G. The model's last layer never has one. */
static void read_letters(struct model_config *m, const struct config *c, const char *letters)
{
    int window = config_int(c, "sliding_window", 4096, 1, CONFIG_MAX_POSITIONS);
    size_t n = strlen(letters);
    if (n == 0 || strspn(letters, "LG") != n) {
        ERR(c->e, ERR_INPUT, "%s: \"sliding_window_pattern\" is \"%.60s\", expected letters L and G", c->what, letters);
        return;
    }
    for (int i = 0; i < m->n_layers - 1; i++)
        m->layer[i].window = letters[(size_t)i % n] == 'L' ? window : 0;
}

static void read_windows(struct model_config *m, const struct config *c)
{
    static const char *const key = "sliding_window_pattern";
    const char *letters = json_string_value(json_object_get(c->json, key));
    bool listed = config_has(c, "layer_types");
    if (!listed && config_is_null(c, key))
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"%s\" is null, expected a number of layers or letters L and G", c->what, key);
    if (!listed && letters != NULL)
        read_letters(m, c, letters);
    else
        llama_read_pattern(m, c, 4096, listed ? 1 : config_int(c, key, 4, 1, MODEL_MAX_LAYERS));
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].unrotated = m->layer[i].window == 0;
}

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 32,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .n_kv_heads = 32,
                                                .vocab = 102400,
                                                .ffn = 16384,
                                                .max_positions = 2048,
                                                .norm_eps = 1e-5f};
    llama_read(m, c, &missing, &llama_rope);
    m->no_input_norms = m->output_norms = m->qk_norm = true;
    if (config_is_null(c, "sliding_window"))
        llama_read_windows(m, c, 0, 0);
    else
        read_windows(m, c);
}

const struct family family_exaone4 = {"exaone4",           "Exaone4For",  "model.",      config,
                                      llama_behind_source, llama_outside, llama_ignored, false};
