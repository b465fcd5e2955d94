/* kernels/ops.h - the table of operations. kernels/cpu/ and kernels/cuda/ are twins behind it: the CPU twin is the
 * readable reference. An operation never allocates, never waits and never fails by itself: what goes wrong is recorded
 * in queue.err, later operations go on, and the step looks at it once.
 *
 * Shapes are row-major. "act" is the queue's activation type: every `void *` activation below is an array of it.
 * Dimensions are this rank's share unless said; any of them may be 0 (a rank without heads or columns is legal). */
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/dtype.h"
#include "base/err.h"
#include "base/formula.h"
#include "base/sampling.h"

/* Where operations run, in order. */
struct queue {
    void *stream;   /* cudaStream_t; NULL on the CPU */
    enum dtype act; /* type of all activations and of the KV cache; DTYPE_F32 on the CPU */
    int n_threads;  /* CPU threads that an operation may use, >= 1 */
    void *impl;     /* what the backend keeps beside it; NULL on the CPU */
    void *observer; /* of whoever wraps the operations (rank/measure/profile.c); no backend looks at it */
    struct err err; /* sticky: the first failure */
};

/* A matrix or vector of weights, dense, in the checkpoint's type. Vectors have rows == 1. data may be NULL when empty. */
struct weight {
    void *data;
    enum dtype type;
    int rows, cols;
};

/* One step's ragged batch: token t belongs to the sequence in slot[t] and stands at pos[t]. Device memory. */
struct batch {
    int n_tokens;
    int n_alone;                /* the first so many are the only ones of their sequence; the others may be, too */
    const int32_t *token;       /* [n_tokens] id to feed */
    const int32_t *slot;        /* [n_tokens] */
    const int32_t *pos;         /* [n_tokens] position in its sequence, from 0 */
    const int32_t *rope_len;    /* [n_tokens] sequence length that chooses the rotation (see struct rope) */
    const int32_t *block_table; /* [n_slots, blocks_per_slot] KV block of every 16 positions of a slot */
    int blocks_per_slot;
};

/* One layer's attention heads on this rank. Local head h is global head first_head + h and reads the local KV head
 * (first_head + h) / group - first_kv_head. */
struct heads {
    int n_heads, n_kv_heads, head_dim;
    int first_head, first_kv_head, group; /* group: query heads per KV head in the whole model */
    float scale;                          /* of q.k */
    int window;                           /* keys k with pos-window < k <= pos are seen; 0: all k <= pos */
    const float *alibi_slopes;            /* [n_heads] device memory: score += slope * k; NULL: none */
    const void
        *sinks; /* [n_heads] device memory: one score more for the softmax, of a key without a value; NULL: none */
    enum dtype sinks_type;
};

/* Which experts take a step's tokens. Token t and its i-th expert are pair t * n_chosen + i. Device memory. */
struct routes {
    float *logits;   /* [n_tokens, n_experts] */
    int32_t *expert; /* [n_tokens, n_chosen] the chosen ones, the likeliest first */
    float *share;    /* [n_tokens, n_chosen] what the expert's result counts */
    int32_t *begin;  /* [n_experts + 1] where each expert's pairs begin in `pair` */
    int32_t *pair;   /* [n_tokens n_chosen] the pairs by expert, those of one expert by token */
};

enum expert_rows { X_TOKENS, X_PAIRS };

/* What the device keeps per slot between steps. */
struct sampler {
    int n_slots, max_len, vocab; /* vocab: of the whole model */
    int32_t *history;            /* [n_slots, max_len] every token fed so far, by position */
    int32_t *last_token;         /* [n_slots] the token sampled last */
    struct sampling *params;     /* [n_slots] */
    void *scratch;               /* ops->sample_scratch_bytes(vocab) bytes for every row that is sampled at once */
};

/* How a device reaches the memory of another one of its host. */
enum peer_link { PEER_UNKNOWN, PEER_NONE, PEER_PCIE, PEER_NVLINK, PEER_KINDS };

/* What a device adds whose operations go on after they return. */
struct async_ops {
    /* A name that no other device of the host has, and what it is: "0000:1a:00.0", "NVIDIA H200". */
    void (*identify)(struct queue *q, char *id, char *model, size_t bytes);
    /* The way to another one, by its id. PEER_UNKNOWN: this process does not see that one. */
    enum peer_link (*peer_link)(struct queue *q, const char *id);

    /* Host memory that copies reach at full speed and without waiting: zeroed; NULL (and queue.err) when there is none. */
    void *(*host_alloc)(struct queue *q, size_t bytes);
    void (*host_free)(struct queue *q, void *p);
    /* The same for memory that is there already. A refusal only makes copies slower. */
    bool (*host_register)(struct queue *q, void *p, size_t bytes);
    void (*host_unregister)(struct queue *q, void *p);

    /* What is enqueued between the two is recorded instead of done: one graph, to be launched as often as wanted with the
     * arguments that it was recorded with. NULL (and queue.err) on failure. */
    void (*begin_capture)(struct queue *q);
    void *(*end_capture)(struct queue *q);
    void (*launch_graph)(struct queue *q, void *graph);
    void (*free_graph)(struct queue *q, void *graph);

    /* Remember this place in the queue; wait until the device has passed it. which: 0 or 1. */
    void (*mark)(struct queue *q, int which);
    void (*wait_mark)(struct queue *q, int which);

    /* Clocks in the queue, two sets of n, from open_stamps (returns -1 and queue.err on failure) to close_stamps. stamp has
     * the device write the time down when it comes to this place; recorded into a graph, at every launch of it.
     * read_stamps, once the device has passed the first n of a set: seconds[i] lie between i and i + 1, 0 <= i < n - 1. */
    int (*open_stamps)(struct queue *q, int n);
    void (*close_stamps)(struct queue *q);
    void (*stamp)(struct queue *q, int set, int i);
    void (*read_stamps)(struct queue *q, int set, int n, double *seconds);

    /* A range with a number beside its name on the time line of a profiler that is attached to the process (NVTX): what is
     * enqueued between the two. They nest. The operations themselves are ranges too. */
    void (*range_begin)(const char *name, int64_t number);
    void (*range_end)(void);
};

struct peer_ops;
struct persistent_ops;

struct ops {
    const char *name;                           /* "cpu", "cuda" */
    const struct async_ops *async;              /* NULL: everything is done when an operation returns */
    const struct peer_ops *peer;                /* memory that devices share, see kernels/peer.h; NULL: none */
    const struct persistent_ops *persistent;    /* whole decode steps, see kernels/persistent.h; NULL: none */
    enum dtype (*act_type)(enum dtype weights); /* the activation type for a checkpoint of this type */

    /* Devices of this kind that the process may use; the CPU counts as one. 0: none. */
    int (*n_devices)(void);
    /* Make *q a queue on a device, 0 <= device < n_devices(), for a checkpoint of this type. n_threads: CPU threads that
     * operations may use. Returns -1 and *e on failure. close accepts a zeroed queue. */
    int (*open)(struct queue *q, int device, enum dtype weights, int n_threads, struct err *e);
    void (*close)(struct queue *q);

    /* Memory of the device. alloc: 256-byte aligned, zeroed, NULL (and queue.err) when there is none. These may wait. */
    void *(*alloc)(struct queue *q, size_t bytes);
    void (*free)(struct queue *q, void *p);
    /* Bytes that could be allocated now. On the CPU the ranks of a node share them. */
    size_t (*free_memory)(struct queue *q);
    bool shares_host_memory;
    int max_head_dim; /* elements of a head that attention takes at most; 0: any number */
    /* Host to device, `rows` rows of `width` bytes, pitches in bytes. The source may be reused after ops->wait. Between
     * async->begin_capture and end_capture, here and in download: the host's memory is of async->host_alloc; every launch of
     * the graph reads or writes it, until the launch is over; addresses, pitches and widths are multiples of 4. */
    void (*upload)(struct queue *q, void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                   size_t rows);
    /* The same with a transposition: src is [rows, cols] with row pitch src_ld, dst becomes [cols, rows] with row pitch
     * dst_ld; pitches and sizes in elements of the type. */
    void (*upload_transposed)(struct queue *q, void *dst, size_t dst_ld, const void *src, size_t src_ld, size_t rows,
                              size_t cols, enum dtype type);
    void (*download)(struct queue *q, void *dst, const void *src, size_t bytes);
    /* Fill with uniform noise in [-scale, scale] around `center`, the same for equal (seed, index). For benchmarks
     * without a checkpoint. */
    void (*fill_noise)(struct queue *q, struct weight *w, uint64_t seed, float center, float scale);
    /* Xor of all 64-bit words of data (bytes: a multiple of 64): reads as fast as the machine can, the limit that decode
     * is measured against. Waits. */
    uint64_t (*read_stream)(struct queue *q, const void *data, size_t bytes);
    void (*wait)(struct queue *q);

    /* token[t] = planned[t] >= 0 ? planned[t] : s->last_token[slot[t]]; s->history[slot[t]][pos[t]] = token[t]. */
    void (*feed)(struct queue *q, int32_t *token, const int32_t *planned, const int32_t *slot, const int32_t *pos,
                 const struct sampler *s, int n_tokens);

    /* out[t] = table[token[t] - first_id], or zeros for ids that another rank's rows hold. out: [n_tokens, table->cols] */
    void (*embed)(struct queue *q, void *out, const int32_t *token, const struct weight *table, int first_id,
                  int n_tokens);
    /* x[t] += table[pos[t] + offset]. x: [n_tokens, table->cols] */
    void (*add_position)(struct queue *q, void *x, const struct weight *table, const int32_t *pos, int offset,
                         int n_tokens);
    /* x += y, n elements. */
    void (*add)(struct queue *q, void *x, const void *y, size_t n);
    /* If add != NULL, first x += add. Then out[t] = norm(x[t]) over dim columns. out may alias x. w NULL: ones,
     * b NULL: zeros. Weights may be read early, as matmul's. */
    void (*norm)(struct queue *q, void *out, void *x, const void *add, enum norm_kind kind, const struct weight *w,
                 const struct weight *b, int n_tokens, int dim, float eps);

    /* out[t][o] = sum_i x[t][i] w[o][i] (+ bias[o]) (+ out[t][o] if accumulate). x: [n_tokens, w->cols],
     * out: [n_tokens, w->rows]; bias NULL or [1, w->rows]. Without columns the sum is 0. A result does not depend on
     * what else is in the batch (on GPUs: for up to 16 tokens). Weights may be read before the operation that precedes this
     * one is done: between writing them and the first product or norm lies a wait. */
    void (*matmul)(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                   int n_tokens, bool accumulate);

    /* cos_sin[t] = { cos(angle_j) .., sin(angle_j) .. }, j < dims/2, times attention_scaling, where
     * angle_j = pos[t] * inv_freq_j(rope_len[t]). float [n_tokens, dims] on every backend. */
    void (*rope_table)(struct queue *q, float *cos_sin, const struct rope *rope, const int32_t *pos,
                       const int32_t *rope_len, int n_tokens);
    /* In place on qkv [n_tokens, (n_heads + 2 n_kv_heads) head_dim] = q heads, k heads, v heads: per-head RMS norm of q
     * and k (q_norm, k_norm: [1, head_dim] or NULL), rotation (rope NULL: none), then k and v into the cache.
     * k_cache, v_cache: [n_blocks, n_kv_heads, KV_BLOCK_TOKENS, head_dim] of act. */
    void (*qkv_store)(struct queue *q, void *qkv, void *k_cache, void *v_cache, const struct heads *heads,
                      const struct batch *batch, const struct rope *rope, const float *cos_sin,
                      const struct weight *q_norm, const struct weight *k_norm, float eps);
    /* out[t][h] = sum_k softmax_k(scale q.k + slope k) v over the cached positions of slot[t] that pos[t] may see, and the sink.
     * qkv as above; out: [n_tokens, n_heads head_dim]. Softmax in float. */
    void (*attention)(struct queue *q, void *out, const void *qkv, const void *k_cache, const void *v_cache,
                      const struct heads *heads, const struct batch *batch);

    /* gated: x is [n_tokens, 2 cols] = gate then up (ACTIVATION_SWIGLU: gate 0, up 0, gate 1, ..), out[t][c] = act(gate) * up;
     * else x is [n_tokens, cols], out[t][c] = act(x). out: [n_tokens, cols], may alias x only when not gated. */
    void (*activate)(struct queue *q, void *out, const void *x, enum activation kind, bool gated, int n_tokens,
                     int cols);

    /* Fill *r: for each token the n_chosen experts e of the largest logits[t][e] = x[t] . router[e] (+ bias[e]), of equal
     * ones the lower e, and their shares, in float throughout. x: [n_tokens, router->cols]. A token's routes do not depend
     * on what else is in the batch. */
    void (*route)(struct queue *q, const struct routes *r, const void *x, const struct weight *router,
                  const struct weight *bias, const struct routing *how, int n_tokens);
    /* out[p] = x[row of p] w_e^T (+ bias[e]) for every pair p of a token and the expert e. w: [n_experts, rows, cols] as one
     * matrix of n_experts rows rows; bias: NULL or [n_experts, rows]. x_rows: X_TOKENS x is [n_tokens, cols], X_PAIRS it is [n_tokens n_chosen, cols]; out: [n_tokens
     * n_chosen, rows]. Only the chosen experts are read. Otherwise as matmul. */
    void (*matmul_experts)(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                           const struct routes *r, const struct routing *how, enum expert_rows x_rows, int n_tokens);
    /* out[t] (+)= sum_i share[t][i] y[t n_chosen + i], in the order of i. y: [n_tokens n_chosen, dim], out: [n_tokens,
     * dim] */
    void (*combine)(struct queue *q, void *out, const void *y, const struct routes *r, const struct routing *how,
                    int n_tokens, int dim, bool accumulate);
    /* x[t] *= sigmoid(in[t] . w). x: [n_tokens, dim], in: [n_tokens, w->cols], w: [1, cols] */
    void (*gate)(struct queue *q, void *x, const void *in, const struct weight *w, int n_tokens, int dim);

    /* out[i] = x[row[i]]. x: [.., dim], out: [n_rows, dim]; row: device memory. */
    void (*gather_rows)(struct queue *q, void *out, const void *x, const int32_t *row, int n_rows, int dim);
    /* Column blocks of the ranks, one after the other, become rows: out[i][begin_r + c] = in_r[i][c] where in_r, at
     * element offset n_rows * begin_r of `in`, is [n_rows, begin_{r+1} - begin_r]. begin: host [n_ranks + 1]. */
    void (*join_columns)(struct queue *q, void *out, const void *in, const int *begin, int n_ranks, int n_rows);

    /* For every row i < n_rows: logits[i] [s->vocab] (read only) choose the token after the row_len[i] tokens that the
     * sequence in row_slot[i] has so far; stored in out[i] and s->last_token. Uniform numbers come from
     * philox_uniform(seed, row_len[i]). */
    void (*sample)(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                   const int32_t *row_len, const struct sampler *s, int n_rows);
    size_t (*sample_scratch_bytes)(int vocab);
    /* For every row i < n_rows: how likely logits[i] [s->vocab] (read only) make row_token[i], and the best n_prompt_top of
     * the sequence in row_slot[i]; into out[i]. Nothing of *s changes, its scratch is not needed. */
    void (*score)(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                  const int32_t *row_token, const struct sampler *s, int n_rows);
};

/* async->range_begin and range_end where there are such. */
static inline void ops_range_begin(const struct ops *ops, const char *name, int64_t number)
{
    if (ops->async != NULL)
        ops->async->range_begin(name, number);
}

static inline void ops_range_end(const struct ops *ops)
{
    if (ops->async != NULL)
        ops->async->range_end();
}

extern const struct ops ops_cpu;
#ifdef LOCKSTEP_CUDA
extern const struct ops ops_cuda;
#endif

#ifdef __cplusplus
}
#endif

#endif
