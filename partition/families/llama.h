/* partition/families/llama.h - keys of configs and names of tensors that the many relatives of Llama share. */
#ifndef PARTITION_FAMILIES_LLAMA_H
#define PARTITION_FAMILIES_LLAMA_H

#include "partition/families.h"
#include "partition/rope.h"

/* Read what all relatives have in common: sizes, RMS norms, gated SiLU MLP, half-split rope, grouped-query attention.
 * Each family itself reads biases, windows, norms of q and k, and experts. `missing` holds the class defaults; a 0
 * there means: n_kv_heads = n_heads, head_dim = hidden / n_heads, norm_eps = 1e-6. rope NULL: the family reads its
 * rotation itself, and with ACTIVATION_XIELU in `missing` its activation. */
void llama_read(struct model_config *m, const struct config *c, const struct model_config *missing,
                const struct rope_keys *rope);

/* The same for classes whose rotation, where the config says nothing of its scaling, is llama3 by `factor` from 8192
 * positions, with the default of theta whatever "rope_theta" says. */
void llama_read_extended(struct model_config *m, const struct config *c, const struct model_config *missing,
                         const struct rope_keys *rope, double factor);

/* "rope_theta", 10000 where it is missing; heads rotate as a whole. */
extern const struct rope_keys llama_rope;

/* Layers of type "sliding" in "layer_types" have `window`, which is 0 where "sliding_window" must be there; without the
 * key, the layers from `first` on have `window`. */
void llama_read_windows(struct model_config *m, const struct config *c, int window, int first);

/* full[i]: "layer_types" says that layer i is full; the others are of `kind`. false: the key is missing. */
bool llama_read_kinds(const struct model_config *m, const struct config *c, const char *kind, bool *full);

/* The same, but without the key every `period`th layer has none and the others "sliding_window", by class default
 * `window`. */
void llama_read_pattern(struct model_config *m, const struct config *c, int window, int period);

/* m->experts.routing: `n_chosen` of `n` experts by class default; `least`: the smallest allowed number. */
void llama_read_routing(struct model_config *m, const struct config *c, int n, int least, int n_chosen,
                        bool normalised);

/* Refuses "clip_qkv", a limit of q, k and v, unless it is null. */
void llama_refuse_clip(const struct config *c);

/* The window of Qwen's families: 0 unless "use_sliding_window". */
int qwen_window(const struct config *c);

/* m->layer[].experts: a mixture in every "decoder_sparse_step"th layer, but for those that "mlp_only_layers" lists. */
void qwen_read_experts(struct model_config *m, const struct config *c);

/* Lines of the tables of sources: tensors outside of layers; q, k and v; attention's output; norms of q and k; a gated
 * MLP. */
/* clang-format off */
#define LLAMA_AROUND                                             \
    {WEIGHT_EMBED, PART_WHOLE, "embed_tokens.weight", false, 0}, \
    {WEIGHT_FINAL_NORM, PART_WHOLE, "norm.weight", false, 0},    \
    {WEIGHT_FINAL_NORM_BIAS, PART_WHOLE, "norm.bias", false, 0}, \
    {WEIGHT_HEAD, PART_WHOLE, "lm_head.weight", false, 0}
#define LLAMA_QKV                                                           \
    {WEIGHT_QKV, PART_Q, "layers.%d.self_attn.q_proj.weight", false, 0},    \
    {WEIGHT_QKV, PART_K, "layers.%d.self_attn.k_proj.weight", false, 0},    \
    {WEIGHT_QKV, PART_V, "layers.%d.self_attn.v_proj.weight", false, 0},    \
    {WEIGHT_QKV_BIAS, PART_Q, "layers.%d.self_attn.q_proj.bias", false, 0}, \
    {WEIGHT_QKV_BIAS, PART_K, "layers.%d.self_attn.k_proj.bias", false, 0}, \
    {WEIGHT_QKV_BIAS, PART_V, "layers.%d.self_attn.v_proj.bias", false, 0}
#define LLAMA_OUT                                                            \
    {WEIGHT_OUT, PART_WHOLE, "layers.%d.self_attn.o_proj.weight", false, 0}, \
    {WEIGHT_OUT_BIAS, PART_WHOLE, "layers.%d.self_attn.o_proj.bias", false, 0}
#define LLAMA_HEAD_NORMS                                                        \
    {WEIGHT_Q_NORM, PART_WHOLE, "layers.%d.self_attn.q_norm.weight", false, 0}, \
    {WEIGHT_K_NORM, PART_WHOLE, "layers.%d.self_attn.k_norm.weight", false, 0}
#define LLAMA_MLP                                                              \
    {WEIGHT_MLP_IN, PART_GATE, "layers.%d.mlp.gate_proj.weight", false, 0},    \
    {WEIGHT_MLP_IN, PART_UP, "layers.%d.mlp.up_proj.weight", false, 0},        \
    {WEIGHT_MLP_IN_BIAS, PART_GATE, "layers.%d.mlp.gate_proj.bias", false, 0}, \
    {WEIGHT_MLP_IN_BIAS, PART_UP, "layers.%d.mlp.up_proj.bias", false, 0},     \
    {WEIGHT_MLP_OUT, PART_WHOLE, "layers.%d.mlp.down_proj.weight", false, 0},  \
    {WEIGHT_MLP_OUT_BIAS, PART_WHOLE, "layers.%d.mlp.down_proj.bias", false, 0}
/* All of a layer whose attention, with norms of q and k, and gated MLP have a norm before them. */
#define LLAMA_LAYER                                                                                 \
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},                   \
    LLAMA_QKV,                                                                                      \
    LLAMA_HEAD_NORMS,                                                                               \
    LLAMA_OUT,                                                                                      \
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},           \
    LLAMA_MLP
/* A layer that predicts further tokens (DeepSeek-V3, GLM-4.5): the tensors that other layers do not have. Its copies of
 * the model's embedding and head are not read. */
#define LLAMA_PREDICTING                                                  \
    {WEIGHT_TOKEN_NORM, PART_WHOLE, "layers.%d.enorm.weight", false, 0},  \
    {WEIGHT_STATE_NORM, PART_WHOLE, "layers.%d.hnorm.weight", false, 0},  \
    {WEIGHT_JOIN, PART_WHOLE, "layers.%d.eh_proj.weight", false, 0},      \
    {WEIGHT_PREDICT_NORM, PART_WHOLE, "layers.%d.shared_head.norm.weight", false, 0}
/* The correction of DeepSeek's router; its experts with the router and the shared ones. The forms EXPERTS_APART and
 * EXPERTS_TOGETHER are numbers of the file that uses this. */
#define LLAMA_CORRECTION \
    {WEIGHT_ROUTER_BIAS, PART_WHOLE, "layers.%d.mlp.gate.e_score_correction_bias", false, 0}
#define LLAMA_SHARED_EXPERTS                                                                                      \
    {WEIGHT_EXPERTS_IN, PART_GATE, "layers.%d.mlp.experts.%d.gate_proj.weight", false, EXPERTS_APART},            \
    {WEIGHT_EXPERTS_IN, PART_UP, "layers.%d.mlp.experts.%d.up_proj.weight", false, EXPERTS_APART},                \
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.mlp.experts.%d.down_proj.weight", false, EXPERTS_APART},          \
    {WEIGHT_EXPERTS_IN, PART_GATE_UP, "layers.%d.mlp.experts.gate_up_proj", false, EXPERTS_TOGETHER},             \
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.mlp.experts.down_proj", false, EXPERTS_TOGETHER},                 \
    {WEIGHT_ROUTER, PART_WHOLE, "layers.%d.mlp.gate.weight", false, 0},                                           \
    {WEIGHT_SHARED_IN, PART_GATE, "layers.%d.mlp.shared_experts.gate_proj.weight", false, 0},                     \
    {WEIGHT_SHARED_IN, PART_UP, "layers.%d.mlp.shared_experts.up_proj.weight", false, 0},                         \
    {WEIGHT_SHARED_OUT, PART_WHOLE, "layers.%d.mlp.shared_experts.down_proj.weight", false, 0}
/* clang-format on */

/* The sources of all relatives, in which roles that a config lacks are skipped, and the rest of struct family. */
extern const struct weight_source llama_source[];
extern const struct weight_source llama_behind_source[]; /* norms after attention and MLP only (OLMo 2, EXAONE 4) */
extern const char *const llama_outside[], *const llama_ignored[];
extern const char *const llama_pictures[]; /* the same as llama_ignored, and the tensors of the image encoder */

#endif
