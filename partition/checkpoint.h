/* partition/checkpoint.h - the tensors of a Hugging Face folder: model.safetensors, or the shards of its index. Only
 * headers are read here. Everything in the files is hostile until checked. */
#ifndef PARTITION_CHECKPOINT_H
#define PARTITION_CHECKPOINT_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define CHECKPOINT_MAX_DIMS    8
#define CHECKPOINT_MAX_TENSORS 1000000
#define CHECKPOINT_MAX_FILES   10000
#define CHECKPOINT_MAX_HEADER  100000000 /* bytes of JSON in one file: the limit of the safetensors library */

struct tensor_info {
    uint32_t name;  /* offset of the NUL-terminated name in checkpoint.text */
    uint32_t dtype; /* offset of the dtype's name ("BF16") in checkpoint.text */
    int32_t file;   /* index into checkpoint.file */
    int32_t n_dims;
    int64_t shape[CHECKPOINT_MAX_DIMS];
    uint64_t offset, bytes; /* in the file, absolute; bytes == product of shape x element bytes */
};

/* Flat arrays, so that rank 0 can open and broadcast it (see rank/load/load.c). */
struct checkpoint {
    char dir[4096];
    int32_t n_tensors, n_files;
    struct tensor_info *tensor; /* sorted by name */
    uint32_t *file;             /* [n_files] offsets of the plain file names in text */
    char *text;                 /* [text_bytes] NUL-terminated strings */
    size_t text_bytes;
    int32_t n_scalars; /* n_tensors, or 0: the checkpoint has no such tensors */
    float *scalar;     /* [n_scalars] values of per-matrix numbers (NVFP4); 0: another tensor, or not a single F32 */
    int32_t n_input_scales; /* n_tensors, or 0: none were read */
    float *input_scale;     /* [n_input_scales] values of activation scales; 0: another tensor */
    int64_t *order_at;      /* [n_orders] index in `order` at which a tensor's numbers begin; -1: not read */
    int32_t n_orders;       /* n_tensors, or 0: none were read */
    int32_t *order;         /* [n_order] groups of inputs (g_idx) of the tensors: partition/side_tensors.h */
    int64_t n_order;
    int32_t n_kv_scales; /* 0: not requested, or the checkpoint has none */
    float *kv_scale;     /* [n_layers, 2, n_kv_heads] scales of key codes and of value codes: partition/kv_scales.h */
    int32_t n_drafted;   /* 0: none were read */
    int32_t *drafted;    /* [n_drafted] the token that a row of a drafting head's logits stands for: "d2t" */
};

/* Open model_dir. Refuses by name: pickle-only folders (with what to do), GGUF, and everything malformed. The caller
 * closes; checkpoint_close accepts a zeroed struct. */
int checkpoint_open(struct checkpoint *c, const char *model_dir, struct err *e);
void checkpoint_close(struct checkpoint *c);

/* Index of a tensor, or -1. */
int checkpoint_find(const struct checkpoint *c, const char *name);

static inline const char *checkpoint_tensor_name(const struct checkpoint *c, int tensor)
{
    return c->text + c->tensor[tensor].name;
}

/* Elements of a tensor's row. A row is the last dimension; with four dimensions it is the last two (the blocks of
 * gpt-oss' experts and the bytes of a block). A vector is one row. */
static inline int64_t tensor_row_elements(const struct tensor_info *t)
{
    if (t->n_dims == 4)
        return t->shape[2] * t->shape[3];
    return t->n_dims > 0 ? t->shape[t->n_dims - 1] : 1;
}

static inline const char *checkpoint_file_name(const struct checkpoint *c, int file)
{
    return c->text + c->file[file];
}

/* Set *e and return -1 if the folder has weights only in an unsupported format (pickles, GGUF, adapters, ...);
 * otherwise return 0. */
int checkpoint_refuse_formats(const char *model_dir, struct err *e);

/* Read `bytes` bytes of a tensor, from the one at `from` on, which it must have, to `to`. */
int checkpoint_read_part(const struct checkpoint *c, int tensor, uint64_t from, size_t bytes, void *to, struct err *e);
/* Read all bytes of a tensor to `to`. */
int checkpoint_read_tensor(const struct checkpoint *c, int tensor, void *to, struct err *e);
/* Read the only element of a tensor of F32, F16 or BF16; another tensor is refused. */
int checkpoint_read_number(const struct checkpoint *c, int tensor, float *to, struct err *e);

/* The path, or its last part if it is too long for a message of one line. */
const char *checkpoint_short_path(const char *path);

/* Add a string to c->text; its offset goes to *offset. */
int checkpoint_add_text(struct checkpoint *c, const char *text, uint32_t *offset, struct err *e);

/* Parse one safetensors header: `head` holds the first head_bytes = 8 + N bytes of a file of file_bytes bytes. Appends
 * to *c the tensors with file index `file`, in order of their offsets; checkpoint_open sorts them by name later. `what`
 * names the file in messages. Exposed for tests and fuzzing. */
int checkpoint_parse_header(struct checkpoint *c, int file, const char *what, const unsigned char *head,
                            size_t head_bytes, uint64_t file_bytes, struct err *e);

#endif
