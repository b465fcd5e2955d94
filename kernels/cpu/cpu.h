/* kernels/cpu/cpu.h - the operations of ops_cpu, one family a file; kernels/op_list.h says what each computes. Activations
 * are float here, weights stay in the checkpoint's type. */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/ops.h"

/* Below this many multiply-adds (or as much other work) a second thread costs more than it brings. */
#define CPU_WORK_TO_SHARE 65536

/* Threads for so much work: all or one, because a team that changes its size is rebuilt each time. */
static inline int cpu_threads(const struct queue *q, size_t work)
{
    return q->n_threads > 1 && work >= CPU_WORK_TO_SHARE ? q->n_threads : 1;
}

#define DEVICE(result, name, parameters)         result cpu_##name parameters;
#define STEP(phase, name, parameters, arguments) void cpu_##name parameters;
#include "kernels/op_list.h"

#endif
