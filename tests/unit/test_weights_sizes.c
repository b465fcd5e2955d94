/* tests/unit/test_weights_sizes.c - the published parameter counts, compared with each family's config and tensor
 * inventory. */
#include "tests/unit/checkpoint_folder.h"

#include "partition/weights.h"

struct size {
    const char *name, *family;
    int layers, hidden, heads, kv_heads, ffn, vocab, positions;
    const char *extra; /* more members of the config */
    int64_t parameters;
};

#define APERTUS_ROPE                                                                                         \
    ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4," \
    "\"original_max_position_embeddings\":8192}"
#define ATTENTION4  "\"attention\",\"attention\",\"attention\",\"attention\""
#define ATTENTION28 ATTENTION4 "," ATTENTION4 "," ATTENTION4 "," ATTENTION4 "," ATTENTION4 "," ATTENTION4 "," ATTENTION4
#define ATTENTION40 ATTENTION28 "," ATTENTION4 "," ATTENTION4 "," ATTENTION4

static const struct size sizes[] = {
    {"gpt2", "gpt2", 12, 768, 12, 0, 0, 50257, 1024, "", 124439808},
    {"gpt2-medium", "gpt2", 24, 1024, 16, 0, 0, 50257, 1024, "", 354823168},
    {"gpt2-large", "gpt2", 36, 1280, 20, 0, 0, 50257, 1024, "", 774030080},
    {"gpt2-xl", "gpt2", 48, 1600, 25, 0, 0, 50257, 1024, "", 1557611200},
    {"gpt-j-6b", "gptj", 28, 4096, 16, 0, 0, 50400, 2048, "", 6050882784},
    {"pythia-70m", "gpt_neox", 6, 512, 8, 0, 2048, 50304, 2048, "", 70426624},
    {"pythia-160m", "gpt_neox", 12, 768, 12, 0, 3072, 50304, 2048, "", 162322944},
    {"pythia-410m", "gpt_neox", 24, 1024, 16, 0, 4096, 50304, 2048, "", 405334016},
    {"pythia-1b", "gpt_neox", 16, 2048, 8, 0, 8192, 50304, 2048, "", 1011781632},
    {"pythia-1.4b", "gpt_neox", 24, 2048, 16, 0, 8192, 50304, 2048, "", 1414647808},
    {"pythia-2.8b", "gpt_neox", 32, 2560, 32, 0, 10240, 50304, 2048, "", 2775208960},
    {"pythia-6.9b", "gpt_neox", 32, 4096, 32, 0, 16384, 50432, 2048, "", 6857302016},
    {"pythia-12b", "gpt_neox", 36, 5120, 40, 0, 20480, 50688, 2048, "", 11846072320},
    {"gpt-neox-20b", "gpt_neox", 44, 6144, 64, 0, 24576, 50432, 2048, ",\"hidden_act\":\"gelu_fast\"", 20554567680},
    {"opt-125m", "opt", 12, 768, 12, 0, 3072, 50272, 2048, "", 125239296},
    {"opt-350m", "opt", 24, 1024, 16, 0, 4096, 50272, 2048,
     ",\"word_embed_proj_dim\":512,\"do_layer_norm_before\":false", 331196416},
    {"opt-1.3b", "opt", 24, 2048, 32, 0, 8192, 50272, 2048, "", 1315758080},
    {"opt-2.7b", "opt", 32, 2560, 32, 0, 10240, 50272, 2048, "", 2651596800},
    {"opt-6.7b", "opt", 32, 4096, 32, 0, 16384, 50272, 2048, "", 6658473984},
    {"opt-13b", "opt", 40, 5120, 40, 0, 20480, 50272, 2048, "", 12853473280},
    {"opt-30b", "opt", 48, 7168, 56, 0, 28672, 50272, 2048, "", 29974540288},
    {"opt-66b", "opt", 64, 9216, 72, 0, 36864, 50272, 2048, "", 65719701504},
    {"bloom-560m", "bloom", 24, 1024, 16, 0, 0, 250880, 0, "", 559214592},
    {"bloom-1b1", "bloom", 24, 1536, 16, 0, 0, 250880, 0, "", 1065314304},
    {"bloom-1b7", "bloom", 24, 2048, 16, 0, 0, 250880, 0, "", 1722408960},
    {"bloom-3b", "bloom", 30, 2560, 32, 0, 0, 250880, 0, "", 3002557440},
    {"bloom-7b1", "bloom", 30, 4096, 32, 0, 0, 250880, 0, "", 7069016064},
    {"bloom", "bloom", 70, 14336, 112, 0, 0, 250880, 0, "", 176247271424},
    {"llama-2-7b", "llama", 32, 4096, 32, 32, 11008, 32000, 4096, "", 6738415616},
    {"llama-2-13b", "llama", 40, 5120, 40, 40, 13824, 32000, 4096, "", 13015864320},
    {"llama-2-70b", "llama", 80, 8192, 64, 8, 28672, 32000, 4096, "", 68976648192},
    {"llama-3.2-1b", "llama", 16, 2048, 32, 8, 8192, 128256, 131072, ",\"tie_word_embeddings\":true", 1235814400},
    {"llama-3.2-3b", "llama", 28, 3072, 24, 8, 8192, 128256, 131072, ",\"tie_word_embeddings\":true", 3212749824},
    {"llama-3.1-8b", "llama", 32, 4096, 32, 8, 14336, 128256, 131072, "", 8030261248},
    {"llama-3.1-70b", "llama", 80, 8192, 64, 8, 28672, 128256, 131072, "", 70553706496},
    {"llama-3.1-405b", "llama", 126, 16384, 128, 8, 53248, 128256, 131072, "", 405853388800},
    {"mistral-7b-v0.1", "mistral", 32, 4096, 32, 8, 14336, 32000, 32768, "", 7241732096},
    {"mistral-7b-v0.3", "mistral", 32, 4096, 32, 8, 14336, 32768, 32768, ",\"sliding_window\":null", 7248023552},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 14, 2, 4864, 151936, 32768, ",\"tie_word_embeddings\":true", 494032768},
    {"qwen2.5-1.5b", "qwen2", 28, 1536, 12, 2, 8960, 151936, 131072, ",\"tie_word_embeddings\":true", 1543714304},
    {"qwen2.5-3b", "qwen2", 36, 2048, 16, 2, 11008, 151936, 32768, ",\"tie_word_embeddings\":true", 3085938688},
    {"qwen2.5-7b", "qwen2", 28, 3584, 28, 4, 18944, 152064, 131072, "", 7615616512},
    {"qwen2.5-14b", "qwen2", 48, 5120, 40, 8, 13824, 152064, 131072, "", 14770033664},
    {"qwen2.5-32b", "qwen2", 64, 5120, 40, 8, 27648, 152064, 131072, "", 32763876352},
    {"qwen2.5-72b", "qwen2", 80, 8192, 64, 8, 29568, 152064, 131072, "", 72706203648},
    {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 3072, 151936, 40960, ",\"tie_word_embeddings\":true", 596049920},
    {"qwen3-1.7b", "qwen3", 28, 2048, 16, 8, 6144, 151936, 40960, ",\"tie_word_embeddings\":true", 1720574976},
    {"qwen3-4b", "qwen3", 36, 2560, 32, 8, 9728, 151936, 40960, ",\"tie_word_embeddings\":true", 4022468096},
    {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 12288, 151936, 40960, "", 8190735360},
    {"qwen3-14b", "qwen3", 40, 5120, 40, 8, 17408, 151936, 40960, "", 14768307200},
    {"qwen3-32b", "qwen3", 64, 5120, 64, 8, 25600, 151936, 40960, "", 32762123264},
    {"qwen3-30b-a3b", "qwen3_moe", 48, 2048, 32, 4, 6144, 151936, 40960, ",\"head_dim\":128", 30532122624},
    {"qwen3-235b-a22b", "qwen3_moe", 94, 4096, 64, 4, 12288, 151936, 40960,
     ",\"head_dim\":128,\"moe_intermediate_size\":1536", 235093634560},
    {"mixtral-8x7b", "mixtral", 32, 4096, 32, 8, 14336, 32000, 32768, "", 46702792704},
    {"mixtral-8x22b", "mixtral", 56, 6144, 48, 8, 16384, 32768, 65536, "", 140630071296},
    {"qwen1.5-moe-a2.7b", "qwen2_moe", 24, 2048, 16, 16, 5632, 151936, 8192, "", 14315784192},
    {"qwen2-57b-a14b", "qwen2_moe", 28, 3584, 28, 4, 18944, 151936, 32768,
     ",\"num_experts\":64,\"num_experts_per_tok\":8,\"moe_intermediate_size\":2560,"
     "\"shared_expert_intermediate_size\":20480",
     57408658944},
    {"olmoe-1b-7b", "olmoe", 16, 2048, 16, 16, 1024, 50304, 4096, "", 6919161856},
    {"phi-3-mini", "phi3", 32, 3072, 32, 32, 8192, 32064, 4096, "", 3821079552},
    {"phi-3-medium", "phi3", 40, 5120, 40, 10, 17920, 32064, 4096, "", 13960238080},
    {"phi-4", "phi3", 40, 5120, 40, 10, 17920, 100352, 16384, "", 14659507200},
    {"phi-4-mini", "phi3", 32, 3072, 24, 8, 8192, 200064, 131072, ",\"tie_word_embeddings\":true", 3836021760},
    {"glm-4-9b", "glm", 40, 4096, 32, 2, 13696, 151552, 131072, "", 9399951360},
    {"starcoder2-3b", "starcoder2", 30, 3072, 24, 2, 12288, 49152, 16384, "", 3030371328},
    {"starcoder2-7b", "starcoder2", 32, 4608, 36, 4, 18432, 49152, 16384, "", 7173923840},
    {"starcoder2-15b", "starcoder2", 40, 6144, 48, 4, 24576, 49152, 16384, ",\"tie_word_embeddings\":false",
     15957889024},
    {"stablelm-3b-4e1t", "stablelm", 32, 2560, 32, 32, 6912, 50304, 4096, "", 2795443200},
    {"smollm3-3b", "smollm3", 36, 2048, 16, 4, 11008, 128256, 65536, "", 3075098624},
    {"gemma-2b", "gemma", 18, 2048, 8, 1, 16384, 256000, 8192, "", 2506172416},
    {"gemma-7b", "gemma", 28, 3072, 16, 16, 24576, 256000, 8192, "", 8537680896},
    {"gemma-2-2b", "gemma2", 26, 2304, 8, 4, 9216, 256000, 8192, "", 2614341888},
    {"gemma-2-9b", "gemma2", 42, 3584, 16, 8, 14336, 256000, 8192, "", 9241705984},
    {"gemma-2-27b", "gemma2", 46, 4608, 32, 16, 36864, 256000, 8192, ",\"head_dim\":128", 27227128320},
    {"gemma-3-270m", "gemma3_text", 18, 640, 4, 1, 2048, 262144, 32768, "", 268098176},
    {"gemma-3-1b", "gemma3_text", 26, 1152, 4, 1, 6912, 262144, 32768, "", 999885952},
    {"gemma-3-4b", "gemma3_text", 34, 2560, 8, 4, 10240, 262208, 131072, "", 3880263168},
    {"gemma-3-12b", "gemma3_text", 48, 3840, 16, 8, 15360, 262208, 131072, "", 11766034176},
    {"gemma-3-27b", "gemma3_text", 62, 5376, 32, 16, 21504, 262208, 131072, ",\"head_dim\":128", 27009346304},
    {"glm-4-9b-0414", "glm4", 40, 4096, 32, 2, 13696, 151552, 32768, "", 9400279040},
    {"glm-4-32b-0414", "glm4", 61, 6144, 48, 8, 23040, 151552, 32768, ",\"attention_bias\":false",
     33142249472 - 61 * 8192},
    {"olmo-1b", "olmo", 16, 2048, 16, 16, 8192, 50304, 2048, ",\"tie_word_embeddings\":true", 1176764416},
    {"olmo-7b", "olmo", 32, 4096, 32, 32, 11008, 50304, 2048, ",\"clip_qkv\":null", 6888095744},
    {"olmo-2-7b", "olmo2", 32, 4096, 32, 32, 11008, 100352, 4096, "", 7298617344},
    {"olmo-2-32b", "olmo2", 64, 5120, 40, 8, 27648, 100352, 4096, "", 32234279936},
    {"olmo-3-7b", "olmo3", 32, 4096, 32, 32, 11008, 100278, 65536, "", 7298011136},
    {"olmo-3-32b", "olmo3", 64, 5120, 40, 8, 27648, 100278, 65536, "", 32233522176},
    {"granite-3-2b", "granite", 40, 2048, 32, 8, 8192, 49155, 4096, ",\"tie_word_embeddings\":true", 2533531648},
    {"granite-3-8b", "granite", 40, 4096, 32, 8, 12800, 49155, 4096, ",\"tie_word_embeddings\":true", 8170848256},
    /* without two constants a layer, which are read into the config */
    {"apertus-8b", "apertus", 32, 4096, 32, 8, 21504, 131072, 65536, APERTUS_ROPE, 8053338176 - 32 * 2},
    {"apertus-70b", "apertus", 80, 8192, 64, 8, 43008, 131072, 65536, APERTUS_ROPE, 70599864480 - 80 * 2},
    {"afm-4.5b", "arcee", 36, 2560, 20, 4, 18432, 128004, 65536, ",\"head_dim\":128", 4619184640},
    {"hunyuan-7b", "hunyuan_v1_dense", 32, 4096, 32, 8, 14336, 128167, 32768, ",\"tie_word_embeddings\":true",
     7504568320},
    {"hunyuan-a13b", "hunyuan_v1_moe", 32, 4096, 32, 8, 3072, 128167, 32768,
     ",\"tie_word_embeddings\":true,\"num_experts\":64,\"moe_topk\":8", 80393183232},
    {"granite-4.0-micro", "granitemoehybrid", 40, 2560, 40, 8, 8192, 100352, 131072,
     ",\"tie_word_embeddings\":true,\"num_local_experts\":0,\"shared_intermediate_size\":8192,\"layer_types\":"
     "[" ATTENTION40 "]",
     3402836480},
    {"granite-4.0-350m", "granitemoehybrid", 28, 1024, 16, 4, 2048, 100352, 32768,
     ",\"tie_word_embeddings\":true,\"num_local_experts\":0,\"shared_intermediate_size\":2048,\"layer_types\":"
     "[" ATTENTION28 "]",
     352379904},
    {"command-r", "cohere", 40, 8192, 64, 64, 22528, 256000, 131072, "", 34980831232},
    {"command-r7b", "cohere2", 32, 4096, 32, 8, 14336, 256000, 132096, "", 8028033024},
    {"phi-2", "phi", 32, 2560, 32, 32, 10240, 51200, 2048, "", 2779683840},
    {"mistral-small-24b", "mistral", 40, 5120, 32, 8, 32768, 131072, 32768, ",\"head_dim\":128", 23572403200},
    {"ministral-3-8b", "ministral3", 34, 4096, 32, 8, 14336, 131072, 262144, "", 8489553920},
    {"falcon-7b", "falcon", 32, 4544, 71, 0, 0, 65024, 2048, "", 6921720704},
    {"falcon-40b", "falcon", 60, 8192, 128, 0, 0, 65024, 2048, ",\"new_decoder_architecture\":true,\"num_kv_heads\":8",
     41303293952},
    {"falcon-11b", "falcon", 60, 4096, 32, 0, 0, 65024, 8192,
     ",\"new_decoder_architecture\":true,\"num_kv_heads\":8,"
     "\"num_ln_in_parallel_attn\":1,\"tie_word_embeddings\":false",
     11102822400},
    {"gpt-neo-1.3b", "gpt_neo", 24, 2048, 16, 0, 0, 50257, 2048, "", 1315575808},
    /* with corrections, as below */
    {"minimax-m2", "minimax_m2", 62, 3072, 48, 8, 1536, 200064, 196608, "", 228689748992 + 62 * 256},
    /* with 128 and 160 corrections a layer, which are buffers and not part of published counts */
    {"glm-4.5-air", "glm4_moe", 46, 4096, 96, 8, 10944, 151552, 131072, ",\"head_dim\":128,\"attention_bias\":true",
     106852245504 + 45 * 128},
    {"glm-4.5", "glm4_moe", 92, 5120, 96, 8, 12288, 151552, 131072,
     ",\"head_dim\":128,\"attention_bias\":true,\"use_qk_norm\":true,\"n_routed_experts\":160,"
     "\"moe_intermediate_size\":1536,\"first_k_dense_replace\":3",
     352797814784 + 89 * 160},
    {"deepseek-v2-lite", "deepseek_v2", 27, 2048, 16, 0, 10944, 102400, 163840,
     ",\"q_lora_rank\":null,\"num_experts_per_tok\":6,\"moe_intermediate_size\":1408,\"first_k_dense_replace\":1",
     15706484224},
    {"deepseek-v2", "deepseek_v2", 60, 5120, 128, 0, 12288, 102400, 163840,
     ",\"num_experts_per_tok\":6,\"moe_intermediate_size\":1536,\"first_k_dense_replace\":1,\"n_routed_experts\":160,"
     "\"topk_method\":\"group_limited_greedy\",\"n_group\":8,\"topk_group\":3",
     235741434880},
    /* with corrections, too */
    {"deepseek-v3", "deepseek_v3", 61, 7168, 128, 0, 18432, 129280, 163840, "", 671026404352 + 58 * 256},
    {"moonlight-16b-a3b", "deepseek_v3", 27, 2048, 16, 0, 11264, 163840, 8192,
     ",\"q_lora_rank\":null,\"n_routed_experts\":64,\"num_experts_per_tok\":6,\"moe_intermediate_size\":1408,"
     "\"n_shared_experts\":2,\"first_k_dense_replace\":1,\"n_group\":1,\"topk_group\":1",
     15960108544 + 26 * 64},
    {"youtu-llm-2b", "youtu", 32, 2048, 16, 16, 6144, 128256, 131072, "", 1961560064},
    {"kimi-k2", "kimi_k2", 61, 7168, 64, 0, 18432, 163840, 131072,
     ",\"n_routed_experts\":384,\"first_k_dense_replace\":1,\"n_group\":1,\"topk_group\":1", 1026408232448},
    {"dots.llm1", "dots1", 62, 4096, 32, 32, 10944, 152064, 32768,
     ",\"n_routed_experts\":128,\"num_experts_per_tok\":6,\"n_shared_experts\":2,\"first_k_dense_replace\":1",
     142774381696},
    {"ernie-4.5-21b-a3b", "ernie4_5_moe", 28, 2560, 20, 4, 12288, 103424, 131072, "", 21825437888},
    {"solar-open-100b", "solar_open", 48, 4096, 64, 8, 10240, 196608, 131072, "", 102651799552},
    {"k-exaone-236b-a23b", "exaone_moe", 48, 6144, 64, 8, 18432, 153600, 262144,
     ",\"head_dim\":128,\"moe_intermediate_size\":2048,\"num_experts\":128", 236571156352},
    {"glm-4.7-flash", "glm4_moe_lite", 47, 2048, 20, 0, 10240, 154880, 202752, "", 29943390976 + 46 * 64},
    {"llama-4-scout", "llama4_text", 48, 5120, 40, 8, 8192, 202048, 131072, "", 107769861120},
    {"llama-4-maverick", "llama4_text", 48, 5120, 40, 8, 8192, 202048, 131072,
     ",\"num_local_experts\":128,\"interleave_moe_layer_step\":2", 400711848960},
    {"seed-oss-36b", "seed_oss", 64, 5120, 80, 8, 27648, 155136, 524288, "", 36151104512},
    {"ernie-4.5-0.3b", "ernie4_5", 18, 1024, 16, 2, 3072, 103424, 131072, "", 360748032},
    {"internlm3-8b", "internlm3", 48, 4096, 32, 2, 10240, 128512, 32768, "", 8804241408},
    {"helium-1-2b", "helium", 24, 2560, 20, 20, 7040, 48000, 4096, "", 2172643840},
    {"cwm", "cwm", 64, 6144, 48, 8, 21504, 128256, 131072, "", 32581097472},
    {"hyperclovax-seed-think-14b", "hyperclovax", 38, 6144, 48, 8, 14336, 110592, 131072, ",\"head_dim\":128",
     14748112896},
    {"vaultgemma-1b", "vaultgemma", 26, 1152, 4, 4, 6912, 256000, 1024, "", 1038741120},
    {"exaone-4-1.2b", "exaone4", 30, 2048, 32, 8, 4096, 102400, 65536,
     ",\"tie_word_embeddings\":true,\"sliding_window\":null", 1279391488},
    {"exaone-4-32b", "exaone4", 64, 5120, 40, 8, 27392, 102400, 131072, "", 32003216384},
    {"gpt-oss-20b", "gpt_oss", 24, 2880, 64, 8, 2880, 201088, 131072, ",\"num_local_experts\":32", 20914757184},
    {"gpt-oss-120b", "gpt_oss", 36, 2880, 64, 8, 2880, 201088, 131072, "", 116829156672},
};

/* Writes the config in each family's own spelling; keys that the row leaves at 0 are omitted. */
static void write_config(const struct size *s, char *to, size_t bytes)
{
    char kv[60] = "", ffn[60] = "", positions[60] = "";
    bool old = strcmp(s->family, "gpt2") == 0 || strcmp(s->family, "gptj") == 0;
    bool bloom = strcmp(s->family, "bloom") == 0;
    if (s->kv_heads > 0)
        (void)snprintf(kv, sizeof kv, ",\"num_key_value_heads\":%d", s->kv_heads);
    if (s->ffn > 0)
        (void)snprintf(ffn, sizeof ffn, ",\"%s\":%d", strcmp(s->family, "opt") == 0 ? "ffn_dim" : "intermediate_size",
                       s->ffn);
    if (s->positions > 0)
        (void)snprintf(positions, sizeof positions, ",\"%s\":%d", old ? "n_positions" : "max_position_embeddings",
                       s->positions);
    (void)snprintf(to, bytes, "{\"model_type\":\"%s\",\"%s\":%d,\"%s\":%d,\"%s\":%d,\"vocab_size\":%d%s%s%s%s}",
                   s->family, old || bloom ? "n_layer" : "num_hidden_layers", s->layers,
                   bloom ? "n_embed" : (old ? "n_embd" : "hidden_size"), s->hidden,
                   old ? "n_head" : "num_attention_heads", s->heads, s->vocab, kv, ffn, positions, s->extra);
}

static int64_t count_elements(const struct weight_map *map)
{
    int64_t n = 0;
    for (int i = 0; i < map->n_slots; i++)
        n += (int64_t)map->slot[i].rows * map->slot[i].cols;
    return n;
}

static struct model_config m;

static void published_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char text[1200];
        struct err e = {0};
        struct shard s;
        struct weight_map map;
        write_config(&sizes[i], text, sizeof text);
        if (model_config_parse(&m, text, strlen(text), sizes[i].name, &e) != 0)
            fail_msg("%s: %s", sizes[i].name, e.text);
        shard_make(&s, &m, 0, 1);
        assert_int_equal(weight_map_build(&map, &m, &s, NULL, &e), 0);
        assert_int_equal(map.n_slices, 0);
        if (count_elements(&map) != sizes[i].parameters)
            fail_msg("%s: %lld parameters, expected %lld", sizes[i].name, (long long)count_elements(&map),
                     (long long)sizes[i].parameters);
        assert_int_equal(weight_map_bytes(&map), 4 * (size_t)sizes[i].parameters); /* no torch_dtype: float32 */
        weight_map_free(&map);
    }
}

/* Without KV replication the shares of any number of ranks add up, with mirrored roles counted once. */
static void shares_add_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int ranks = 2; ranks <= 8; ranks++) {
            char text[1200];
            struct err e = {0};
            struct shard s;
            struct weight_map map;
            int64_t total = 0;
            write_config(&sizes[i], text, sizeof text);
            assert_int_equal(model_config_parse(&m, text, strlen(text), sizes[i].name, &e), 0);
            bool replicates = m.n_kv_heads != m.n_heads && m.latent.rank == 0;
            for (int rank = 0; rank < ranks; rank++) {
                shard_make(&s, &m, rank, ranks);
                assert_int_equal(weight_map_build(&map, &m, &s, NULL, &e), 0);
                for (int j = 0; j < map.n_slots; j++) {
                    enum weight_id id = map.slot[j].id;
                    assert_int_equal(weight_map_find(&map, id, map.slot[j].layer), j);
                    bool cut = id == WEIGHT_EMBED || id == WEIGHT_HEAD || id == WEIGHT_HEAD_BIAS || id == WEIGHT_QKV ||
                               id == WEIGHT_QKV_BIAS || id == WEIGHT_OUT || id == WEIGHT_OUT_BIAS ||
                               id == WEIGHT_MLP_IN || id == WEIGHT_MLP_IN_BIAS || id == WEIGHT_MLP_OUT ||
                               id == WEIGHT_MLP_OUT_BIAS || id == WEIGHT_EXPERTS_IN || id == WEIGHT_EXPERTS_OUT ||
                               id == WEIGHT_SHARED_IN || id == WEIGHT_SHARED_OUT || id == WEIGHT_EXPERTS_IN_BIAS ||
                               id == WEIGHT_EXPERTS_OUT_BIAS || id == WEIGHT_SINKS || id == WEIGHT_QUERY ||
                               id == WEIGHT_QUERY_UP || id == WEIGHT_KEY_UP || id == WEIGHT_VALUE_UP ||
                               (m.qk_norm_each && (id == WEIGHT_Q_NORM || id == WEIGHT_K_NORM));
                    if (cut || rank == 0)
                        total += (int64_t)map.slot[j].rows * map.slot[j].cols;
                }
                assert_int_equal(weight_map_find(&map, WEIGHT_QKV, m.n_layers), -1);
                assert_int_equal(weight_map_find(&map, WEIGHT_QKV, -1), -1);
                weight_map_free(&map);
            }
            if (replicates)
                assert_true(total >= sizes[i].parameters);
            else
                assert_int_equal(total, sizes[i].parameters);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(published_counts), cmocka_unit_test(shares_add_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
