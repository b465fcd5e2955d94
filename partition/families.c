/* partition/families.c - the table of families: a new one is one line in `all` and its name in family_names. */
#include "partition/families.h"

#include <string.h>

static const struct family *const all[] = {&family_gpt2,
                                           &family_gptj,
                                           &family_gpt_neox,
                                           &family_opt,
                                           &family_bloom,
                                           &family_llama,
                                           &family_mistral,
                                           &family_qwen2,
                                           &family_qwen3,
                                           &family_mixtral,
                                           &family_qwen2_moe,
                                           &family_qwen3_moe,
                                           &family_gpt_oss,
                                           &family_ministral,
                                           &family_phi3,
                                           &family_glm,
                                           &family_starcoder2,
                                           &family_stablelm,
                                           &family_smollm3,
                                           &family_glm4_moe,
                                           &family_gemma,
                                           &family_gemma2,
                                           &family_gemma3_text,
                                           &family_gemma3,
                                           &family_glm4,
                                           &family_olmo2,
                                           &family_olmo3,
                                           &family_granite,
                                           &family_granitemoe,
                                           &family_cohere,
                                           &family_cohere2,
                                           &family_phi,
                                           &family_falcon,
                                           &family_gpt_neo,
                                           &family_ministral3,
                                           &family_mistral3,
                                           &family_minimax_m2,
                                           &family_deepseek_v2,
                                           &family_deepseek_v3,
                                           &family_glm4_moe_lite,
                                           &family_llama4_text,
                                           &family_llama4,
                                           &family_olmoe,
                                           &family_dots1,
                                           &family_kimi_k2,
                                           &family_granitemoeshared,
                                           &family_granitemoehybrid,
                                           &family_ernie4_5_moe,
                                           &family_solar_open,
                                           &family_exaone_moe,
                                           &family_eagle3};
#define N_FAMILIES (sizeof all / sizeof all[0])

const struct family *family_find(const char *model_type)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(all[i]->model_type, model_type) == 0)
            return all[i];
    return NULL;
}

const struct family *family_of_architecture(const char *architecture)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strncmp(all[i]->architecture, architecture, strlen(all[i]->architecture)) == 0)
            return all[i];
    return NULL;
}

const char *family_names(void)
{
    return "gpt2, gptj, gpt_neox, opt, bloom, llama, mistral, qwen2, qwen3, mixtral, qwen2_moe, "
           "qwen3_moe, gpt_oss, ministral, phi3, glm, starcoder2, stablelm, smollm3, glm4_moe, gemma, "
           "gemma2, gemma3_text, gemma3, glm4, olmo2, olmo3, granite, granitemoe, cohere, cohere2, "
           "phi, falcon, gpt_neo, ministral3, mistral3, minimax_m2, deepseek_v2, deepseek_v3, "
           "glm4_moe_lite, llama4_text, llama4, olmoe, dots1, kimi_k2, granitemoeshared, granitemoehybrid, "
           "ernie4_5_moe, solar_open, exaone_moe";
}
