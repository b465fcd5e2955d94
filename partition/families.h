/* partition/families.h - the table of model families. A new family is one file here and one line in families.c.
 *
 * A family defines two things: how its config.json is read, and in which tensors of its checkpoints each role is. */
#ifndef PARTITION_FAMILIES_H
#define PARTITION_FAMILIES_H

#include "partition/config.h"
#include "partition/model.h"
#include "partition/weights.h"

/* A family's place in its checkpoints. */
enum wrapping {
    NOT_WRAPPED,
    WRAPPED,        /* a part of a multimodal model: its config is "text_config", its names begin with
                       "language_model." or "model.language_model." */
    WRAPPED_OR_FLAT /* the same, or, as saved by transformers 4, its config and names stand beside the other parts' */
};

struct family {
    const char *model_type;   /* of config.json */
    const char *architecture; /* prefix of architectures[0] for configs without model_type, e.g. "GPT2LMHead" */
    const char *prefix;       /* base_model_prefix with its dot, present or absent in a file as a whole */
    void (*config)(struct model_config *m, const struct config *c); /* failures go to c->e */
    const struct weight_source *source; /* ends with name == NULL; names without the prefix */
    const char *const *outside_prefix;  /* names that never carry the prefix ("lm_head.weight"); NULL-terminated */
    const char *const *ignored;         /* tensors to ignore: ends of names, or (with a dot at the end) parts of names;
                                   NULL-terminated */
    enum wrapping wrapped;
};

/* NULL when unknown. */
const struct family *family_find(const char *model_type);
const struct family *family_of_architecture(const char *architecture);

/* "gpt2, gptj, ..." to `names`: all families but heads that draft, or those whose names begin like `like`. Returns how
 * many there are. */
int family_names(char *names, size_t bytes, const char *like);
#define FAMILY_NAMES_BYTES 2048 /* for all */

extern const struct family family_gpt2, family_gptj, family_gpt_neox, family_opt, family_bloom, family_llama,
    family_mistral, family_qwen2, family_qwen3, family_mixtral, family_qwen2_moe, family_qwen3_moe, family_gpt_oss,
    family_ministral, family_phi3, family_glm, family_starcoder2, family_stablelm, family_smollm3, family_glm4_moe,
    family_gemma, family_gemma2, family_gemma3_text, family_gemma3, family_glm4, family_olmo2, family_olmo3,
    family_granite, family_granitemoe, family_cohere, family_cohere2, family_phi, family_falcon, family_gpt_neo,
    family_ministral3, family_mistral3, family_minimax_m2, family_deepseek_v2, family_deepseek_v3, family_glm4_moe_lite,
    family_llama4_text, family_llama4, family_apertus, family_arcee, family_hunyuan_v1_dense, family_hunyuan_v1_moe,
    family_qwen2_vl, family_qwen2_5_vl, family_qwen3_vl, family_qwen3_vl_moe, family_seed_oss, family_exaone4,
    family_ernie4_5, family_olmo, family_internlm3, family_iquestcoder, family_helium, family_cwm, family_hyperclovax,
    family_vaultgemma, family_youtu, family_olmoe, family_dots1, family_kimi_k2, family_granitemoeshared,
    family_granitemoehybrid, family_ernie4_5_moe, family_solar_open, family_exaone_moe, family_eagle3;

/* Is it the config of a head that drafts for another model? Kinds other than EAGLE-3 are refused in c->e. */
bool eagle3_is(const struct config *c);

#endif
