/* kernels/cuda/attention/attention_prompts_host.cuh - which devices and heads attention_prompts.cuh supports, and its
 * launch. Host only. */
#ifndef ATTENTION_ATTENTION_PROMPTS_HOST_CUH
#define ATTENTION_ATTENTION_PROMPTS_HOST_CUH

#include "kernels/cuda/attention/attention_prompts.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/warpgroup_host.cuh"

#define SHARED_PARTS    8          /* most parts of a shared prefix */
#define PROMPT_L2_BYTES (32 << 20) /* of L2, for keys and values that many tiles read */

struct prompts_state {
    prompt_tiles *tiles; /* device; NULL: the device or this build does not support the kernel */
    PFN_cuTensorMapEncodeTiled_v12000 encode;
    int n_blocks; /* of the grid: one for every multiprocessor */
    bool launches_early;
};

static inline cudaError_t open_prompts(struct queue *q, struct prompts_state *s)
{
    s->n_blocks = cuda_state(q)->n_multiprocessors;
    s->launches_early = cuda_state(q)->launches_early;
    if (has_warpgroups(q))
        s->encode = find_encoder(q);
    return s->encode ? cudaMalloc(&s->tiles, sizeof *s->tiles) : cudaSuccess;
}

/* Heads of tokens that share keys have 64 or 128 elements. */
#define TAKES_SHARED(HD) ((HD) == 64 || (HD) == 128)

template <typename T, int HD>
static cudaError_t allow_prompts(void)
{
    const cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    const int bytes = sizeof(prompt_shared<T, HD>) + PROMPT_ALIGN;
    cudaError_t rc = cudaFuncSetAttribute((const void *)attention_prompts<T, HD, false>, most, bytes);
    if constexpr (TAKES_SHARED(HD))
        if (rc == cudaSuccess)
            rc = cudaFuncSetAttribute((const void *)attention_prompts<T, HD, true>, most, bytes);
    return rc;
}

/* The number of query heads of a KV head with which whole tokens fill at least 95 % of a tile's rows. */
static inline int heads_of_tile(int heads_per_kv)
{
    int packed = heads_per_kv < PROMPT_ROWS ? heads_per_kv : PROMPT_ROWS;
    while (packed > 1 &&
           (heads_per_kv + packed - 1) / packed * PROMPT_ROWS * 20 > heads_per_kv * (PROMPT_ROWS / packed) * 21)
        packed--;
    return packed;
}

/* The cache as pages, [pages][2 halves of its rows][chunks of SPAN bytes][8 rows][SPAN]: a box is a page, in just this
 * order. The number of pages is unknown here; only pages of the block table are loaded. */
template <typename T, int HD>
static CUtensorMap page_map(struct queue *q, const struct prompts_state *s, const T *cache)
{
    using layout = prompt_layout<HD>;
    const cuuint64_t row = HD * sizeof(T), n_pages = ((cuuint64_t)1 << 40) / layout::PAGE;
    const cuuint64_t size[] = {layout::SPAN / sizeof(T), 8, row / layout::SPAN, 2, n_pages};
    const cuuint64_t pitch[] = {row, layout::SPAN, 8 * row, layout::PAGE};
    const cuuint32_t box[] = {layout::SPAN / sizeof(T), 8, (cuuint32_t)(row / layout::SPAN), 2, 1};
    const cuuint32_t stride[] = {1, 1, 1, 1, 1};
    CUtensorMap map;
    CUresult rc = s->encode(
        &map, std::is_same<T, __half>::value ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5,
        (void *)cache, size, pitch, box, stride, CU_TENSOR_MAP_INTERLEAVE_NONE,
        layout::SPAN == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
        : layout::SPAN == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                             : CU_TENSOR_MAP_SWIZZLE_32B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (rc != CUDA_SUCCESS)
        ERR(&q->err, ERR_INTERNAL, "cuTensorMapEncodeTiled of pages of %d x %d: error %d", KV_BLOCK_TOKENS, HD,
            (int)rc);
    return map;
}

/* Does attention_prompts support these heads and this number of tokens? */
template <typename T>
static bool takes_prompts(const struct prompts_state *s, const attention_args<T> &a, int width)
{
    return s->tiles && a.heads.head_dim == width && a.heads.scale > 0 && a.heads.cap == 0 &&
           a.n_tokens <= PROMPT_MAX_TILES;
}

template <typename T>
static prompt_args<T> pack_heads(const struct prompts_state *s, const attention_args<T> &a)
{
    prompt_args<T> p = {};
    p.a = a;
    p.tiles = s->tiles;
    p.packed = heads_of_tile(a.heads.heads_per_kv);
    p.parts = (a.heads.heads_per_kv + p.packed - 1) / p.packed;
    return p;
}

/* The number of parts of a shared prefix: enough to fill the device twice if all tokens share one, limited by `bytes`
 * for sums. 0: the batch's tokens share nothing, or the kernel does not support their heads. */
template <typename T>
static int shared_parts(const struct prompts_state *s, const attention_args<T> &a, int width, size_t bytes)
{
    const struct heads &h = a.heads;
    if (a.prefixes == NULL || !TAKES_SHARED(width) || !takes_prompts(s, a, width) || h.window > 0 || h.chunk > 0 ||
        h.alibi_slopes != NULL)
        return 0;
    const prompt_args<T> p = pack_heads(s, a);
    int n = a.n_alone < PREFIX_TOKENS ? a.n_alone : PREFIX_TOKENS, tile = PROMPT_ROWS / p.packed;
    int n_units = (n + tile - 1) / tile * h.n_kv_heads * p.parts, wanted = (2 * s->n_blocks + n_units - 1) / n_units;
    size_t most = bytes / ((size_t)n * (size_t)h.n_heads * (size_t)(width + 2) * sizeof(float));
    wanted = wanted < SHARED_PARTS ? wanted : SHARED_PARTS;
    return most < (size_t)wanted ? (int)most : wanted;
}

/* Attends to the keys of shared prefixes. a.shared has memory for the sums. */
template <typename T, int HD>
static void launch_shared(struct queue *q, const struct prompts_state *s, const attention_args<T> &a)
{
    if constexpr (TAKES_SHARED(HD))
        launch_early(q, s->launches_early, attention_prompts<T, HD, true>, dim3((unsigned)s->n_blocks), PROMPT_THREADS,
                     sizeof(prompt_shared<T, HD>) + PROMPT_ALIGN, pack_heads(s, a), page_map<T, HD>(q, s, a.k_cache),
                     page_map<T, HD>(q, s, a.v_cache));
}

/* For the tokens after the first a.n_alone. singles: also for those without neighbours. */
template <typename T, int HD>
static void launch_prompts(struct queue *q, const struct prompts_state *s, const attention_args<T> &a, bool singles)
{
    prompt_args<T> p = pack_heads(s, a);
    const int STEP = prompt_layout<HD>::STEP;
    tiling_args tiling = {};
    tiling.slot = a.slot;
    tiling.pos = a.pos;
    tiling.n_tokens = a.n_tokens;
    tiling.n_alone = a.n_alone;
    tiling.singles = singles;
    tiling.tile_tokens = PROMPT_ROWS / p.packed;
    tiling.step = STEP;
    tiling.window = a.heads.window;
    tiling.n_kv_heads = a.heads.n_kv_heads;
    tiling.l2_steps = PROMPT_L2_BYTES / (2 * STEP * HD * (int)sizeof(T));
    launch_early(q, s->launches_early, tile_prompts, dim3(1), TILING_THREADS, 0, tiling, p.tiles);
    launch_early(q, s->launches_early, attention_prompts<T, HD, false>, dim3((unsigned)s->n_blocks), PROMPT_THREADS,
                 sizeof(prompt_shared<T, HD>) + PROMPT_ALIGN, p, page_map<T, HD>(q, s, a.k_cache),
                 page_map<T, HD>(q, s, a.v_cache));
}

#endif
