/* partition/weights.h - the weights of a model by role, and the sources that a family defines for them.
 *
 * A role (enum weight_id) is one matrix or vector that the layer code uses. On a rank every role is one dense row-major
 * array [rows, cols], out features x in features, whatever the checkpoint's layout was:
 *
 *   QKV     [(n_heads_local + 2 n_kv_local) head_dim, hidden]    q heads, then k heads, then v heads
 *   OUT     [hidden, n_heads_local head_dim]                     partial sums
 *   MLP_IN  [(gated ? 2 : 1) ffn_local, hidden]                  gate rows, then up rows
 *   MLP_OUT [hidden, ffn_local]                                  partial sums
 *   EXPERTS_IN  [experts_local, 2 expert_ffn_local, hidden]  of each expert gate rows, then up rows (or in pairs)
 *   EXPERTS_OUT [experts_local, hidden, expert_ffn_local]    partial sums: columns of all experts, or some whole ones
 *   QUERY, QUERY_UP [n_heads_local (key + rotated), hidden or query_rank]
 *   LATENT   [rank + rotated, hidden]                        the same on every rank
 *   KEY_UP   [n_heads_local rank, key]                       transposed: maps queries into the latent's space
 *   VALUE_UP [n_heads_local value, rank]
 *   EMBED, HEAD [vocab_local, embed_dim]
 *   TAPS    [states_local, n_taps hidden of the main model]    of an EAGLE-3 head, whose QKV has 2 hidden inputs
 *   JOIN    [states_local, 2 hidden]                           of a layer that predicts
 *   all other roles                                            the same on every rank
 *
 * Biases of OUT, MLP_OUT and EXPERTS_OUT exist on rank 0 only: they are added to a partial sum. Biases of whole experts
 * are on the ranks that hold the experts. */
#ifndef PARTITION_WEIGHTS_H
#define PARTITION_WEIGHTS_H

#include "base/codes.h"
#include "partition/checkpoint.h"
#include "partition/model.h"
#include "partition/shard.h"

enum weight_id {
    /* once a model */
    WEIGHT_EMBED,
    WEIGHT_POSITION,
    WEIGHT_EMBED_NORM,
    WEIGHT_EMBED_NORM_BIAS,
    WEIGHT_PROJECT_IN,
    WEIGHT_PROJECT_OUT,
    WEIGHT_FINAL_NORM,
    WEIGHT_FINAL_NORM_BIAS,
    WEIGHT_HEAD,
    WEIGHT_HEAD_BIAS,
    WEIGHT_TAPS, /* of a drafting head: maps the main model's states to its own ("fc") */
    /* once a layer */
    WEIGHT_ATTN_NORM,
    WEIGHT_ATTN_NORM_BIAS,
    WEIGHT_QKV,
    WEIGHT_QKV_BIAS,
    WEIGHT_Q_NORM,
    WEIGHT_K_NORM,
    WEIGHT_OUT,
    WEIGHT_OUT_BIAS,
    WEIGHT_SINKS,
    WEIGHT_ATTN_OUT_NORM,
    WEIGHT_MLP_NORM,
    WEIGHT_MLP_NORM_BIAS,
    WEIGHT_MLP_IN,
    WEIGHT_MLP_IN_BIAS,
    WEIGHT_MLP_OUT,
    WEIGHT_MLP_OUT_BIAS,
    WEIGHT_MLP_OUT_NORM,
    /* of a drafting head: norms of the embedding and the state; of a layer that predicts also the matrix that joins
     * both ("eh_proj"), and the norm after the layer */
    WEIGHT_TOKEN_NORM,
    WEIGHT_STATE_NORM,
    WEIGHT_JOIN,
    WEIGHT_PREDICT_NORM,
    WEIGHT_ROUTER,
    WEIGHT_ROUTER_BIAS,
    WEIGHT_EXPERTS_IN,
    WEIGHT_EXPERTS_IN_BIAS,
    WEIGHT_EXPERTS_OUT,
    WEIGHT_EXPERTS_OUT_BIAS,
    WEIGHT_SHARED_IN,
    WEIGHT_SHARED_OUT,
    WEIGHT_SHARED_GATE,
    /* of latent attention */
    WEIGHT_QUERY, /* queries computed from the layer's input, or from a latent: */
    WEIGHT_QUERY_DOWN,
    WEIGHT_QUERY_DOWN_BIAS,
    WEIGHT_QUERY_NORM,
    WEIGHT_QUERY_UP,
    WEIGHT_LATENT,
    WEIGHT_LATENT_BIAS,
    WEIGHT_LATENT_NORM,
    WEIGHT_KEY_UP,
    WEIGHT_VALUE_UP,
    WEIGHT_COUNT
};
#define WEIGHT_FIRST_OF_LAYER WEIGHT_ATTN_NORM

/* The part of a role that one checkpoint tensor holds. */
enum weight_part {
    PART_WHOLE,
    PART_Q,
    PART_K,
    PART_V,
    PART_QKV_BLOCKS, /* all q, all k, all v (GPT-2, Phi-3) */
    PART_QKV_HEADS,  /* for each KV head: its q heads, its k, its v (Falcon, GPT-NeoX, BLOOM) */
    PART_KEYS,       /* the key rows of each head, transposed; its value rows follow them (DeepSeek) */
    PART_VALUES,     /* these value rows */
    PART_HEAD,       /* one head's part of a vector: the second %d of the name stands for the head (StableLM-2-12b) */
    PART_ROWS,       /* a vector stored as a matrix with one row per head (Command R+) */
    PART_ROW,        /* a vector stored as a matrix with one row (ERNIE 4.5) */
    PART_GATE,
    PART_UP,
    PART_GATE_UP, /* all gate rows, then all up rows */
    PART_PAIRS    /* gate row 0, up row 0, gate row 1, .., kept in this order (ACTIVATION_SWIGLU) */
};

/* One line of a family's table: where a role comes from. Roles that the config switches off are skipped. */
struct weight_source {
    enum weight_id id;
    enum weight_part part;
    const char *name; /* without the prefix; %d stands for the layer, a second %d for the expert */
    bool in_out;      /* stored [in, out] (GPT-2's Conv1D) */
    int form; /* 0: in every checkpoint; 1, 2, ..: in checkpoints of this form, which is the one whose first line is
                 present; where that is WEIGHT_EXPERTS_OUT in one tensor, its shape must fit, too */
};

/* The order of columns of a quantised matrix whose inputs are not in the order of their groups: a rank sorts them by
 * group, and pads groups of which it does not have all inputs. */
struct input_order {
    int inputs;     /* inputs of this rank: the width of the activations */
    int32_t *input; /* [cols] the input of a column; -1: padding */
    int32_t *group; /* [code_groups] the checkpoint's group that a group of columns belongs to, in ascending order */
};

/* One array on one rank. */
struct weight_slot {
    enum weight_id id;
    int layer;       /* -1: once a model */
    enum dtype type; /* type, if not quantised */
    int rows, cols;  /* this rank's; either may be 0 */
    struct code_form form;
    float input_scale; /* scale of activations, the largest of its parts; 0: not in the checkpoint, or not used */
    struct input_order *order; /* NULL: columns are inputs; owned by the map */
};

/* The planes of a quantised matrix, each in its own tensor. */
enum weight_plane {
    PLANE_DENSE, /* it is not quantised */
    PLANE_CODES,
    PLANE_SCALES,
    PLANE_ZEROS,
    /* checked against known values, not kept: */
    PLANE_SAME_ZEROS, /* every zero must be that of a symmetric matrix */
    PLANE_INDEX,      /* every input must be in its own group, unless the slot has an order */
    PLANE_SHAPE,      /* outputs and inputs */
    WEIGHT_PLANES
};

/* How a tensor's elements map to the matrix. An element covers cell_rows outputs times cell_cols inputs; for codes and
 * zeros it consists of `fields` values of `bits` bits, lowest bits first, for that many outputs or inputs. */
struct weight_cells {
    enum weight_plane plane;
    enum cell_number { CELL_BITS, CELL_F32, CELL_F16, CELL_BF16, CELL_E8M0, CELL_E4M3, CELL_I64 } number;
    bool in_first;     /* stored [in, out], else [out, in] */
    bool field_output; /* fields belong to neighbouring outputs, else inputs */
    bool field_awq;    /* in AutoAWQ's order: outputs 0, 2, 4, 6, 1, 3, 5, 7 */
    int bytes, bits, fields;
    float factor; /* of scales; 0: none */
    int add;      /* added to stored values: 1 for zeros stored minus one, 128 for signed codes */
    int64_t cell_rows, cell_cols;
    int64_t out, in, n_out, n_in; /* this rank's share: first output and input, and their numbers */
};

/* A rectangle of a checkpoint tensor and where it goes. Coordinates of the source are in the stored layout; a vector is
 * one row there and in its slot (rows == 1). */
struct weight_slice {
    int tensor;                   /* index into checkpoint.tensor */
    int slot;                     /* index into weight_map.slot */
    int64_t row, col, rows, cols; /* in the source */
    int64_t dst_row, dst_col;     /* in the slot, after the transposition if any; only the row if quantised */
    bool transpose;
    struct weight_cells cells; /* of a quantised matrix; the source is then the elements that cover the rank's share */
};

/* Everything that one rank holds, and where it comes from. */
struct weight_map {
    int n_slots, n_slices;
    struct weight_slot *slot;   /* in order of layer, then role */
    struct weight_slice *slice; /* sorted by tensor, then row */
};

/* Is it a matrix that may be quantised? */
bool weight_may_be_quantised(enum weight_id id);

/* Does it contain one expert after the other? */
bool weight_is_of_experts(enum weight_id id);

/* Is it cut along its inputs, so that every rank has all outputs? */
bool weight_is_cut_along_inputs(const struct model_config *m, enum weight_id id);

/* The inputs of the whole matrix, and the first of them that a rank has. */
int weight_inputs(const struct model_config *m, enum weight_id id);
int weight_first_input(const struct model_config *m, const struct shard *s, enum weight_id id);

/* Does the role exist in this layer of the config? layer -1: outside of layers. */
bool weight_exists(const struct model_config *m, enum weight_id id, int layer);

/* Build the map of one rank. With c == NULL (a run without a checkpoint) slots have the config's dtype and there are no
 * slices. Checks name, shape and type of every tensor that is needed and names what is wrong. Local, not collective.
 * The caller frees with weight_map_free, which accepts a zeroed map. */
int weight_map_build(struct weight_map *map, const struct model_config *m, const struct shard *s,
                     const struct checkpoint *c, struct err *e);
void weight_map_free(struct weight_map *map);

/* Index of the slot of a role (layer -1 for the model's own), or -1 when the config has none. */
int weight_map_find(const struct weight_map *map, enum weight_id id, int layer);

/* Tensors of the checkpoint that the model neither uses nor ignores as buffers: a reason for a warning, not an error.
 * Returns their number and writes the first names, comma separated, to names[names_bytes]. `whole` is the one-rank
 * map. */
int weight_unknown(const struct weight_map *whole, const struct model_config *m, const struct checkpoint *c,
                   char *names, size_t names_bytes);

/* Bytes of one slot, and of all. A slot with an order ends with the inputs of its columns, int32, from order_at on. */
size_t weight_slot_order_at(const struct weight_slot *slot);
size_t weight_slot_bytes(const struct weight_slot *slot);
size_t weight_map_bytes(const struct weight_map *map);

/* Elements of each slot that no slice fills, n[n_slots]; for a quantised matrix all its elements. */
void weight_map_unfilled(const struct weight_map *map, int64_t *n);

/* Do each `rows` neighbouring rows of a quantised matrix, from the first row on, share their scales? Derived from the
 * scales' layout in the checkpoint; true without one. */
bool weight_rows_alike(const struct weight_map *map, int slot, int rows);

/* Is the slot converted to FP8 at load (weights_fp8, head_fp8 of the config), with a scale for each row? */
bool weight_becomes_fp8(const struct model_config *m, const struct weight_slot *slot);
struct code_form weight_fp8_form(void);

/* For a map in the checkpoint's types: the bytes of all slots after that conversion, and the peak during it, when one
 * matrix after the other exists in both forms. */
size_t weight_map_fp8_bytes(const struct weight_map *map, const struct model_config *m, size_t *most);

/* Changes the map to its state after the conversion to FP8. */
void weight_map_make_fp8(struct weight_map *map, const struct model_config *m);

/* Bytes of a rank's weights that a decode step of n_sequences reads: all weights except the tables of which a token
 * reads one row; of the experts as many as that number of tokens chooses on average if all are chosen equally often
 * (otherwise fewer are read). */
double weight_map_step_bytes(const struct weight_map *map, const struct model_config *m, int n_sequences);

/* "mlp_in", "attn_norm": for tables and messages. */
const char *weight_name(enum weight_id id);

#endif
