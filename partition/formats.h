/* partition/formats.h - the table of quantised formats. A format defines two things: how its "quantization_config" is
 * read, and in which tensors a matrix is stored. A new one is a file in partition/formats/ and a line in formats.c. */
#ifndef PARTITION_FORMATS_H
#define PARTITION_FORMATS_H

#include "partition/checkpoint.h"
#include "partition/config.h"
#include "partition/quantization.h"
#include "partition/weights.h"

/* A quant_method; several may lead to one format. */
struct quant_method {
    const char *name;
    void (*config)(struct quantization *q, const struct config *c); /* c->json: the "quantization_config" */
};

/* A matrix that may be quantised: [out, in], or `experts` such matrices stacked in one tensor. */
struct module {
    const struct checkpoint *c;
    const struct quantization *q;
    const char *name;
    int64_t out, in;
    int experts; /* 0: the tensor is this matrix alone */
};

/* A matrix in its file: its tensors, and how the elements of each are decoded. */
struct planes {
    struct code_form form; /* without .first */
    int n;
    struct plane_source {
        int tensor;
        struct weight_cells cells; /* the cells of the whole matrix; the rank's share is filled in when it is cut */
    } plane[WEIGHT_PLANES];
};

struct format {
    const char *name;  /* "FP8" */
    const char *codes; /* the end of the name of the tensor that holds the codes, in place of ".weight" */
    /* 1: filled in; 0: this matrix is not quantised; -1: *e. */
    int (*planes)(const struct module *m, struct planes *p, struct err *e);
};

const struct format *format_of(const struct quantization *q); /* NULL: not quantised */
const struct quant_method *quant_method_find(const char *name);
const char *quant_method_names(void);

extern const struct quant_method method_fp8, method_fbgemm, method_compressed, method_awq, method_gptq, method_mxfp4,
    method_modelopt;
extern const struct format format_fp8, format_int8, format_packed, format_awq, format_gptq, format_mxfp4, format_nvfp4;

/* The tensor that holds codes of this weight ("model.layers.0.mlp.up_proj.weight") in any format, or -1. */
int formats_find_codes(const struct checkpoint *c, const char *weight);

/* ---- for the formats ---- */

/* Refuse: "config.json: "quantization_config": KEY is FOUND (method M), supported: EXPECTED". */
void quantization_refuse(const struct config *c, const char *key, const char *found, const char *expected);

/* Append to q->list the strings of the array under the key, or under the first present key of "a|b", and the list's end
 * mark. A missing key and null count as empty; anything other than an array of strings is refused. */
void quantization_list(struct quantization *q, const struct config *c, const char *keys);

/* Read "kv_cache_scheme" of keys and values: null, or compressed-tensors' description of numbers. */
void quantization_read_kv(struct quantization *q, const struct config *c);

/* The module's tensor whose name ends like this, or -1. */
int module_tensor(const struct module *m, const char *suffix);

/* Append a plane, whose tensor must have one of the types ("F32|BF16") and the shape; -1 and *e. Sets what follows from
 * the type: bytes per element and, for scales, the conversion. The caller sets the cells' sizes. */
struct plane_source *planes_add(struct planes *p, const struct module *m, enum weight_plane plane, int tensor,
                                const char *types, int n_dims, const int64_t *shape, struct err *e);

/* Codes of four bits, two a byte, the lower half first. Returns -1 and *e on failure. */
int planes_add_fours(struct planes *p, const struct module *m, int tensor, int n_dims, const int64_t *shape,
                     struct err *e);

/* Scales of [out, ceil(in / group)], or of the whole row or matrix: [out, 1], [out], [1] or []. Sets form.group. */
int planes_add_scales(struct planes *p, const struct module *m, int tensor, int group, struct err *e);

/* Refuse the module: the message names its folder and the tensor. Returns -1. */
int module_refuse(const struct module *m, struct err *e, const char *suffix, const char *found, const char *expected);

#endif
