/* kernels/cpu/cpu.h - the operations of ops_cpu, one family per file; kernels/op_list.h says what each computes.
 * Activations are float here, weights stay in the checkpoint's type. */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/ops.h"

/* Below this many multiply-adds (or equivalent work) a second thread costs more than it gains. */
#define CPU_WORK_TO_SHARE 65536

/* Threads for this much work: all or one, because a team that changes its size is rebuilt each time. */
static inline int cpu_threads(const struct queue *q, size_t work)
{
    return q->n_threads > 1 && work >= CPU_WORK_TO_SHARE ? q->n_threads : 1;
}

/* matmul.c: out[p] = x[row of p] w_e^T (+ bias[e]) for every pair p and its expert e. x has a row for each token, or
 * for each pair. */
enum x_rows { X_TOKENS, X_PAIRS };
void cpu_product_of_pairs(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                          const struct routes *r, const struct routing *how, enum x_rows x_rows, int n_tokens);

#define DEVICE(result, name, parameters)             result cpu_##name parameters;
#define STEP(phase, name, parameters, arguments)     void cpu_##name parameters;
#define OPTIONAL(phase, name, parameters, arguments) bool cpu_##name parameters;
#include "kernels/op_list.h"

#endif
