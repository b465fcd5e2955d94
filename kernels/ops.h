/* kernels/ops.h - the table of operations, which kernels/op_list.h lists. kernels/cpu/ and kernels/cuda/ both implement
 * it: the CPU backend is the readable reference. An operation never allocates, never waits and never returns an error:
 * errors are recorded in queue.err, later operations go on, and the step checks it once.
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

#include "base/codes.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/formula.h"
#include "base/sampling.h"

/* A queue, in which operations run in order. */
struct queue {
    void *stream;   /* cudaStream_t; NULL on the CPU */
    enum dtype act; /* type of all activations and of the KV cache; DTYPE_F32 on the CPU */
    int n_threads;  /* CPU threads that an operation may use, >= 1 */
    void *impl;     /* the backend's own data; NULL on the CPU */
    void *observer; /* data of a wrapper of the operations (rank/measure/profile.c); backends ignore it */
    struct err err; /* sticky: the first failure */
};

struct input_form;

/* A matrix or vector of weights in the checkpoint's type. Vectors have rows == 1. data may be NULL when empty. Only
 * matrices of products may be quantised: data is then as base/codes.h says. */
struct weight {
    void *data;
    enum dtype type; /* of what is not quantised */
    int rows, cols;
    struct code_form form; /* form.codes CODES_NONE: dense, row-major */
    /* Device memory [cols]: column c takes input order[c] of n_inputs, -1: none. Products take activations that
     * gather_columns has put into this order. NULL: columns are in the order of the inputs. */
    const int32_t *order;
    int n_inputs;
    const struct input_form *inputs; /* how activations are quantised before a product; NULL: they are not */
    void *wide; /* of a quantised one: scratch of WIDE_BYTES that such matrices share; NULL on the CPU */
};

/* Scratch into which products of many tokens dequantise weights, some rows at a time. */
#define WIDE_BYTES ((size_t)64 << 20)

static inline bool weight_is_quantised(const struct weight *w)
{
    return w->form.codes != CODES_NONE;
}

/* Prefixes of KV blocks that several sequences share, so that attention may read these blocks once for all of them.
 * Device memory that find_prefixes fills. */
#define PREFIX_TOKENS  1024 /* the first tokens of a batch, which are searched */
#define PREFIX_COUNT   16   /* prefixes, at most */
#define PREFIX_BLOCKS  16   /* of the shortest prefix */
#define PREFIX_MEMBERS 4    /* fewest tokens that share a prefix */
struct shared_prefix {
    int32_t first, n_members, n_blocks; /* member[first], .. are the tokens that share it */
};
struct prefixes {
    int32_t n_prefixes;
    struct shared_prefix prefix[PREFIX_COUNT];
    int32_t member[PREFIX_TOKENS];    /* tokens of each prefix in turn, ascending */
    int32_t place[PREFIX_TOKENS];     /* index of each token in `member`; -1: it shares no prefix */
    int32_t prefix_of[PREFIX_TOKENS]; /* prefix of each token; -1: none */
};

/* One step's ragged batch: token t belongs to the sequence in slot[t] and is at position pos[t]. Device memory. */
struct batch {
    int n_tokens;
    int n_alone; /* number of leading tokens that are the only ones of their sequence; later ones may be, too */
    const int32_t *token;    /* [n_tokens] token id to feed */
    const int32_t *slot;     /* [n_tokens] */
    const int32_t *pos;      /* [n_tokens] position in its sequence, from 0 */
    const int32_t *rope_len; /* [n_tokens] sequence length that chooses the rotation (see struct rope) */
    /* [n_slots, blocks_per_slot] KV block of every 16 positions of a slot. For windowed layers only the entries
     * of blocks with a key that some token sees are valid. */
    const int32_t *block_table;
    int blocks_per_slot;
    int longest;        /* no sequence has more tokens, those of this step included; 0: not known */
    int windowed_table; /* the table of windowed layers begins this many entries after block_table; 0: it is the same */
    const struct prefixes *prefixes; /* of the n_alone tokens and block_table; NULL: not searched */
};

/* One layer's attention heads on this rank. Local head h is global head first_head + h and reads the local KV head
 * (first_head + h) / heads_per_kv - first_kv_head. */
struct heads {
    int n_heads, n_kv_heads, head_dim;
    int first_head, first_kv_head, heads_per_kv; /* heads_per_kv: query heads per KV head in the whole model */
    float scale;                                 /* of q.k */
    int window;                                  /* keys k with pos-window < k <= pos are seen; 0: all k <= pos */
    const float *alibi_slopes;                   /* [n_heads] device memory: score += slope * k; NULL: none */
    const void *sinks; /* [n_heads] device memory: attention sink, one more score in the softmax, of a key without a
                          value; NULL: none */
    enum dtype sinks_type;
    int chunk; /* only keys k with k / chunk == pos / chunk are seen; 0: all. Not with a window */
    float cap; /* c: c tanh(score / c) instead of the score, before masking; 0: the score itself */
    /* [2, n_kv_heads] device memory, scales of keys, then of values: the cache holds E4M3 codes; NULL: it holds
     * activations */
    const float *kv_scales;
};

/* One row per token and head: that of token t and head h begins at element t * per_token + h * per_head of `data`. */
struct head_rows {
    void *data;
    int per_token, per_head;
};

/* Local KV heads. Half open. */
struct kv_range {
    int begin, end;
};

/* The norms of q and k heads before the rotation. A weight is [1, head_dim] for all heads, or [1, n_heads head_dim]
 * with one part for each of this rank's heads. */
struct head_norms {
    const struct weight *q, *k; /* NULL: heads are not normalised, or */
    bool unit;                  /* normalised without weights */
    bool rotated;               /* normalised after the rotation: heads with weights, each by itself, of an RMS kind */
    enum norm_kind kind;
    float eps;
    /* Device memory [n_tokens, 2]: the sums of squares over all q and over all k heads of the model, which are
     * normalised as one row (RMS kinds). NULL: each head by itself. */
    const float *squares;
    int n_q, n_k; /* elements of those rows */
};

/* The routing of a step's tokens to experts. Token t and its i-th expert are pair t * n_chosen + i. Device memory. */
struct routes {
    float *logits;   /* [n_tokens, n_experts] */
    int32_t *expert; /* [n_tokens, n_chosen] the chosen experts, the likeliest first */
    float *share;    /* [n_tokens, n_chosen] weight of the expert's result */
    int32_t *begin;  /* [n_experts + 1] where each expert's pairs begin in `pair` */
    int32_t *pair;   /* [n_tokens n_chosen] the pairs by expert, those of one expert by token */
    /* The experts that this rank holds: the products have their weights, and ignore the other experts' pairs. */
    int first_held, n_held;
};

/* Per-slot state that the device keeps between steps. */
struct sampler {
    int n_slots, max_len, vocab; /* vocab: of the whole model */
    int32_t *history;            /* [n_slots, max_len] every token fed so far, by position */
    int32_t *last_token;     /* [n_slots] the token sampled last, any one of several; then [n_slots] a draft model's */
    struct sampling *params; /* [n_slots] */
    int mask_words;
    /* [rows of a sampling batch, mask_words], read for rows whose slot's params are masked: bit i of word i / 32 allows
     * token i */
    uint32_t *mask;
    void *scratch; /* ops->sample_scratch_bytes(vocab) bytes per row of a sampling batch */
};

/* How a device reaches the memory of another device of the host. */
enum peer_link { PEER_UNKNOWN, PEER_NONE, PEER_PCIE, PEER_NVLINK, PEER_KINDS };

/* Additional functions of a device whose operations continue after they return. */
struct async_ops {
    /* An id unique within the host, and the model name: "0000:1a:00.0", "NVIDIA H200". */
    void (*identify)(struct queue *q, char *id, char *model, size_t bytes);
    /* The link to another device, by its id. PEER_UNKNOWN: this process does not see that device. */
    enum peer_link (*peer_link)(struct queue *q, const char *id);

    /* Pinned host memory, for asynchronous copies at full speed: zeroed; NULL (and queue.err) if there is none */
    void *(*host_alloc)(struct queue *q, size_t bytes);
    void (*host_free)(struct queue *q, void *p);
    /* Pins existing host memory. A failure only makes copies slower. */
    bool (*host_register)(struct queue *q, void *p, size_t bytes);
    void (*host_unregister)(struct queue *q, void *p);

    /* An upload that does not wait for work already enqueued, none of which may use these bytes of dst; work enqueued
     * later waits for it. src is host_alloc's memory. Not during capture. */
    void (*upload_aside)(struct queue *q, void *dst, const void *src, size_t bytes);

    /* Work enqueued between the two is captured instead of run: one graph, which can be launched any number of times
     * with the captured arguments. NULL (and queue.err) on failure. */
    void (*begin_capture)(struct queue *q);
    void *(*end_capture)(struct queue *q);
    void (*launch_graph)(struct queue *q, void *graph);
    void (*free_graph)(struct queue *q, void *graph);

    /* An event: marks this point of the queue; tells whether the device has passed it; waits until it has. which: 0 or
     * 1. */
    void (*mark)(struct queue *q, int which);
    bool (*passed)(struct queue *q, int which);
    void (*wait_mark)(struct queue *q, int which);

    /* Clocks in the queue, two sets of n, from open_stamps (returns -1 and queue.err on failure) to close_stamps.
     * stamp: the device writes the time when it reaches this point; in a captured graph, at every launch.
     * read_stamps, once the device has passed the first n of a set: seconds[i] lie between i and i + 1, i < n - 1. */
    int (*open_stamps)(struct queue *q, int n);
    void (*close_stamps)(struct queue *q);
    void (*stamp)(struct queue *q, int set, int i);
    void (*read_stamps)(struct queue *q, int set, int n, double *seconds);

    /* A named range with a number on the time line of an attached profiler (NVTX): the work enqueued between the two.
     * Ranges nest. The operations themselves are ranges too. */
    void (*range_begin)(const char *name, int64_t number);
    void (*range_end)(void);
};

struct peer_ops;
struct persistent_ops;
struct input_ops;

/* The operations themselves, and what each computes: kernels/op_list.h. */
struct ops {
    const char *name;                        /* "cpu", "cuda" */
    const struct async_ops *async;           /* NULL: operations are synchronous */
    const struct peer_ops *peer;             /* memory that devices share, see kernels/peer.h; NULL: none */
    const struct persistent_ops *persistent; /* whole decode steps, see kernels/persistent.h; NULL: none */
    const struct input_ops *inputs;          /* quantised activations, see kernels/inputs.h; NULL: unsupported */
    bool shares_host_memory;
    int max_head_dim; /* largest head size that attention supports; 0: any */
#define DEVICE(result, name, parameters)             result(*name) parameters;
#define STEP(phase, name, parameters, arguments)     void(*name) parameters;
#define OPTIONAL(phase, name, parameters, arguments) bool(*name) parameters;
#include "kernels/op_list.h"
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
