/* kernels/cuda/attention/attention_host.cuh - the state of attention on a device, and the launches of the kernels for
 * single tokens. Host only */
#ifndef ATTENTION_ATTENTION_HOST_CUH
#define ATTENTION_ATTENTION_HOST_CUH

#include "kernels/cuda/attention/attention_many.cuh"
#include "kernels/cuda/attention/attention_prompts_host.cuh"

#define EVERY_TOKEN_ALONE 16
#define PARTIAL_BYTES     ((size_t)72 << 20) /* of partial sums, for the last block of an item, or of scores */
#define MAX_ITEMS         ((size_t)1 << 16)  /* items whose keys may be divided */

/* cuda_state.attention */
struct attention_state {
    float *partial;      /* PARTIAL_BYTES */
    unsigned *n_arrived; /* [MAX_ITEMS] zeros between launches */
    float *shared;       /* SHARED_BYTES; NULL: the device does not support shared keys */
    struct prompts_state prompts;
    /* Capabilities of the device; the latter two mean enough shared memory. */
    bool launches_early, tensor_cores, latents;
};

/* The arguments but for those of single tokens and shared prefixes' sums. */
template <typename T, typename C>
static inline attention_args<T, C> attention_args_of(T *out, const T *qkv, const C *k_cache, const C *v_cache,
                                                     const struct heads *heads, const struct batch *batch)
{
    attention_args<T, C> a = {};
    a.out = out, a.qkv = qkv, a.k_cache = k_cache, a.v_cache = v_cache;
    a.heads = *heads;
    if (a.heads.chunk >= batch->blocks_per_slot * KV_BLOCK_TOKENS) /* upper bound of sequence lengths */
        a.heads.chunk = 0;
    a.slot = batch->slot, a.pos = batch->pos, a.block_table = batch->block_table;
    a.n_tokens = batch->n_tokens, a.n_alone = batch->n_alone;
    a.blocks_per_slot = batch->blocks_per_slot;
    a.most_blocks = batch->longest > 0 ? (batch->longest + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS : a.blocks_per_slot;
    a.prefixes = batch->prefixes;
    return a;
}

/* The number of items per token. */
static inline size_t items_of(const struct heads *h)
{
    return (size_t)h->n_kv_heads * (size_t)((h->heads_per_kv + DECODE_ROWS - 1) / DECODE_ROWS);
}

/* The most blocks of the cache that a token attends to. */
template <typename T, typename C>
static inline int most_blocks_seen(const attention_args<T, C> &a)
{
    int in_window = a.heads.window > 0 ? (a.heads.window - 1) / KV_BLOCK_TOKENS + 2 : a.blocks_per_slot;
    return in_window < a.blocks_per_slot ? in_window : a.blocks_per_slot;
}

/* Items of n_tokens tokens have up to max_parts parts, each of least_blocks blocks of the cache or more, if there is
 * memory for their sums, otherwise one. */
template <typename T, typename C>
static inline void divide_items(attention_args<T, C> *a, const struct attention_state *s, int n_tokens, int max_parts,
                                int least_blocks, int width)
{
    int possible = (most_blocks_seen(*a) + least_blocks - 1) / least_blocks;
    max_parts = possible < 1 ? 1 : possible < max_parts ? possible : max_parts;
    size_t n_items = (size_t)n_tokens * items_of(&a->heads);
    a->head_parts = (a->heads.heads_per_kv + DECODE_ROWS - 1) / DECODE_ROWS;
    a->rows_per_item = a->heads.heads_per_kv < DECODE_ROWS ? a->heads.heads_per_kv : DECODE_ROWS;
    size_t n_rows = n_items * (size_t)max_parts * (size_t)a->rows_per_item;
    bool fits = n_items <= MAX_ITEMS && n_rows * (size_t)(width + 2) * sizeof(float) <= PARTIAL_BYTES;
    a->max_parts = fits ? max_parts : 1;
    a->partial = s->partial;
    a->partial_sums = (float2 *)(s->partial + (fits ? n_rows * (size_t)width : 0));
    a->n_arrived = s->n_arrived;
}

/* Launches a kernel that works as attention_decode.cuh. more: its further arguments */
template <typename T, int HD, typename C, typename K, typename... M>
static inline void launch_decode(struct queue *q, attention_args<T, C> a, K kernel, const M &...more)
{
    const struct attention_state *s = (const struct attention_state *)cuda_state(q)->attention;
    divide_items(&a, s, a.n_tokens, DECODE_MAX_PARTS, DECODE_MIN_BLOCKS, HD);
    dim3 grid((unsigned)a.max_parts, (unsigned)items_of(&a.heads), (unsigned)a.n_tokens);
    launch_early(q, s->launches_early, kernel, grid, ATTENTION_WARPS * 32, sizeof(decode_shared<T, HD>), a, more...);
}

/* The same as attention_many.cuh. */
template <typename T, int HD, typename C, typename K, typename... M>
static inline void launch_many(struct queue *q, attention_args<T, C> a, K kernel, const M &...more)
{
    const struct attention_state *s = (const struct attention_state *)cuda_state(q)->attention;
    divide_items(&a, s, a.n_alone, MANY_PARTS, MANY_PART_BLOCKS, HD);
    size_t n_bundles = (size_t)(a.n_tokens - a.n_alone + MANY_TOKENS - 1) / MANY_TOKENS;
    size_t n_blocks = ((size_t)a.n_alone * (size_t)a.max_parts + n_bundles) * items_of(&a.heads);
    launch_early(q, s->launches_early, kernel, dim3((unsigned)n_blocks), MANY_WARPS * 32,
                 sizeof(many_warp<T, HD>) * MANY_WARPS, a, more...);
}

/* Called once at start where tensor cores are used. */
cudaError_t prepare_fresh_attention(void);

/* attention_same.cu: the first n tokens, each by itself, with heads that takes_prompts accepts; and tokens as
 * attention_fresh.cuh takes them, of 64 or 128 elements. false: not supported, or slower. */
template <typename T, int HD>
void attend_same(struct queue *q, attention_args<T> a, int n);
template <typename T>
struct fresh_args;
template <typename T, int HD>
bool store_and_attend_same(struct queue *q, attention_args<T> a, const fresh_args<T> &f);
/* Called once at start where prompts are supported. */
cudaError_t prepare_same_attention(void);

#endif
