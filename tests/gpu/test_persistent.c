/* tests/gpu/test_persistent.c - decode steps as one operation against the separate operations, on as many ranks as
 * mpirun gives: the same random weights, the same prompts, then the same tokens fed to both. Every logit of every step
 * is compared, at every batch size that the step supports, with contexts from one block to several parts. Then the
 * operation alone, with arguments between guard bytes: what it writes, and that everything else is unchanged. And steps
 * that come after days of others. argv: a part of the names of the models to run, and the largest batch size. */
#include "kernels/cuda/cuda.h"
#include "tests/gpu/alone.h"
#include "tests/gpu/noise.h"
#include "tests/gpu/side.h"

#define N_SEQS  SIDE_MAX_SEQS
#define MAX_LEN 1104
#define N_STEPS 2 /* of each batch size */

#define NARROW_MOST 8 /* sequences, for all kernels but the wide one */

static const int prompt_length[N_SEQS] = {5, 300, 1, 1040, 17, 130, 33, 600, 2, 64, 16, 257, 90, 1023, 31, 700};

/* A model to test. Dense models of bf16 with RMSNorm whose columns are multiples of 64 on 1 and 2 ranks have the wide
 * kernel, up to 16 sequences; others the narrow one or that of experts, up to 8. */
struct subject {
    const char *name, *json;
    int least;                /* sequences that a step supports on 1 and 2 ranks: exactly 16, or at least this many */
    const char *quantization; /* as in bench's option; NULL: none */
    bool whole;               /* ranks hold whole experts (--expert-parallel) */
    int choices;              /* percentage of rows in which a router or codes of keys and values may differ */
    bool kv_fp8;              /* keys and values are codes */
};

static const struct subject models[] = {
    {"llama, 8/2 heads of 128, odd vocabulary",
     "{\"model_type\":\"llama\",\"vocab_size\":1003,\"hidden_size\":1024,\"intermediate_size\":2816,\"num_hidden_"
     "layers\":3,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"bfloat16\"}",
     16, NULL, false, 0, false},
    {"llama, 12/3 heads of 64, float16",
     "{\"model_type\":\"llama\",\"vocab_size\":512,\"hidden_size\":768,\"intermediate_size\":2048,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":12,\"num_key_value_heads\":3,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"float16\"}",
     8, NULL, false, 0, false},
    {"llama, wide, 64/8 heads of 128",
     "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":8192,\"intermediate_size\":9152,\"num_hidden_"
     "layers\":1,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"bfloat16\"}",
     16, NULL, false, 0, false},
    {"llama, 4/2 heads of 256, 22016 columns",
     "{\"model_type\":\"llama\",\"vocab_size\":700,\"hidden_size\":1024,\"intermediate_size\":22016,\"num_hidden_"
     "layers\":1,"
     "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":256,\"torch_dtype\":\"bfloat16\"}",
     16, NULL, false, 0, false},
    {"llama, hidden 1000, 28672 columns",
     "{\"model_type\":\"llama\",\"vocab_size\":700,\"hidden_size\":1000,\"intermediate_size\":28672,\"num_hidden_"
     "layers\":1,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":64,\"torch_dtype\":\"float16\"}",
     2, NULL, false, 0, false},
    {"mistral, window of 100",
     "{\"model_type\":\"mistral\",\"vocab_size\":777,\"hidden_size\":1024,\"intermediate_size\":1800,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"sliding_window\":100,\"torch_dtype\":\"bfloat16\"}",
     8, NULL, false, 0, false},
    {"qwen2, 14/2 heads of 64, biases, tied head",
     "{\"model_type\":\"qwen2\",\"vocab_size\":2000,\"hidden_size\":896,\"intermediate_size\":4864,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":14,\"num_key_value_heads\":2,\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\"}",
     16, NULL, false, 0, false},
    {"qwen3, norms of heads",
     "{\"model_type\":\"qwen3\",\"vocab_size\":900,\"hidden_size\":1024,\"intermediate_size\":1536,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":128,\"torch_dtype\":\"float16\"}",
     8, NULL, false, 0, false},
    {"qwen3, norms of heads, bfloat16",
     "{\"model_type\":\"qwen3\",\"vocab_size\":900,\"hidden_size\":2048,\"intermediate_size\":6144,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":128,\"torch_dtype\":\"bfloat16\"}",
     16, NULL, false, 0, false},
    {"gemma3, norms of outputs, windows",
     "{\"model_type\":\"gemma3_text\",\"vocab_size\":1100,\"hidden_size\":1280,\"intermediate_size\":3072,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":256,\"query_pre_attn_scalar\":256,\"sliding_"
     "window\":100,\"sliding_window_pattern\":2,\"torch_dtype\":\"bfloat16\"}",
     8, NULL, false, 0, false},
    {"gemma, factor of the embedding, one KV head",
     "{\"model_type\":\"gemma\",\"vocab_size\":800,\"hidden_size\":2048,\"intermediate_size\":4096,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":1,\"head_dim\":256,\"torch_dtype\":\"bfloat16\"}",
     4, NULL, false, 0, false},
    {"glm4, norms of outputs, float16",
     "{\"model_type\":\"glm4\",\"vocab_size\":900,\"hidden_size\":4096,\"intermediate_size\":5632,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":2,\"head_dim\":128,\"attention_bias\":true,\"partial_rotary_"
     "factor\":0.5,\"torch_dtype\":\"float16\"}",
     3, NULL, false, 0, false},
    {"gemma3, fewer rows than two for each block",
     "{\"model_type\":\"gemma3_text\",\"vocab_size\":130,\"hidden_size\":128,\"intermediate_size\":128,\"num_hidden_"
     "layers\":3,"
     "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":64,\"sliding_window\":64,\"sliding_window_"
     "pattern\":2,\"torch_dtype\":\"float16\"}",
     8, NULL, false, 0, false},
    {"gptj, heads of 256",
     "{\"model_type\":\"gptj\",\"vocab_size\":1200,\"n_positions\":2048,\"n_embd\":1024,\"n_layer\":3,\"n_head\":4,"
     "\"rotary_dim\":64,\"tie_word_embeddings\":false,\"torch_dtype\":\"float16\"}",
     8, NULL, false, 0, false},
    {"gpt_neox, parallel residual, two norms",
     "{\"model_type\":\"gpt_neox\",\"vocab_size\":1000,\"hidden_size\":512,\"intermediate_size\":2048,\"num_hidden_"
     "layers\":3,"
     "\"num_attention_heads\":8,\"rotary_pct\":0.25,\"use_parallel_residual\":true,\"torch_dtype\":\"float16\"}",
     8, NULL, false, 0, false},
    {"gpt_neox, sequential residual",
     "{\"model_type\":\"gpt_neox\",\"vocab_size\":1000,\"hidden_size\":512,\"intermediate_size\":2048,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":4,\"rotary_pct\":0.5,\"use_parallel_residual\":false,\"torch_dtype\":\"bfloat16\"}",
     8, NULL, false, 0, false},
    {"opt, learned positions, biases everywhere",
     "{\"model_type\":\"opt\",\"vocab_size\":1500,\"hidden_size\":768,\"ffn_dim\":3072,\"num_hidden_layers\":3,"
     "\"num_attention_heads\":12,\"max_position_embeddings\":2048,\"word_embed_proj_dim\":768,\"torch_dtype\":"
     "\"float16\"}",
     8, NULL, false, 0, false},
    {"opt, hidden 5120",
     "{\"model_type\":\"opt\",\"vocab_size\":600,\"hidden_size\":5120,\"ffn_dim\":4096,\"num_hidden_layers\":1,"
     "\"num_attention_heads\":40,\"max_position_embeddings\":2048,\"word_embed_proj_dim\":5120,\"torch_dtype\":"
     "\"float16\"}",
     8, NULL, false, 0, false},
    {"gpt2, vocabulary of 50257",
     "{\"model_type\":\"gpt2\",\"vocab_size\":50257,\"n_positions\":2048,\"n_embd\":768,\"n_layer\":2,\"n_head\":12,"
     "\"torch_dtype\":\"float16\"}",
     8, NULL, false, 0, false},
};

#define MOE(family, rest)                                                                                              \
    "{\"model_type\":\"" family "\",\"torch_dtype\":\"bfloat16\",\"num_attention_heads\":8,\"num_key_value_heads\":2," \
    "\"norm_topk_prob\":true," rest "}"

/* Latent attention, whose queries are computed from the layer's input. */
#define LATENT(family, heads, rest)                                                              \
    "{\"model_type\":\"" family "\",\"torch_dtype\":\"bfloat16\",\"num_attention_heads\":" heads \
    ",\"q_lora_rank\":null,\"num_hidden_layers\":3," rest "}"

/* Both families' names of an expert's columns and of the number of experts. */
#define CODED_MOE(family, hidden, ffn, experts, chosen)                                                         \
    MOE(family, "\"vocab_size\":900,\"hidden_size\":" hidden ",\"intermediate_size\":" ffn                      \
                ",\"moe_intermediate_size\":" ffn ",\"num_experts\":" experts ",\"num_local_experts\":" experts \
                ",\"num_experts_per_tok\":" chosen ",\"num_hidden_layers\":2,\"head_dim\":64")

/* FP8 in blocks: on two ranks and on four, rows have whole groups of four blocks. */
#define BLOCKS_MOE(hidden, ffn, experts, chosen)                                                                       \
    "{\"model_type\":\"qwen3_moe\",\"torch_dtype\":\"bfloat16\",\"num_attention_heads\":16,\"num_key_value_heads\":4," \
    "\"norm_topk_prob\":true,\"vocab_size\":900,\"hidden_size\":" hidden ",\"moe_intermediate_size\":" ffn             \
    ",\"num_experts\":" experts ",\"num_experts_per_tok\":" chosen ",\"num_hidden_layers\":2,\"head_dim\":128}"

/* Mixtures of experts. A router may choose other experts after another rounding of its input if experts are nearly
 * equal; everything after it then differs, legitimately. No such difference is allowed if all experts are chosen, or if
 * those at the edge of the choice count next to nothing. Sizes of experts are multiples of 64 on 1 and 2 ranks. */
static const struct subject mixtures[] = {
    {"qwen3_moe, all of 6 experts, bfloat16",
     MOE("qwen3_moe", "\"vocab_size\":900,\"hidden_size\":512,\"moe_intermediate_size\":768,\"num_experts\":6,\"num_"
                      "experts_per_tok\":6,\"num_hidden_layers\":3,\"head_dim\":64"),
     8, NULL, false, 0, false},
    {"mixtral, 2 of 4 experts, bfloat16",
     MOE("mixtral", "\"vocab_size\":700,\"hidden_size\":1024,\"intermediate_size\":1536,\"num_local_experts\":4,\"num_"
                    "experts_per_tok\":2,\"num_hidden_layers\":2"),
     8, NULL, false, 10, false},
    {"qwen3_moe, 8 of 128 experts, bfloat16",
     MOE("qwen3_moe", "\"vocab_size\":1500,\"hidden_size\":2048,\"moe_intermediate_size\":768,\"num_experts\":128,"
                      "\"num_experts_per_tok\":8,\"num_hidden_layers\":2,\"head_dim\":128"),
     8, NULL, false, 30, false},
    {"qwen3_moe, 32 of 40 experts, bfloat16",
     MOE("qwen3_moe", "\"vocab_size\":700,\"hidden_size\":1024,\"moe_intermediate_size\":128,\"num_experts\":40,"
                      "\"num_experts_per_tok\":32,\"num_hidden_layers\":2,\"head_dim\":64"),
     8, NULL, false, 0, false},
    {"qwen3_moe, 32 of 41 whole experts, bfloat16",
     MOE("qwen3_moe", "\"vocab_size\":700,\"hidden_size\":1024,\"moe_intermediate_size\":192,\"num_experts\":41,"
                      "\"num_experts_per_tok\":32,\"num_hidden_layers\":2,\"head_dim\":64"),
     8, NULL, true, 0, false},
    {"gpt_oss, all of 4 experts, sinks, windows of 100",
     MOE("gpt_oss", "\"vocab_size\":801,\"hidden_size\":1088,\"intermediate_size\":640,\"num_local_experts\":4,\"num_"
                    "experts_per_tok\":4,\"num_hidden_layers\":4,\"head_dim\":64,\"sliding_window\":100"),
     8, NULL, false, 0, false},
    {"glm4_moe, all of 6 experts, shared, first layer dense",
     MOE("glm4_moe",
         "\"vocab_size\":640,\"hidden_size\":1024,\"intermediate_size\":1280,\"moe_intermediate_size\":384,"
         "\"n_routed_experts\":6,\"num_experts_per_tok\":6,\"num_hidden_layers\":3,\"head_dim\":128,\"n_"
         "shared_experts\":1,\"first_k_dense_replace\":1,\"routed_scaling_factor\":1.5,\"use_qk_norm\":true,"
         "\"attention_bias\":true"),
     8, NULL, false, 0, false},
    {"glm4_moe, 4 of 24 experts in 4 groups, shared",
     MOE("glm4_moe", "\"vocab_size\":700,\"hidden_size\":1536,\"intermediate_size\":2688,\"moe_intermediate_size\":256,"
                     "\"n_routed_experts\":24,\"num_experts_per_tok\":4,\"n_group\":4,\"topk_group\":2,\"num_hidden_"
                     "layers\":3,\"head_dim\":64,\"n_shared_experts\":2,\"first_k_dense_replace\":1"),
     8, NULL, false, 30, false},
    {"deepseek_v2, all of 6 experts, latents, first layer dense",
     LATENT(
         "deepseek_v2", "8",
         "\"vocab_size\":700,\"hidden_size\":1024,\"intermediate_size\":1280,\"moe_intermediate_size\":256,\"n_routed_"
         "experts\":6,\"num_experts_per_tok\":6,\"n_shared_experts\":1,\"first_k_dense_replace\":1,"
         "\"routed_scaling_factor\":1.5"),
     8, NULL, false, 0, false},
    {"deepseek_v2, 4 of 24 experts in 4 groups, latents",
     LATENT(
         "deepseek_v2", "16",
         "\"vocab_size\":640,\"hidden_size\":2048,\"moe_intermediate_size\":384,\"n_routed_experts\":24,\"num_experts_"
         "per_tok\":4,\"topk_method\":\"group_limited_greedy\",\"n_group\":4,\"topk_group\":2"),
     8, NULL, false, 30, false},
    {"deepseek_v3, all of 6 experts, latents, halves rotated",
     LATENT("deepseek_v3", "4",
            "\"vocab_size\":801,\"hidden_size\":512,\"moe_intermediate_size\":128,\"n_routed_experts\":6,\"num_experts_"
            "per_tok\":6,\"n_group\":1,\"topk_group\":1,\"rope_interleave\":false,\"first_k_dense_replace\":0"),
     8, NULL, false, 0, false},
    {"qwen2_moe, all of 5 experts, gated shared, second layer dense",
     MOE("qwen2_moe",
         "\"vocab_size\":801,\"hidden_size\":1024,\"intermediate_size\":1664,\"moe_intermediate_size\":256,"
         "\"shared_expert_intermediate_size\":1152,\"num_experts\":5,\"num_experts_per_tok\":5,\"num_hidden_"
         "layers\":3,\"mlp_only_layers\":[1],\"head_dim\":64"),
     8, NULL, false, 0, false},
    {"qwen2_moe, all of 4 experts, shared, float16",
     "{\"model_type\":\"qwen2_moe\",\"torch_dtype\":\"float16\",\"num_attention_heads\":8,\"num_key_value_heads\":2,"
     "\"vocab_size\":700,\"hidden_size\":1024,\"moe_intermediate_size\":256,\"shared_expert_intermediate_size\":640,"
     "\"num_experts\":4,\"num_experts_per_tok\":4,\"num_hidden_layers\":3,\"decoder_sparse_step\":1}",
     8, NULL, false, 0, false},
    {"mixtral, 2 of 4 experts, float16",
     "{\"model_type\":\"mixtral\",\"torch_dtype\":\"float16\",\"num_attention_heads\":8,\"num_key_value_heads\":2,"
     "\"vocab_size\":700,\"hidden_size\":1024,\"intermediate_size\":1536,\"num_local_experts\":4,"
     "\"num_experts_per_tok\":2,\"num_hidden_layers\":2}",
     8, NULL, false, 20, false},
    {"gpt_oss, 4 of 32 experts, sinks",
     MOE("gpt_oss", "\"vocab_size\":1001,\"hidden_size\":2880,\"intermediate_size\":2880,\"num_local_experts\":32,"
                    "\"num_experts_per_tok\":4,\"num_hidden_layers\":2,\"head_dim\":64"),
     6, NULL, false, 30, false},
    {"gpt_oss, 32 of 40 whole experts, sinks",
     MOE("gpt_oss", "\"vocab_size\":501,\"hidden_size\":1024,\"intermediate_size\":192,\"num_local_experts\":40,"
                    "\"num_experts_per_tok\":32,\"num_hidden_layers\":2,\"head_dim\":64"),
     8, NULL, true, 0, false},
    {"qwen3_moe, all of 6 experts, coded, FP8 in blocks", BLOCKS_MOE("512", "1024", "6", "6"), 8, "fp8-block", false, 0,
     false},
    {"qwen3_moe, 8 of 128 experts, coded, FP8 in blocks", BLOCKS_MOE("2048", "768", "128", "8"), 8, "fp8-block", false,
     30, false},
    {"qwen3_moe, all of 4 experts, coded, FP8, a scale a row", CODED_MOE("qwen3_moe", "4096", "2304", "4", "4"), 7,
     "fp8", false, 0, false},
    {"qwen3_moe, all of 6 experts, coded, MXFP4", CODED_MOE("qwen3_moe", "512", "1024", "6", "6"), 8, "mxfp4", false, 0,
     false},
    {"qwen3_moe, 4 of 32 experts, coded, MXFP4 in two steps", CODED_MOE("qwen3_moe", "4608", "4160", "32", "4"), 4,
     "mxfp4", false, 30, false},
    {"gpt_oss, all of 4 experts, coded, MXFP4, 2880 columns", CODED_MOE("gpt_oss", "2880", "2880", "4", "4"), 8,
     "mxfp4", false, 0, false},
    {"gpt_oss, 4 of 32 experts, coded, MXFP4, whole ones", CODED_MOE("gpt_oss", "2880", "2880", "32", "4"), 8, "mxfp4",
     true, 30, false},
    {"qwen3_moe, all of 12 experts, coded, MXFP4 in three tiles", CODED_MOE("qwen3_moe", "4608", "512", "12", "12"), 4,
     "mxfp4", false, 0, false},
};

/* Compared rows, and those in which a router seems to have chosen other experts. */
struct tally {
    int rows, others, allowed; /* allowed: percentage */
    bool codes;                /* the differences come from codes of keys and values, not from a router */
    bool mxfp4;                /* weights are MXFP4 */
};

/* Returns the largest relative error allowed for a row. A rounding to bfloat16 has an error of 1.7e-3 in the root mean
 * square, 2^-8 / sqrt(3) times 0.74, since mantissas differ; to float16 an eighth of that. Models in MXFP4 may have a
 * quarter more: their groups count 1, 2 or 4 times as much (noise_vary_groups), so the experts' output is most of a
 * row, and with it the product of gates and ups, in which roundings of their input count twice. In a layer separate
 * operations round 14 times, one operation 11 times, 5 of which are the same before the first sum; in two layers and
 * the head 44 differ: 1.7e-3 sqrt(44) = 1.1e-2. These roundings alone, in an otherwise exact calculation of six experts
 * that are all chosen, made rows of 2 and 4 ranks differ by 1.1e-2 in the root mean square and up to 2.0e-2. On an H200
 * 2 ranks differed by up to 2.1e-2; from float32 the separate operations differed by up to 3.5e-2, one operation by
 * 2.5e-2: it is the more accurate one. */
static double most_of(enum dtype act, int n_ranks, const struct tally *t)
{
    double most = act == DTYPE_F16 ? 4e-3 : t->mxfp4 ? 2.5e-2 : 2e-2;
    return n_ranks > 2 ? 1.25 * most : most; /* separate operations round a sum once per contributing rank */
}

#define ANOTHER_CHOICE 1.0 /* the largest relative error that the choice of another of many experts causes */

#define CODED(family, hidden, ffn, heads, type)                                                                    \
    "{\"model_type\":\"" family "\",\"vocab_size\":640,\"hidden_size\":" hidden ",\"intermediate_size\":" ffn      \
    ",\"num_hidden_layers\":2,\"num_attention_heads\":" heads ",\"num_key_value_heads\":4,\"torch_dtype\":\"" type \
    "\"}"

/* Models whose weights are codes. */
static const struct subject coded_models[] = {
    {"llama, bfloat16, FP8, a scale a row", CODED("llama", "1024", "4864", "8", "bfloat16"), 16, "fp8", false, 0,
     false},
    {"llama, bfloat16, FP8 in blocks", CODED("llama", "2048", "6144", "16", "bfloat16"), 8, "fp8-block", false, 0,
     false},
    {"llama, float16, FP8 in blocks", CODED("llama", "1024", "3072", "8", "float16"), 8, "fp8-block", false, 0, false},
    {"llama, bfloat16, FP8 in blocks, heads of 256", CODED("llama", "2048", "6144", "8", "bfloat16"), 4, "fp8-block",
     false, 0, false},
    {"llama, bfloat16, INT8", CODED("llama", "2048", "6144", "16", "bfloat16"), 8, "int8", false, 0, false},
    {"llama, float16, INT8", CODED("llama", "1024", "4864", "8", "float16"), 8, "int8", false, 0, false},
    {"llama, bfloat16, INT4", CODED("llama", "2048", "6144", "16", "bfloat16"), 8, "int4", false, 0, false},
    {"llama, float16, INT4", CODED("llama", "4096", "14336", "32", "float16"), 4, "int4", false, 0, false},
    {"llama, bfloat16, INT4 with zeros", CODED("llama", "4096", "8192", "32", "bfloat16"), 8, "int4-zeros", false, 0,
     false},
    {"llama, float16, INT4 with zeros", CODED("llama", "4096", "8192", "32", "float16"), 8, "int4-zeros", false, 0,
     false},
    {"llama, bfloat16, INT4, a ring of 4 slots", CODED("llama", "2048", "28672", "16", "bfloat16"), 2, "int4", false, 0,
     false},
    {"llama, float16, INT4 with zeros, a ring of 4 slots", CODED("llama", "4096", "28672", "32", "float16"), 2,
     "int4-zeros", false, 0, false},
    {"gpt_neox, INT4, sequential",
     "{\"model_type\":\"gpt_neox\",\"vocab_size\":1000,\"hidden_size\":5120,\"intermediate_size\":4096,\"num_hidden_"
     "layers\":1,"
     "\"num_attention_heads\":40,\"use_parallel_residual\":false,\"torch_dtype\":\"bfloat16\"}",
     8, "int4", false, 0, false},
};

/* Scores with a standard deviation of about 3, so that later keys often have a better one than all before, and a
 * different FP8 code changes the result more: 9 of 106 rows on one rank, 40 on two. With 7 or 8 sequences a part has
 * several slots of the ring (kernels/cuda/step/persistent_keys.cuh). */
#define SPREAD(window)                                                                                \
    "{\"model_type\":\"mistral\",\"vocab_size\":777,\"hidden_size\":1024,\"intermediate_size\":1800," \
    "\"num_hidden_layers\":2,\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":128,"  \
    "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"attention_factor\":1.7,"                 \
    "\"original_max_position_embeddings\":2048},\"sliding_window\":" window ",\"torch_dtype\":\"bfloat16\"}"

/* Models that keep keys and values as codes. */
static const struct subject kv_models[] = {
    {"llama, bfloat16, keys and values in FP8", CODED("llama", "1024", "4096", "8", "bfloat16"), 16, NULL, false, 25,
     true},
    {"llama, float16, keys and values in FP8, heads of 64", CODED("llama", "1024", "4096", "16", "float16"), 8, NULL,
     false, 20, true},
    {"llama, bfloat16, FP8, keys and values in FP8", CODED("llama", "2048", "6144", "16", "bfloat16"), 16, "fp8", false,
     25, true},
    {"llama, bfloat16, INT4, keys and values in FP8, heads of 64", CODED("llama", "2048", "6144", "32", "bfloat16"), 4,
     "int4", false, 20, true},
    {"mistral, window of 100, keys and values in FP8",
     "{\"model_type\":\"mistral\",\"vocab_size\":777,\"hidden_size\":1024,\"intermediate_size\":1800,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"sliding_window\":100,\"torch_dtype\":\"bfloat16\"}",
     8, NULL, false, 20, true},
    {"mistral, scores that spread, keys and values in FP8", SPREAD("null"), 8, NULL, false, 45, true},
    {"mistral, scores that spread, window of 700, keys and values in FP8", SPREAD("700"), 8, NULL, false, 45, true},
};

static void open_dummy(struct side *s, struct world *w, const struct subject *what, enum step_choice step)
{
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = side_setup(N_SEQS, MAX_LEN, step);
    setup.dummy = 1;
    setup.dummy_seed = 3;
    if (w->rank == 0 && model_config_parse(&m, what->json, strlen(what->json), "config", &e) == 0)
        (void)((what->quantization == NULL || quantization_choose(&m.quantization, what->quantization, &e) == 0) &&
               what->whole && model_hold_whole_experts(&m, &e));
    m.kv_fp8 = what->kv_fp8;
    fatal_agree(w, &e);
    side_open(s, w, &m, &c, &setup);
    noise_vary(s, w->rank);
    if (what->kv_fp8)
        side_vary_kv_scales(s);
}

/* Adds the next n tokens of a sequence to the plan. */
static void feed(struct side *s, int seq, int n, bool decode)
{
    int32_t token[MAX_LEN];
    for (int i = 0; i < n; i++)
        token[i] = (seq * 131 + (s->length[seq] + i) * 7919 + 11) % s->instance.network.config.vocab;
    side_feed(s, seq, token, n, prompt_length[seq], decode, decode);
}

static void prefill(struct side *s)
{
    int most = side_most_tokens(s);
    for (int seq = 0; seq < N_SEQS; seq++)
        while (s->length[seq] < prompt_length[seq]) {
            int left = prompt_length[seq] - s->length[seq];
            feed(s, seq, left < most ? left : most, false);
            side_run(s);
        }
}

/* Returns the error of the worst row. Rows with an error above `most` may be due to another choice. */
static double difference(const struct side *a, const struct side *b, int n_rows, double most, struct tally *t)
{
    double worst = 0;
    for (int row = 0; row < n_rows; row++) {
        double d = side_difference(a, b, row);
        bool other = t->allowed > 0 && d > most && d <= (t->codes ? SIDE_CODES * most : ANOTHER_CHOICE);
        t->rows++;
        t->others += other;
        worst = fmax(worst, other ? 0 : d);
    }
    return worst;
}

/* when: a part of the case's name. */
static void check_size(struct side *a, struct side *b, const char *name, int n, const char *when, struct tally *t)
{
    const struct engine *g = &b->instance.engine;
    double worst = 0, most = most_of(b->instance.q.act, g->world->n_ranks, t);
    char reason[100];
    for (int step = 0; step < N_STEPS; step++) {
        for (int i = 0; i < n; i++) {
            int seq = (i + n + step) % N_SEQS;
            feed(a, seq, 1, true);
            feed(b, seq, 1, true);
        }
        side_run(a);
        side_run(b);
        worst = fmax(worst, difference(a, b, n, most, t));
    }
    snprintf(reason, sizeof reason, "relative error is %.3g, allowed %.1g", worst, most);
    tap_all(worst <= most, reason, "%s: %d sequence%s on %d rank%s%s (%.1e)", name, n, n == 1 ? "" : "s",
            g->world->n_ranks, g->world->n_ranks == 1 ? "" : "s", when, worst);
    tap_all(graphs_find(g, n, DECODE_WHOLE)->persistent &&
                !graphs_find(&a->instance.engine, n, DECODE_WHOLE)->persistent,
            "the other way was taken", "%s: %d as one operation%s", name, n, when);
}

/* Makes all blocks go on as if this were their step number `step`. */
static void count_from(struct side *s, uint32_t step)
{
    struct engine *g = &s->instance.engine;
    int n_blocks;
    uint32_t *count = cuda_persistent_steps(g->q, g->persistent.step, &n_blocks);
    for (int i = 0; i < n_blocks; i++)
        g->ops->upload(g->q, count + i, sizeof step, &step, sizeof step, sizeof step, 1);
    g->ops->wait(g->q);
}

/* A step has n_layers + 1 epochs of 32 bits. Data that a step of `most` sequences has left on the device must count as
 * old in the next such step, however many steps of one sequence lie between: here three quarters of all epochs, a
 * difference that is positive as an int whatever ran before. Then steps whose epochs wrap around. */
static void check_late(struct side *a, struct side *b, const char *name, int most, struct tally *t)
{
    uint64_t epochs = (uint64_t)a->instance.network.config.n_layers + 1;
    count_from(b, (uint32_t)((UINT64_C(3) << 30) / epochs));
    check_size(a, b, name, most, ", three quarters of all epochs later", t);
    count_from(b, (uint32_t)((UINT64_C(1) << 32) / epochs) - 1);
    check_size(a, b, name, most, ", the last epochs", t);
    check_size(a, b, name, 1, ", the first epochs again", t);
}

/* On more than two ranks, for which sizes were not chosen, a model may have no persistent step. Collective. */
static bool is_refused(struct side *s, struct world *w, const char *name)
{
    struct persistent_step p;
    struct err e = {0};
    const struct ops *ops = s->instance.ops;
    const struct limits *l = &s->instance.engine.limits;
    if (w->n_ranks <= 2)
        return false;
    (void)persistent_step_prepare(&p, &s->instance.network, l, w, NULL, ops, &s->instance.q, &e);
    fatal_agree(w, &e);
    persistent_step_join(&p, w, ops, &s->instance.q);
    bool refused = p.step == NULL;
    if (refused && w->rank == 0)
        printf("# %s: not on %d ranks: %s\n", name, w->n_ranks, p.why_not);
    persistent_step_close(&p, w, ops, &s->instance.q);
    return refused;
}

/* False: the model has no persistent step. */
static bool check_both(struct world *w, const struct subject *what, struct tally *t, int most)
{
    struct side a, b;
    const char *name = what->name;
    open_dummy(&a, w, what, STEP_SEPARATE);
    if (is_refused(&a, w, name)) {
        side_close(&a);
        return false;
    }
    open_dummy(&b, w, what, STEP_PERSISTENT);
    prefill(&a);
    prefill(&b);
    int has = b.instance.engine.persistent.max_tokens;
    bool wide = what->least == PERSISTENT_MAX_TOKENS;
    if (w->n_ranks <= 2)
        tap_all(has >= what->least && (wide || has <= NARROW_MOST), wide ? "not the wide kernel" : "other numbers",
                "%s: up to %d sequences", name, has);
    for (int n = 1; n <= has && n <= most; n++) {
        check_size(&a, &b, name, n, "", t);
        alone_check_memory(&b, name, n);
    }
    check_late(&a, &b, name, has < most ? has : most, t);
    side_close(&a);
    side_close(&b);
    return true;
}

/* Returns the number of rows that may have another choice. The percentages are more than what many rows show (17 of
 * 106 where 30 % are allowed, 77 and 71 of 338 where 25 % are), so that chance does not matter. It does among few rows:
 * of these, half the percentage and two standard deviations may, which is more than the percentage of up to 22 rows
 * where 30 % are allowed. */
static int allowed_others(const struct tally *t)
{
    double most = t->allowed / 100.0 * t->rows, half = most / 2;
    return (int)fmax(most, half + 2 * sqrt(half * (1 - t->allowed / 200.0)));
}

static void check_subject(struct world *w, const struct subject *what, int most)
{
    bool mxfp4 = what->quantization != NULL && strcmp(what->quantization, "mxfp4") == 0;
    struct tally t = {.allowed = what->choices, .codes = what->kv_fp8, .mxfp4 = mxfp4};
    char reason[100];
    if (!check_both(w, what, &t, most))
        return;
    int allowed = allowed_others(&t);
    snprintf(reason, sizeof reason, "%d of %d, allowed %d", t.others, t.rows, allowed);
    tap_all(t.others <= allowed, reason, "%s: %d of %d rows with another choice", what->name, t.others, t.rows);
}

static void check_all(struct world *w, const struct subject *all, size_t n, const char *part, int most)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(all[i].name, part) != NULL)
            check_subject(w, &all[i], most);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    const char *part = argc > 1 ? argv[1] : "";
    int most = argc > 2 ? atoi(argv[2]) : PERSISTENT_MAX_TOKENS;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    check_all(&w, models, sizeof models / sizeof models[0], part, most);
    check_all(&w, coded_models, sizeof coded_models / sizeof coded_models[0], part, most);
    check_all(&w, kv_models, sizeof kv_models / sizeof kv_models[0], part, most);
    check_all(&w, mixtures, sizeof mixtures / sizeof mixtures[0], part, most);
    int status = tap_done();
    world_close(&w);
    return status;
}
