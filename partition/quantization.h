/* partition/quantization.h - a checkpoint's description of its quantised weights: "quantization_config" of config.json,
 * read strictly. An unsupported entry is refused by name, with the supported ones. */
#ifndef PARTITION_QUANTIZATION_H
#define PARTITION_QUANTIZATION_H

#include "base/codes.h"
#include "base/err.h"

#define QUANTIZATION_LIST_BYTES 32768

/* The formats of tensors in files, each in a file in partition/formats/. */
enum format_id {
    FORMAT_NONE,   /* the checkpoint is not quantised */
    FORMAT_FP8,    /* .weight F8_E4M3 with .weight_scale_inv or .weight_scale */
    FORMAT_INT8,   /* .weight I8 with .weight_scale */
    FORMAT_PACKED, /* .weight_packed I32, compressed-tensors' */
    FORMAT_AWQ,    /* .qweight, packed along the outputs */
    FORMAT_GPTQ,   /* .qweight, packed along the inputs */
    FORMAT_MXFP4,  /* _blocks and _scales, gpt-oss' experts */
    FORMAT_NVFP4,  /* .weight_packed or .weight U8, with .weight_scale F8_E4M3 and a number for the matrix */
    FORMAT_COUNT
};

/* The ways in which an entry of a list names modules. */
enum match_rule {
    MATCH_PARTS,     /* transformers': the name, its beginning or end at a dot, or a regular expression anchored at the
                    start */
    MATCH_SUBSTRING, /* AutoAWQ's */
    MATCH_GLOBS,     /* ModelOpt's: shell patterns */
    MATCH_TARGETS /* compressed-tensors': the name, "re:" and a regular expression anchored at the start, or a class */
};

/* The activations of products as the checkpoint declares them: quantised or not. */
enum declared_activations { ACTIVATIONS_WIDE, ACTIVATIONS_DYNAMIC, ACTIVATIONS_STATIC };

/* The type of keys and values for which the checkpoint was calibrated. */
enum declared_kv {
    KV_DECLARED_WIDE,
    KV_DECLARED_FP8,      /* with scales in the checkpoint */
    KV_DECLARED_OTHERWISE /* a type that is not implemented */
};

/* Flat: a part of struct model_config. */
struct quantization {
    enum format_id format;
    char method[24]; /* "quant_method", for messages */
    int bits;
    int group;                  /* inputs that share a scale; 0: the whole row */
    int block_rows, block_cols; /* of FP8 in blocks; 0: none */
    bool zeros;                 /* asymmetric */
    bool reordered;             /* inputs are not in the order of their groups (desc_act, actorder "group") */
    bool zero_less_one;         /* zeros are stored minus one (GPTQ's first version) */
    enum declared_activations activations;
    bool inputs_known; /* the declared activations are implemented: */
    int input_group;   /* inputs of a token that share a scale; 0: all of them */
    float input_most;  /* the bound of a token's largest magnitude; 0: none */
    enum declared_kv kv;
    enum match_rule rule;
    int exempt_at; /* index in `list` of the first module that is not quantised */
    char list
        [QUANTIZATION_LIST_BYTES]; /* targets (none: all), then exempt ones: NUL-terminated, each list ends with "" */
};

struct config;

/* Fill in *q from config.json, whose object c->json is; zeroed where it has no such member. Failures go to c->e. */
void quantization_read(struct quantization *q, const struct config *c);

/* The same from files that some quantisers write beside config.json, if config.json has no such member. */
int quantization_read_beside(struct quantization *q, const char *model_dir, struct err *e);

/* Does the config exempt the module ("model.layers.0.mlp.up_proj") from quantisation? */
bool quantization_exempts(const struct quantization *q, const char *module);

/* Cuts at multiples of these numbers of inputs and outputs do not divide a block; 1: no restriction. */
int quantization_unit(const struct quantization *q);

/* The form of matrices in a run without a checkpoint; form.codes CODES_NONE: not quantised. */
struct code_form quantization_form(const struct quantization *q, bool of_experts);

/* "FP8 in blocks of 128 x 128 (fp8)", for tables; "none" without quantisation. */
void quantization_describe(const struct quantization *q, char *to, size_t bytes);

/* Fill in *q for a run without a checkpoint, from one of quantization_names. */
int quantization_choose(struct quantization *q, const char *name, struct err *e);
const char *quantization_names(void);

/* "none", "dynamic", "static". */
const char *quantization_activations_name(const struct quantization *q);

#endif
