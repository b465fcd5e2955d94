/* kernels/cuda/cuda.h - the operations of ops_cuda, one family per file, counterparts of kernels/cpu/;
 * kernels/op_list.h says what each computes. Included by C and by CUDA files: nothing of CUDA itself here, see
 * device.cuh. */
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H

#include "kernels/ops.h"
#include "kernels/peer.h"
#include "kernels/persistent.h"

#define CUDA_MAX_HEAD_DIM  576 /* most elements of a head in attention */
#define CUDA_TILE_HEAD_DIM 256 /* the same on the tensor cores */

#ifdef __cplusplus
extern "C" {
#endif

/* A row whose logits are not numbers, as the sampling kernel reports it. */
struct cuda_fault {
    int n_rows, slot; /* n_rows > 0: there are some; slot: of the first */
};

/* The waits of the persistent kernel that timed out before it trapped, for the message: see words.cuh. */
struct cuda_vain {
    /* For another rank's words and for this device's own: the epoch, 0 for none; with the rank in the upper half of a
     * word and the waiting block in the lower half. */
    unsigned long long for_others[2], for_own[2];
    unsigned long long for_sum[2]; /* the same for a sum over peer memory; the first word is 1 */
    int n_layers;                  /* of the model; from the host */
};

/* queue.impl */
struct cuda_state {
    int device, n_multiprocessors;
    bool launches_early; /* a kernel may begin before the previous one has ended: see launch in device.cuh */
    bool recording;      /* between begin_capture and end_capture */
    void *matmul, *attention, *experts;  /* state of these files: cuda_matmul_open and so on */
    char id[32];                         /* "0000:1a:00.0" */
    struct cuda_vain *vain;              /* pinned, written by the device */
    struct cuda_fault *fault;            /* pinned, written by the device, checked when the host waits */
    void *fault_dev;                     /* the device's own count, see sample.cu */
    unsigned long long *word_dev, *word; /* one word on the device, and its pinned copy */
    void *staging;                       /* device memory of upload_transposed */
    size_t staging_bytes;
    void *mark[2];   /* cudaEvent_t */
    void **stamp[2]; /* [n_stamps] cudaEvent_t; NULL: none are open */
    int n_stamps;
    void *aside;  /* cudaStream_t of copies beside the queue, */
    void *copied; /* and the cudaEvent_t of the newest one */
};

static inline struct cuda_state *cuda_state(const struct queue *q)
{
    return (struct cuda_state *)q->impl;
}

/* The table's open calls *_open once the stream exists; its close calls *_close before the stream is destroyed, even
 * without *_open. */
int cuda_matmul_open(struct queue *q, struct err *e);
void cuda_matmul_close(struct queue *q);
int cuda_attention_open(struct queue *q, struct err *e);
void cuda_attention_close(struct queue *q);
int cuda_experts_open(struct queue *q, struct err *e);
void cuda_experts_close(struct queue *q);

#define DEVICE(result, name, parameters)             result cuda_##name parameters;
#define STEP(phase, name, parameters, arguments)     void cuda_##name parameters;
#define OPTIONAL(phase, name, parameters, arguments) bool cuda_##name parameters;
#include "kernels/op_list.h"

/* async.cu */
void cuda_identify(struct queue *q, char *id, char *model, size_t bytes);
enum peer_link cuda_peer_link(struct queue *q, const char *id);
void *cuda_host_alloc(struct queue *q, size_t bytes);
void cuda_host_free(struct queue *q, void *p);
bool cuda_host_register(struct queue *q, void *p, size_t bytes);
void cuda_host_unregister(struct queue *q, void *p);
void cuda_upload_aside(struct queue *q, void *dst, const void *src, size_t bytes);
void cuda_begin_capture(struct queue *q);
void *cuda_end_capture(struct queue *q);
void cuda_launch_graph(struct queue *q, void *graph);
void cuda_free_graph(struct queue *q, void *graph);
void cuda_mark(struct queue *q, int which);
bool cuda_passed(struct queue *q, int which);
void cuda_wait_mark(struct queue *q, int which);
int cuda_open_stamps(struct queue *q, int n);
void cuda_close_stamps(struct queue *q);
void cuda_stamp(struct queue *q, int set, int i);
void cuda_read_stamps(struct queue *q, int set, int n, double *seconds);
void cuda_range_begin(const char *name, int64_t number);
void cuda_range_end(void);

/* peer_memory.cu and peer_sum.cu, as kernels/peer.h says */
bool cuda_peer_share(struct queue *q, void *memory, unsigned char handle[PEER_HANDLE_BYTES]);
void *cuda_peer_connect(struct queue *q, const unsigned char handle[PEER_HANDLE_BYTES]);
void cuda_peer_disconnect(struct queue *q, void *memory);
const char *cuda_peer_refusal(struct queue *q, int n_ranks);
void *cuda_peer_open(struct queue *q, int rank, int n_ranks);
void cuda_peer_close(struct queue *q, void *p);
void *cuda_peer_memory(void *p);
void cuda_peer_attach(void *p, void *const *memory);
void cuda_peer_sum(struct queue *q, void *p, void *data, size_t n);
bool cuda_peer_takes_columns(const struct queue *q, const void *p, const int *begin, int n_rows);
void cuda_peer_gather_columns(struct queue *q, void *p, void *out, const void *in, const int *begin, int n_rows);
/* How often a part is polled before a kernel traps. */
void cuda_peer_patience(struct queue *q, uint32_t looks);

/* persistent.cu, as kernels/persistent.h says */
const char *cuda_persistent_refusal(struct queue *q, const struct decode_model *m);
size_t cuda_persistent_sums_bytes(struct queue *q, int n_ranks);
void *cuda_persistent_open(struct queue *q, const struct decode_model *m, void *sums);
void cuda_persistent_close(struct queue *q, void *p);
int cuda_persistent_max_tokens(const void *p);
void *cuda_persistent_memory(void *p);
void cuda_persistent_attach(struct queue *q, void *p, void *const *memory);
/* How often a word is polled before the kernel traps: another rank's, and the device's own, which may wait for
 * these. */
void cuda_persistent_patience(struct queue *q, uint32_t for_others, uint32_t for_own);
/* For tests: the step counters, [*n_blocks] on the device. A block whose counter differs makes all others wait. */
uint32_t *cuda_persistent_steps(struct queue *q, void *p, int *n_blocks);
void cuda_persistent_run(struct queue *q, void *p, void *logits, const struct batch *batch, const float *cos_sin,
                         const float *window_cos_sin);

#ifdef __cplusplus
}
#endif

#endif
