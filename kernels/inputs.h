/* kernels/inputs.h - activations that are quantised before a product, as a checkpoint was calibrated for (W8A8): each
 * becomes the nearest code's value times a scale, and the product uses these values. Optional for a backend
 * (ops->inputs). */
#ifndef KERNELS_INPUTS_H
#define KERNELS_INPUTS_H

#include "kernels/ops.h"

#define INPUT_BLOCK 128 /* block-scaled weights: rows and columns of a block */

/* The quantisation of one matrix's inputs; plain data. The scale of a row or of a group of a row is its largest
 * magnitude over 448 (E4M3) or 127.5 (INT8, codes of -128 to 127), which is compressed-tensors' rule. */
struct input_form {
    enum codes codes; /* CODES_E4M3 or CODES_INT8 */
    float scale;      /* static scale of all inputs, from the checkpoint; 0: each row has its own */
    float most;       /* magnitudes are clamped to this; 0: they are not */
    int group;        /* inputs of a row that share a scale */
    int first;        /* offset of this rank's inputs in the whole row */
    int n_groups;     /* of a whole row */
    bool shared;      /* other ranks have the row's other inputs */
    bool blocks;      /* each INPUT_BLOCK neighbouring rows of the weights, from the first on, have the same scales */
};

struct input_ops {
    /* Returns why the inputs of a product with w cannot be quantised as f says ("more than one scale a row"); NULL:
     * they can. */
    const char *(*refusal)(struct queue *q, const struct weight *w, const struct input_form *f, bool of_experts);
    /* Products of up to this many rows leave activations unquantised, where that costs no time. */
    int rows_as_they_are;
    /* activate and norm are ops->activate of gated x, [n_rows, 2 w->cols], and ops->norm with weights of w->cols
     * columns; they leave the result quantised for the next operation, the product with w: ops->matmul, or if it is
     * not refused ops->gated_product, with x NULL.
     * Where unsupported they return false without doing anything. NULL: never supported. */
    bool (*activate)(struct queue *q, const struct weight *w, const void *x, enum activation kind, int n_rows);
    bool (*norm)(struct queue *q, const struct weight *w, void *x, const void *add, enum norm_kind kind,
                 const struct weight *scale, const struct weight *shift, int n_rows, float eps);
    /* Both functions below are given or NULL. NULL: products quantise their inputs themselves, by the largest magnitude
     * of this rank's inputs. */
    /* largest[t][g] = the largest magnitude of row t's inputs in group g of the whole row, 0 where this rank has none.
     * x: [n_rows, cols]; largest: [n_rows, n_groups]. NaN is ignored. */
    void (*find_largest)(struct queue *q, float *largest, const void *x, const struct input_form *f, int n_rows,
                         int cols);
    /* out[t][i] = scale times the code nearest to x[t][i] / scale, ties to even, saturating. NaN stays NaN. largest: as
     * above, over all ranks; not read where f->scale is given. out may alias x. */
    void (*quantise)(struct queue *q, void *out, const void *x, const float *largest, const struct input_form *f,
                     int n_rows, int cols);
};

extern const struct input_ops input_ops_cpu;
#ifdef LOCKSTEP_CUDA
extern const struct input_ops input_ops_cuda;
#endif

#endif
