/* partition/families.c - the table of families: a new one is one line in `all`. */
#include "partition/families.h"

#include <stdio.h>
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
                                           &family_apertus,
                                           &family_arcee,
                                           &family_hunyuan_v1_dense,
                                           &family_hunyuan_v1_moe,
                                           &family_qwen2_vl,
                                           &family_qwen2_5_vl,
                                           &family_qwen3_vl,
                                           &family_qwen3_vl_moe,
                                           &family_seed_oss,
                                           &family_exaone4,
                                           &family_ernie4_5,
                                           &family_olmo,
                                           &family_internlm3,
                                           &family_iquestcoder,
                                           &family_helium,
                                           &family_cwm,
                                           &family_hyperclovax,
                                           &family_vaultgemma,
                                           &family_youtu,
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

/* Do two names have their first letters in common, all letters of the shorter one or four? */
static bool alike(const char *a, const char *b)
{
    size_t n = 0;
    while (n < 4 && a[n] != '\0' && a[n] == b[n])
        n++;
    return n == 4 || (n > 0 && (a[n] == '\0' || b[n] == '\0'));
}

int family_names(char *names, size_t bytes, const char *like)
{
    int n = 0;
    size_t used = 0;
    names[0] = '\0';
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const char *name = all[i]->model_type;
        if (all[i] == &family_eagle3 || (like != NULL && !alike(name, like)))
            continue;
        size_t needed = strlen(name) + (used > 0 ? 2 : 0);
        if (used + needed < bytes)
            used += (size_t)snprintf(names + used, bytes - used, "%s%s", used > 0 ? ", " : "", name);
        n++;
    }
    return n;
}
