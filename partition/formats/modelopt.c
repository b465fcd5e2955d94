/* partition/formats/modelopt.c - ModelOpt's FP8, E4M3 with a scale for the matrix or for each row, as other FP8 files,
 * and NVFP4. Its config is a "quantization_config" or, in older exports alone, hf_quant_config.json. */
#include "partition/formats.h"

#include <string.h>

static void config(struct quantization *q, const struct config *c)
{
    const char *algorithm = json_get_string(c->json, "quant_algo", "none", c->what, c->e);
    bool rows = strcmp(algorithm, "FP8_PER_CHANNEL_PER_TOKEN") == 0;
    bool wide = strcmp(algorithm, "W4A16_NVFP4") == 0, nvfp4 = wide || strcmp(algorithm, "NVFP4") == 0;
    if (!rows && !nvfp4 && strcmp(algorithm, "FP8") != 0)
        quantization_refuse(c, "quant_algo", algorithm, "FP8, FP8_PER_CHANNEL_PER_TOKEN, NVFP4 or W4A16_NVFP4");
    if (nvfp4 && config_int(c, "group_size", 16, 1, 1 << 20) != 16)
        quantization_refuse(c, "group_size", "another number", "16");
    const char *kv = json_get_string(c->json, "kv_cache_quant_algo", NULL, c->what, c->e);
    quantization_read_kv(q, c);
    if (kv != NULL)
        q->kv = strcmp(kv, "FP8") == 0 ? KV_DECLARED_FP8 : KV_DECLARED_OTHERWISE;
    q->format = nvfp4 ? FORMAT_NVFP4 : FORMAT_FP8;
    q->bits = nvfp4 ? 4 : 8;
    q->group = nvfp4 ? 16 : 0;
    q->rule = MATCH_GLOBS;
    q->activations = wide ? ACTIVATIONS_WIDE : rows || nvfp4 ? ACTIVATIONS_DYNAMIC : ACTIVATIONS_STATIC;
    q->inputs_known = !nvfp4;
    quantization_list(q, c, "ignore|exclude_modules");
}

const struct quant_method method_modelopt = {"modelopt", config};
