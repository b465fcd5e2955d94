/* partition/families/dots1.c - dots.llm1: Qwen3's attention with DeepSeek-V3's experts. */
#include "partition/families/mixtures.h"

#include <string.h>

/* The published model calls its sigmoids "noaux_tc", the name of the choice. */
static void check_scores(const struct config *c)
{
    const char *scores = json_get_string(c->json, "scoring_func", "sigmoid", c->what, c->e);
    if (strcmp(scores, "noaux_tc") != 0)
        config_refuse_other(c, "scoring_func", "sigmoid");
    config_refuse_other(c, "topk_method", "noaux_tc");
}

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 62,
                                                .hidden = 4608,
                                                .n_heads = 32,
                                                .n_kv_heads = 32,
                                                .vocab = 152064,
                                                .ffn = 10944,
                                                .max_positions = 2048};
    static const struct mixture_defaults experts = {
        .routing = {.n_groups = 1, .n_kept = 1, .sigmoid = true, .scale = 1}, .ffn = 1408};
    llama_read(m, c, &missing, &llama_rope);
    m->qk_norm = true;
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    mixture_read(m, c, &experts);
    mixture_read_first_dense(m, c, 0);
    check_scores(c);
    int window = config_is_null(c, "sliding_window") ? 0 : 4096;
    llama_read_windows(m, c, config_int(c, "sliding_window", window, 1, CONFIG_MAX_POSITIONS),
                       config_int(c, "max_window_layers", 62, 0, CONFIG_MAX_POSITIONS));
}

const struct family family_dots1 = {"dots1",        "Dots1For",    "model.",      config,
                                    mixture_source, llama_outside, llama_ignored, NOT_WRAPPED};
