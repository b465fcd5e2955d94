/* kernels/cuda/step/persistent_maps.cuh - the tensor maps of the persistent kernels' matrices. Host only */
#ifndef STEP_PERSISTENT_MAPS_CUH
#define STEP_PERSISTENT_MAPS_CUH

#include "kernels/cuda/step/persistent_chain.cuh"
#include "kernels/cuda/tensor_map.cuh"

#include <algorithm>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A matrix that is copied in boxes. */
struct boxed {
    void *data;
    enum dtype type;
    int rows, cols;
    size_t pitch; /* of codes, row pitch in bytes; 0: not quantised */
};

/* The tensor shape of a matrix, in boxes of this many rows and pieces: pieces of STEP_COLUMNS columns,
 * [pieces][rows][..], or the plain matrix if the last piece would be partial. See stream_rows. Codes always have
 * pieces: a partial one continues with the bytes after the row. */
static inline void make_map(struct queue *q, CUtensorMap *to, PFN_cuTensorMapEncodeTiled_v12000 encode, struct boxed w,
                            int rows, int n_pieces)
{
    CUtensorMap map; /* aligned as the encoder requires */
    const int columns = w.pitch > 0 ? STEP_COLUMNS * 2 : STEP_COLUMNS;
    bool pieces = w.pitch > 0 || w.cols % columns == 0;
    const cuuint64_t size[] = {(cuuint64_t)(pieces ? columns : w.cols), (cuuint64_t)w.rows,
                               (cuuint64_t)(pieces ? (w.cols + columns - 1) / columns : 1)};
    const cuuint64_t pitch[] = {w.pitch > 0 ? (cuuint64_t)w.pitch : (cuuint64_t)w.cols * 2, STEP_COLUMNS * 2};
    const cuuint32_t box[] = {(cuuint32_t)columns, (cuuint32_t)rows, (cuuint32_t)(pieces ? n_pieces : 1)},
                     stride[] = {1, 1, 1};
    CUresult result =
        encode(&map,
               w.pitch > 0           ? CU_TENSOR_MAP_DATA_TYPE_UINT8
               : w.type == DTYPE_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                     : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
               3, w.data, size, pitch, box, stride, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        ERR(&q->err, ERR_INTERNAL, "cuTensorMapEncodeTiled of a matrix of %d x %d: error %d", w.rows, w.cols,
            (int)result);
    memcpy((void *)to, &map, sizeof map);
}

/* Pieces of experts' codes in a box: a row's, if one step has them all. */
static inline int code_pieces(const struct weight *w)
{
    int columns = STEP_COLUMNS * 2, bytes = w->cols * code_bits(w->form.codes) / 8;
    return std::min(CHAIN_WARPS, (bytes + columns - 1) / columns);
}

/* Columns of codes are bytes. */
static inline struct boxed boxed_weight(const struct weight *w)
{
    if (!weight_is_quantised(w))
        return {w->data, w->type, w->rows, w->cols, 0};
    return {w->data, w->type, w->rows, w->cols * code_bits(w->form.codes) / 8, code_pitch(&w->form, w->cols)};
}

/* The tensor shape of group scales (size: 4) or zero points (1), in boxes of this many rows and groups. */
static inline void make_group_map(struct queue *q, CUtensorMap *to, PFN_cuTensorMapEncodeTiled_v12000 encode,
                                  const struct weight *w, int size, int rows, int n)
{
    CUtensorMap map;
    const struct code_form *f = &w->form;
    const bool scales = size == 4;
    const size_t at = scales ? code_scales_at(f, w->rows, w->cols) : code_zeros_at(f, w->rows, w->cols);
    const cuuint64_t groups = (cuuint64_t)code_groups(f, w->cols), row = groups * (cuuint64_t)size;
    const cuuint64_t sizes[] = {groups, (cuuint64_t)w->rows, 1}, pitch[] = {row, row * (cuuint64_t)w->rows};
    const cuuint32_t box[] = {(cuuint32_t)n, (cuuint32_t)rows, 1}, stride[] = {1, 1, 1};
    CUresult result = encode(&map, scales ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_UINT8, 3,
                             (char *)w->data + at, sizes, pitch, box, stride, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             !scales         ? CU_TENSOR_MAP_SWIZZLE_NONE
                             : n * size > 64 ? CU_TENSOR_MAP_SWIZZLE_128B
                                             : CU_TENSOR_MAP_SWIZZLE_64B,
                             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        ERR(&q->err, ERR_INTERNAL, "cuTensorMapEncodeTiled of the scales of a matrix of %d x %d: error %d", w->rows,
            w->cols, (int)result);
    memcpy((void *)to, &map, sizeof map);
}

/* Copies n maps, which fill(host, encode) makes, to the device. */
template <typename F>
static inline CUtensorMap *upload_maps(struct queue *q, size_t n, F fill)
{
    size_t bytes = n * sizeof(CUtensorMap);
    CUtensorMap *host = (CUtensorMap *)err_calloc(&q->err, n, sizeof *host, "tensor maps");
    CUtensorMap *maps = (CUtensorMap *)cuda_alloc(q, bytes);
    PFN_cuTensorMapEncodeTiled_v12000 encode = find_encoder(q);
    if (host != nullptr && maps != nullptr && encode != nullptr) {
        fill(host, encode);
        cuda_upload(q, maps, bytes, host, bytes, bytes, 1);
        cuda_wait(q);
    }
    free(host);
    return maps;
}

/* Calls f(weights, k) for every product in order of execution. */
template <typename F>
static inline void each_product(const struct decode_model *m, F f)
{
    for (int l = 0; l < m->n_layers; l++) {
        const struct decode_layer *d = &m->layer[l];
        const struct weight *const w[2][CHAIN_PRODUCTS] = {{d->qkv, d->out, d->mlp_in, d->mlp_out},
                                                           {d->qkv, d->mlp_in, d->mlp_out, d->out}};
        for (int k = 0; k < CHAIN_PRODUCTS; k++)
            f(w[m->parallel][k], k);
    }
    f(m->head, CHAIN_HEAD);
}

#endif
