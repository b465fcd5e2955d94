/* kernels/cpu/cpu.h - the operations of ops_cpu, one family a file; kernels/ops.h says what each computes. Activations
 * are float here, weights stay in the checkpoint's type. */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/ops.h"

/* Below this many multiply-adds (or as much other work) a second thread costs more than it brings. */
#define CPU_WORK_TO_SHARE 65536

/* Threads for so much work: all or one, because a team that changes its size is built anew each time. */
static inline int cpu_threads(const struct queue *q, size_t work)
{
    return q->n_threads > 1 && work >= CPU_WORK_TO_SHARE ? q->n_threads : 1;
}

uint64_t cpu_read_stream(struct queue *q, const void *data, size_t bytes);
void cpu_fill_noise(struct queue *q, struct weight *w, uint64_t seed, float center, float scale);

void cpu_feed(struct queue *q, int32_t *token, const int32_t *planned, const int32_t *slot, const int32_t *pos,
              const struct sampler *s, int n_tokens);
void cpu_embed(struct queue *q, void *out, const int32_t *token, const struct weight *table, int first_id,
               int n_tokens);
void cpu_add_position(struct queue *q, void *x, const struct weight *table, const int32_t *pos, int offset,
                      int n_tokens);
void cpu_add(struct queue *q, void *x, const void *y, size_t n);
void cpu_gather_rows(struct queue *q, void *out, const void *x, const int32_t *row, int n_rows, int dim);
void cpu_join_columns(struct queue *q, void *out, const void *in, const int *begin, int n_ranks, int n_rows);

void cpu_norm(struct queue *q, void *out, void *x, const void *add, enum norm_kind kind, const struct weight *w,
              const struct weight *b, int n_tokens, int dim, float eps);
void cpu_matmul(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                int n_tokens, bool accumulate);
void cpu_rope_table(struct queue *q, float *cos_sin, const struct rope *rope, const int32_t *pos,
                    const int32_t *rope_len, int n_tokens);
void cpu_qkv_store(struct queue *q, void *qkv, void *k_cache, void *v_cache, const struct heads *heads,
                   const struct batch *batch, const struct rope *rope, const float *cos_sin,
                   const struct weight *q_norm, const struct weight *k_norm, float eps);
void cpu_attention(struct queue *q, void *out, const void *qkv, const void *k_cache, const void *v_cache,
                   const struct heads *heads, const struct batch *batch);
void cpu_activate(struct queue *q, void *out, const void *x, enum activation kind, bool gated, int n_tokens, int cols);

void cpu_route(struct queue *q, const struct routes *r, const void *x, const struct weight *router,
               const struct weight *bias, const struct routing *how, int n_tokens);
/* One token's part of it: the best n_chosen of logits [n_experts] and their shares. */
void cpu_choose_experts(int32_t *expert, float *share, const float *logits, const struct routing *how);
void cpu_matmul_experts(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                        const struct routes *r, const struct routing *how, enum expert_rows x_rows, int n_tokens);
void cpu_combine(struct queue *q, void *out, const void *y, const struct routes *r, const struct routing *how,
                 int n_tokens, int dim, bool accumulate);
void cpu_gate(struct queue *q, void *x, const void *in, const struct weight *w, int n_tokens, int dim);

void cpu_sample(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                const int32_t *row_len, const struct sampler *s, int n_rows);
size_t cpu_sample_scratch_bytes(int vocab);
void cpu_score(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
               const int32_t *row_token, const struct sampler *s, int n_rows);

#endif
