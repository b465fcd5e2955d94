/* kernels/cuda/step/persistent_host.cuh - shared by the host's sides of the narrow and of the wide persistent kernel */
#ifndef STEP_PERSISTENT_HOST_CUH
#define STEP_PERSISTENT_HOST_CUH

#include "kernels/cuda/step/persistent_chain.cuh"

/* The object that cuda_persistent_open makes. */
struct persistent {
    struct chain_args args, wide; /* except for the step's arguments */
    int max_tokens, max_shared;   /* max_tokens: of the narrow kernel */
    bool has_wide;
    bool full, outputs;   /* the FULL kernels: see persistent_kernel; those with CHAIN_OUTPUTS */
    bool several;         /* a sequence may have several tokens in a step, and taps may be wanted */
    bool coded_keys;      /* keys and values are in FP8 */
    bool keys;            /* the kernels with CHAIN_KEYS */
    bool two_rotations;   /* windowed layers have their own */
    void *sums;           /* this device's, if they are its own; NULL: they are the caller's */
    enum chain_form form; /* of the quantised weights */
    struct chain_layer *layers;
    const float **scales; /* NULL: no weights have scales of rows */
    CUtensorMap *maps, *group_maps, *wide_maps, *input_maps;
    unsigned long long *words;
    unsigned char *wide_memory;
    uint32_t *step;
    struct expert_step *experts; /* of persistent_experts.cu; NULL: the layers are dense */
    CUtensorMap *key_maps;       /* see chain_args */
};

/* The form of a product's weights; FORM_NONE: 16-bit ones, or codes that no kernel supports. */
enum chain_form form_of_weight(const struct weight *w);
bool weight_has_groups(const struct weight *w);

/* Opens the wide kernel after the rest of p, for a model that the narrow one supports; sets has_wide if it does,
 * too. */
void wide_open(struct queue *q, struct persistent *p, const struct decode_model *m);
void wide_close(struct queue *q, struct persistent *p);
void wide_patience(struct queue *q, uint32_t for_others, uint32_t for_own);
/* a: p->wide with the step's arguments. Enqueued. */
void wide_run(struct queue *q, const struct persistent *p, struct chain_args *a);

typedef void (*chain_kernel)(struct chain_args);

/* The narrow kernels for weights of one form, FULL ones or not. slots: of the ring */
struct code_kernels {
    void (*open)(struct queue *q, int max_shared);
    void (*patience)(struct queue *q, uint32_t for_others, uint32_t for_own);
    void (*run)(struct queue *q, int slots, const struct chain_args *a);
};
extern const struct code_kernels code_kernels_full, code_kernels_e4m3, code_kernels_e4m3_full, code_kernels_int8,
    code_kernels_int8_full, code_kernels_int4, code_kernels_int4_full, code_kernels_outputs, code_kernels_e4m3_one,
    code_kernels_int4_one, code_kernels_keys, code_kernels_coded_keys;

/* Lays out parts of these sizes in shared memory, one after the other from `at` on: *offset[i] = start; the last:
 * end. */
template <size_t N>
static inline void place_shared(int *const (&offset)[N], const int (&size)[N - 1], int at)
{
    for (size_t i = 0; i < N - 1; i++) {
        *offset[i] = at;
        at += (size[i] + 127) / 128 * 128;
    }
    *offset[N - 1] = at;
}

/* The kernels give up after this many reads of a word, some 6 and 9 minutes on an H200: longer than the default
 * deadline of a step, whose message says more (rank/watch/watch.h). */
#define PATIENCE     1000000000u
#define PATIENCE_OWN 4000000000u
static inline void set_patience(struct queue *q, uint32_t for_others, uint32_t for_own)
{
    const decltype(word_patience) patience = {cuda_state(q)->vain, for_others, for_own};
    CUDA_TRY(q, cudaMemcpyToSymbol(word_patience, &patience, sizeof patience));
}

#if !CHAIN_LONE && !CHAIN_ONE
/* The arguments that differ from step to step. */
static inline void set_batch(struct chain_args *a, const struct batch *batch, const float *cos_sin, void *logits)
{
    a->n_tokens = batch->n_tokens;
    a->token = batch->token;
    a->slot = batch->slot;
    a->pos = batch->pos;
    a->block_table = batch->block_table;
    a->blocks_per_slot = batch->blocks_per_slot;
    a->windowed_table = batch->windowed_table;
    a->cos_sin = cos_sin;
    a->logits = logits;
}
#endif

/* All blocks wait for each other, so all must be resident: a cooperative launch guarantees it. It overlaps the end of
 * the preceding kernels where the device can. A: chain_args, or a struct that extends it. */
template <typename A>
static inline void launch_chain(struct queue *q, void (*kernel)(A), const A &a)
{
    cudaLaunchAttribute attribute[2] = {};
    attribute[0].id = cudaLaunchAttributeCooperative;
    attribute[0].val.cooperative = 1;
    attribute[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)cuda_state(q)->n_multiprocessors);
    config.blockDim = dim3(CHAIN_THREADS + STREAM_THREADS);
    config.dynamicSmemBytes = (size_t)a.at.bytes;
    config.stream = cuda_stream(q);
    config.attrs = attribute;
    config.numAttrs = cuda_state(q)->launches_early ? 2 : 1;
    CUDA_TRY(q, cudaLaunchKernelEx(&config, kernel, a));
}

#endif
