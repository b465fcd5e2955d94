/* kernels/cuda/attention/attention_prompts_host.cuh - which devices attention_prompts.cuh is for, and its launch.
 * Host only. */
#ifndef ATTENTION_ATTENTION_PROMPTS_HOST_CUH
#define ATTENTION_ATTENTION_PROMPTS_HOST_CUH

#include "kernels/cuda/attention/attention_prompts.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/warpgroup_host.cuh"

#define PROMPT_L2_BYTES (32 << 20) /* of L2, for keys and values that many tiles read */

struct prompts_state {
    prompt_tiles *tiles; /* device; NULL: the device or this program is not capable of the kernel */
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

template <typename T, int HD>
static cudaError_t allow_prompts(void)
{
    return cudaFuncSetAttribute((const void *)attention_prompts<T, HD>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                sizeof(prompt_shared<T, HD>) + PROMPT_ALIGN);
}

/* The number of query heads of a KV head that fill a tile's rows but for a twentieth, with whole tokens. */
static inline int heads_of_tile(int heads_per_kv)
{
    int packed = heads_per_kv < PROMPT_ROWS ? heads_per_kv : PROMPT_ROWS;
    while (packed > 1 &&
           (heads_per_kv + packed - 1) / packed * PROMPT_ROWS * 20 > heads_per_kv * (PROMPT_ROWS / packed) * 21)
        packed--;
    return packed;
}

/* The cache as pages, [pages][2 groups of rows][chunks of SPAN bytes][8 rows][SPAN]: a box is a page, in just this
 * order. How many pages there are, nobody here knows; none is asked for that the block table does not have. */
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

/* Has attention_prompts code for these heads and so many tokens? */
template <typename T>
static bool takes_prompts(const struct prompts_state *s, const attention_args<T> &a, int width)
{
    return s->tiles && a.heads.head_dim == width && a.heads.scale > 0 && a.heads.cap == 0 &&
           a.n_tokens <= PROMPT_MAX_TILES;
}

template <typename T, int HD>
static void launch_prompts(struct queue *q, const struct prompts_state *s, const attention_args<T> &a)
{
    prompt_args<T> p = {};
    p.a = a;
    p.tiles = s->tiles;
    p.packed = heads_of_tile(a.heads.heads_per_kv);
    p.parts = (a.heads.heads_per_kv + p.packed - 1) / p.packed;
    const int STEP = prompt_layout<HD>::STEP;
    tiling_args tiling = {};
    tiling.slot = a.slot;
    tiling.pos = a.pos;
    tiling.n_tokens = a.n_tokens;
    tiling.n_alone = a.n_alone;
    tiling.tile_tokens = PROMPT_ROWS / p.packed;
    tiling.step = STEP;
    tiling.window = a.heads.window;
    tiling.n_kv_heads = a.heads.n_kv_heads;
    tiling.l2_steps = PROMPT_L2_BYTES / (2 * STEP * HD * (int)sizeof(T));
    launch_early(q, s->launches_early, tile_prompts, dim3(1), TILING_THREADS, 0, tiling, p.tiles);
    launch_early(q, s->launches_early, attention_prompts<T, HD>, dim3((unsigned)s->n_blocks), PROMPT_THREADS,
                 sizeof(prompt_shared<T, HD>) + PROMPT_ALIGN, p, page_map<T, HD>(q, s, a.k_cache),
                 page_map<T, HD>(q, s, a.v_cache));
}

#endif
