/* partition/model.h - a model, described by numbers and switches independent of its family; partition/families/ fills
 * them in. */
#ifndef PARTITION_MODEL_H
#define PARTITION_MODEL_H

#include "base/dtype.h"
#include "base/err.h"
#include "base/formula.h"
#include "partition/quantization.h"

#include <stdbool.h>
#include <stdint.h>

#define MODEL_MAX_LAYERS 1024

enum position_kind {
    POSITION_LEARNED, /* a table, added to the embedding */
    POSITION_ROPE,
    POSITION_ALIBI
};

/* The properties in which layers may differ. */
struct model_layer {
    int window;         /* sliding window in tokens; 0: full attention */
    int chunk;          /* positions are cut into chunks of this many, and a token sees only its own; 0: no chunks */
    bool unrotated;     /* no rotation in this layer, though the model has one */
    bool experts;       /* its MLP is a mixture of experts, otherwise a dense one */
    struct xielu xielu; /* ACTIVATION_XIELU only */
};

/* Latent attention (DeepSeek-V2): keys and values of all heads are computed from one latent per token, and all heads
 * share one rotated key. The cache keeps those two, as one head of head_dim = rank + rotated; the layer maps each
 * head's queries into the latent's space and the results out of it. */
struct model_latent {
    int rank;       /* elements of the latent; 0: the model has no such attention */
    int query_rank; /* elements of the latent from which queries are computed; 0: they are computed from the layer's
                       input */
    int key, rotated, value; /* elements of a head: plain ones of its key, rotated ones of its key, its value */
    bool biases;             /* biases of the products that compute the latents */
    float norm_eps;          /* epsilon of the latents' norms */
};

/* The mixtures of experts, all of one size. Every expert is a gated MLP. */
struct model_experts {
    struct routing routing; /* n_experts 0: no layer has a mixture */
    int ffn;                /* columns of one expert */
    int shared_ffn;         /* columns of the shared expert, which every token uses; 0: none */
    bool router_bias;
    bool biases;      /* of the experts' matrices (gpt-oss) */
    bool shared_gate; /* the shared expert's result is multiplied by sigmoid(x . w) (Qwen2-MoE) */
};

/* A head that drafts for another model, here the main model: one layer, which reads states of the main model beside the
 * embedding of a token. EAGLE-3 reads the inputs of three layers; a layer that predicts further tokens (MTP) follows
 * the main model's layers in its checkpoint, and reads the output of the last norm. It cannot run alone. */
#define MODEL_TAPS 3
struct model_drafting {
    int n_taps;          /* states of the main model that are read per token; 0: not such a head */
    int tap[MODEL_TAPS]; /* a state is the input of this layer; the number of layers stands for the output of the
                            last one */
    bool taps_known;     /* named by the config; otherwise model_draft_for chooses */
    int tapped;          /* elements of a state: the main model's hidden size */
    int vocab;           /* tokens that can be drafted: rows of the matrix of logits */
    bool normed_stream;  /* the residual stream begins with the normed state */
    bool embeds;         /* the head has its own embedding, otherwise it uses the main model's */
    bool predicts;       /* the head is a layer of the main model's checkpoint (n_taps 1), and also uses the model's
                      embedding and head */
};

/* Whole-model sizes; flat: rank 0 reads it and broadcasts it as it is. */
struct model_config {
    char model_type[32]; /* as in config.json; for messages and for the choice of the family only */
    int n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, vocab;
    int first_layer;      /* number of the first layer in the checkpoint; not 0 for a drafting layer */
    int n_predicting;     /* layers after these in the checkpoint that predict further tokens */
    int embed_dim;        /* width of the embedding table; != hidden needs WEIGHT_PROJECT_IN and _OUT (OPT-350m) */
    int max_positions;    /* of the config; 0: unbounded (BLOOM) */
    int scaled_positions; /* positions with linear, dynamic or YaRN scaling of the rotation; 0: no scaling */
    bool positions_end;   /* positions end at max_positions: prompt + output must fit (learned tables, GPT-J) */

    enum dtype dtype; /* torch_dtype; what a run without weights (dummy) uses. Real weights keep their own type */

    enum norm_kind norm;
    float norm_eps;
    enum activation activation;
    bool activation_trained; /* the checkpoint has the constants of every layer's xIELU */
    bool gated_mlp;          /* down(act(gate x) * up x) */
    struct model_experts experts;

    bool parallel_residual;  /* x + attn(norm x) + mlp(norm' x): one all-reduce per layer */
    bool shared_norm;        /* parallel residual with one norm for both (GPT-J) */
    bool post_norm;          /* x = norm(x + sublayer(x)) (OPT-350m) */
    bool residual_is_normed; /* the residual branches off after the norm (BLOOM's apply_residual_connection_post_...) */
    bool embed_norm;         /* norm right after the embedding (BLOOM) */
    bool final_norm;
    bool norm_affine;    /* norms have weight (and bias if NORM_LAYER); false: neither (OPT's elementwise_affine) */
    bool no_input_norms; /* attention and MLP take the residual without a norm (OLMo 2) */
    bool output_norms;   /* results are normalised before they are added to the residual (Gemma 2, OLMo 2) */

    /* Norms of q and k before the rotation, of the kind `norm`, without biases. */
    bool qk_norm;      /* norm of every head (Qwen3) */
    bool qk_norm_each; /* every head has weights of its own (Command R+, OLMo 2) */
    bool qk_norm_row;  /* all heads of q are normalised as one row, those of k as another (OLMo 2) */

    bool qk_norm_rotated; /* norm of every head, with the weights of qk_norm, after the rotation (Hunyuan) */
    bool qk_norm_unit;    /* RMS of every head without a weight, in layers that rotate: before or after (Llama 4) */

    bool sinks;          /* every head has one additional score, of a key without a value (gpt-oss) */
    float attention_cap; /* c: c tanh(score / c) instead of a score (Gemma 2) */

    /* Factors; 0: there is none. */
    float embed_scale;        /* of the embedding */
    bool embed_scale_rounded; /* rounded to the activations' type before it multiplies (Gemma) */
    float residual_scale;     /* of the outputs of attention and MLP (Granite) */
    float logit_scale, logit_cap;

    struct model_latent latent;
    struct model_drafting drafting;

    bool qkv_bias, out_bias, mlp_bias, head_bias, norm_bias;
    bool tied_head; /* logits use the embedding table */

    enum position_kind position;
    int position_offset;     /* added to the position before the table is indexed (OPT: 2) */
    struct rope rope;        /* POSITION_ROPE */
    struct rope window_rope; /* rotation of windowed layers if it differs there; dims 0: it does not (Gemma 3) */

    struct rope unrotated_rope; /* the growth of queries in layers that do not rotate; dims 0 (Llama 4) */

    float attention_scale;       /* of q.k in layer 0 */
    bool scale_by_inverse_layer; /* layer i: attention_scale / (i + 1) (GPT-2's scale_attn_by_inverse_layer_idx) */
    struct model_layer layer[MODEL_MAX_LAYERS];
    struct quantization quantization; /* of the weights */
    /* Stored in FP8 by options of the run: keys and values; 16-bit and 32-bit weights except the head; the head */
    bool kv_fp8, weights_fp8, head_fp8;
    bool whole_experts;    /* by an option of the run: ranks hold some experts whole, not columns of every expert */
    bool quantised_inputs; /* activations are quantised before products, as `quantization` declares them */
};

/* Read MODEL_DIR/config.json. Missing keys mean the family's class defaults; contradictions, absurd sizes and
 * everything not implemented are refused by name. */
int model_config_read(struct model_config *m, const char *model_dir, struct err *e);

/* The same from memory; `what` names the text in messages. */
int model_config_parse(struct model_config *m, const char *text, size_t bytes, const char *what, struct err *e);

/* The most tokens of a sequence, prompt and output: max_position_embeddings, or the length to which the rope's scaling
 * extends it; INT_MAX: any number. */
int model_context(const struct model_config *m);

/* Slope of ALiBi for global head h of n_heads (Press et al. 2021; the code's rule for other than powers of two). */
float model_alibi_slope(int head, int n_heads);

/* The factor of embeddings of this type; 0: none. */
float model_embed_scale(const struct model_config *m, enum dtype type);

/* Multiplier of q.k in a layer. */
float model_attention_scale(const struct model_config *m, int layer);

/* The rotation of a layer, or the growth of its queries; NULL: it has neither. */
const struct rope *model_rope(const struct model_config *m, int layer);

/* Elements of attention's output per head. */
int model_value_dim(const struct model_config *m);

/* The most tokens that a layer sees, counted back from the query; 0: all. */
static inline int model_layer_reach(const struct model_config *m, int layer)
{
    return m->layer[layer].window > 0 ? m->layer[layer].window : m->layer[layer].chunk;
}

/* Does the layer see `window` tokens or fewer? */
static inline bool model_layer_is_windowed(const struct model_config *m, int layer, int window)
{
    int reach = model_layer_reach(m, layer);
    return reach > 0 && reach <= window;
}

/* The largest window of layers that do not see all of a sequence of `len` tokens; 0: all layers see all of it. *n:
 * their number */
int model_window(const struct model_config *m, int len, int *n);

/* Arrays of a layer in the KV cache: keys and values, or latents, which are both. */
int model_cache_arrays(const struct model_config *m);

/* Names the ways in which a run stores numbers differently from the checkpoint ("kv-fp8"); NULL: none. */
const char *model_variant(const struct model_config *m);

/* Makes ranks hold whole experts (--expert-parallel); -1 and *e for a model without experts. */
int model_hold_whole_experts(struct model_config *m, struct err *e);

/* *Sets *head to the first layer of m's checkpoint that predicts further tokens, as a head that drafts for m; `name`:
 * of the folder. -1 and *e if there is none. */
int model_predicting(struct model_config *head, const struct model_config *m, const char *name, struct err *e);

/* Whether `head`, of the folder `name`, drafts for m: vocabularies and sizes fit, and m's embedding is a plain one if
 * it has to serve both; -1 and *e if not. Sets the taps where its config does not. */
int model_draft_for(struct model_config *head, const struct model_config *m, const char *name, struct err *e);

/* Is it an EAGLE-3 head, whose attention takes embedding and state concatenated? */
static inline bool model_is_eagle(const struct model_config *m)
{
    return m->drafting.n_taps > 0 && !m->drafting.predicts;
}

/* Rows of the matrix of logits. */
static inline int model_logits(const struct model_config *m)
{
    return m->drafting.n_taps > 0 ? m->drafting.vocab : m->vocab;
}

/* Sums over the ranks in a layer. */
int model_layer_sums(const struct model_config *m);

#endif
