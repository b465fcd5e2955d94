/* kernels/cuda/attention/attention_latent.cu - see attention_latent.cuh. An item is one token and up to 16 query heads,
 * which are the rows of the products; its keys are divided among blocks as in attention_decode.cuh. A block copies
 * TILE_KEYS keys at a time to shared memory. Each warp computes the scores of 8 of them; then all warps get all softmax
 * weights, and each computes its columns of the result. */
#include "kernels/cuda/attention/attention_latent.cuh"

#define WARPS       8
#define THREADS     (WARPS * 32)
#define TILE_KEYS   (8 * WARPS)
#define TILE_BLOCKS (TILE_KEYS / KV_BLOCK_TOKENS)
#define PITCH       attention_tile<LATENT_DIM>::pitch
#define PIECES      (LATENT_DIM / 8) /* of 16 bytes, of a row */
#define COLUMNS     (LATENT_DIM / WARPS)
#define SUMS        (COLUMNS / 8)
#define CHAINS      4 /* independent accumulators */
static_assert(LATENT_MIN_BLOCKS == 2 * TILE_BLOCKS, "whole tiles");
static_assert(COLUMNS == 72, "four times 16 columns, and half of 16 more");

template <typename T>
struct latent_shared {
    T keys[2][TILE_KEYS][PITCH];
    T query[DECODE_ROWS][PITCH];
    T weight[DECODE_ROWS][TILE_KEYS + 8]; /* so that rows read together are in different banks */
    float of_warp[WARPS][DECODE_ROWS];    /* best scores, in the end sums */
    float share[DECODE_ROWS][DECODE_MAX_PARTS];
    bool is_last;
};

/* A warp's columns of the result so far: lane (g, c) of 8 x 4 has columns 8 j + 2 c, + 1 of rows g and g + 8. best: of
 * all keys; sum: of weights, over the lane's own keys. */
struct latent_sums {
    float out[SUMS][4];
    float best[2], sum[2];
};

/* Starts to copy the queries. */
template <typename T>
__device__ static inline void copy_queries(latent_shared<T> *sh, const attention_args<T> &a, const decode_item &m)
{
    const T *from = query_row(a, m.t, m.head0);
    for (int i = threadIdx.x; i < DECODE_ROWS * PIECES; i += THREADS) {
        int row = i / PIECES, column = i % PIECES * 8;
        bool wanted = row < m.n_rows;
        async_copy(&sh->query[row][column], from + (wanted ? row : 0) * LATENT_DIM + column, wanted);
    }
}

/* Starts to copy the keys of the blocks from b on, with zeros where the item does not look. */
template <typename T>
__device__ static inline void copy_keys(latent_shared<T> *sh, int stage, const attention_args<T> &a,
                                        const decode_item &m, int b)
{
    int id[TILE_BLOCKS];
#pragma unroll
    for (int i = 0; i < TILE_BLOCKS; i++)
        id[i] = b + i < m.end ? m.table[b + i] : -1;
#pragma unroll
    for (int i = 0; i < TILE_BLOCKS; i++)
#pragma unroll 1
        for (int piece = threadIdx.x; piece < KV_BLOCK_TOKENS * PIECES; piece += THREADS) {
            int row = piece / PIECES, column = piece % PIECES * 8, pos = (b + i) * KV_BLOCK_TOKENS + row;
            bool wanted = id[i] >= 0 && pos >= m.seen.first && pos <= m.seen.last;
            size_t at = ((size_t)(wanted ? id[i] : 0) * KV_BLOCK_TOKENS + row) * LATENT_DIM + column;
            async_copy(&sh->keys[stage][i * KV_BLOCK_TOKENS + row][column], a.k_cache + at, wanted);
        }
}

/* The scores of this warp's 8 keys, times log2 e; -infinity for keys that are not visible. key0: the tile's first. */
template <typename T>
__device__ static inline void make_scores(const latent_shared<T> *sh, int stage, float (&score)[4],
                                          const attention_args<T> &a, const decode_item &m, int key0)
{
    int lane = threadIdx.x % 32, octet = (int)threadIdx.x / 32 * 8, key = key0 + octet + lane % 4 * 2;
    int block = (key0 + octet) / KV_BLOCK_TOKENS;
    bool there = block < m.end && m.table[block] >= 0;
    const T *k = &sh->keys[stage][octet + lane % 8][lane / 8 * 8], *q = &sh->query[lane % 16][lane / 16 * 8];
    float sum[CHAINS][4] = {};
#pragma unroll
    for (int c = 0; c < LATENT_DIM / 32; c++) {
        uint32_t r[4], low[4], high[4];
        tensor_load(r, k + c * 32);
        tensor_load(low, q + c * 32);
        tensor_load(high, q + c * 32 + 16);
        tensor_mma<T>(sum[2 * c % CHAINS], low[0], low[1], low[2], low[3], r[0], r[1]);
        tensor_mma<T>(sum[(2 * c + 1) % CHAINS], high[0], high[1], high[2], high[3], r[2], r[3]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        bool seen = there && key + i % 2 >= m.seen.first && key + i % 2 <= m.seen.last;
        float s = (sum[0][i] + sum[1][i]) + (sum[2][i] + sum[3][i]);
        score[i] = seen ? s * (a.heads.scale * ATTENTION_LOG2_E) : -INFINITY;
    }
}

/* Turns scores into weights, for all warps, and rescales the sums to the best score of all. */
template <typename T>
__device__ static inline void make_weights(latent_shared<T> *sh, latent_sums &s, float (&score)[4])
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = fmaxf(score[2 * i], score[2 * i + 1]);
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        if (lane % 4 == 0)
            sh->of_warp[warp][lane / 4 + i * 8] = top;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = s.best[i];
#pragma unroll
        for (int v = 0; v < WARPS; v++)
            top = fmaxf(top, sh->of_warp[v][lane / 4 + i * 8]);
        float base = top == -INFINITY ? 0.0f : top, keep = fast_exp2(s.best[i] - base);
        float w0 = fast_exp2(score[2 * i] - base), w1 = fast_exp2(score[2 * i + 1] - base);
        s.best[i] = top;
        s.sum[i] = s.sum[i] * keep + w0 + w1;
        *(uint32_t *)&sh->weight[lane / 4 + i * 8][warp * 8 + lane % 4 * 2] = tensor_pack<T>(w0, w1);
#pragma unroll
        for (int j = 0; j < SUMS; j++) {
            s.out[j][2 * i] *= keep;
            s.out[j][2 * i + 1] *= keep;
        }
    }
    __syncthreads();
}

/* out += weights times values, this warp's columns. */
template <typename T>
__device__ static inline void add_values(const latent_shared<T> *sh, int stage, latent_sums &s)
{
    int lane = threadIdx.x % 32, column = (int)threadIdx.x / 32 * COLUMNS + lane / 16 * 8;
    const T *w = &sh->weight[lane % 16][lane / 16 * 8];
#pragma unroll
    for (int k = 0; k < TILE_KEYS; k += 16) {
        const T *v = &sh->keys[stage][k + lane % 16][column];
        uint32_t p[4], r[4];
        tensor_load(p, w + k);
#pragma unroll
        for (int j = 0; j < SUMS / 2; j++) {
            tensor_load_transposed(r, v + j * 16);
            tensor_mma<T>(s.out[2 * j], p[0], p[1], p[2], p[3], r[0], r[1]);
            tensor_mma<T>(s.out[2 * j + 1], p[0], p[1], p[2], p[3], r[2], r[3]);
        }
        tensor_load_transposed(r, v + COLUMNS - 16); /* the first half is done */
        tensor_mma<T>(s.out[SUMS - 1], p[0], p[1], p[2], p[3], r[2], r[3]);
    }
}

/* The sums of weights over all keys of the part, of the lane's rows. */
template <typename T>
__device__ static inline void join_sums(latent_shared<T> *sh, latent_sums &s)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        s.sum[i] += __shfl_xor_sync(0xffffffffu, s.sum[i], 1);
        s.sum[i] += __shfl_xor_sync(0xffffffffu, s.sum[i], 2);
        if (lane % 4 == 0)
            sh->of_warp[warp][lane / 4 + i * 8] = s.sum[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        s.sum[i] = 0;
#pragma unroll
        for (int v = 0; v < WARPS; v++)
            s.sum[i] += sh->of_warp[v][lane / 4 + i * 8];
    }
}

/* All keys of the item's part. */
template <typename T>
__device__ static inline void attend_keys(latent_shared<T> *sh, latent_sums &s, const attention_args<T> &a,
                                          const decode_item &m)
{
    copy_queries(sh, a, m);
    copy_keys(sh, 0, a, m, m.begin);
    async_commit();
    for (int b = m.begin, stage = 0; b < m.end; b += TILE_BLOCKS, stage ^= 1) {
        float score[4];
        if (b > m.begin)
            __syncthreads(); /* all have read the other stage */
        if (b + TILE_BLOCKS < m.end)
            copy_keys(sh, stage ^ 1, a, m, b + TILE_BLOCKS);
        async_commit();
        async_wait<1>();
        __syncthreads();
        make_scores(sh, stage, score, a, m, b * KV_BLOCK_TOKENS);
        make_weights(sh, s, score);
        add_values(sh, stage, s);
    }
    async_wait<0>();
    __syncthreads(); /* all have read of_warp */
    join_sums(sh, s);
}

/* The whole item by this block alone. */
template <typename T>
__device__ static inline void store_rows(const latent_sums &s, const attention_args<T> &a, const decode_item &m)
{
    int lane = threadIdx.x % 32, column = (int)threadIdx.x / 32 * COLUMNS + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = lane / 4 + i * 8;
        if (row >= m.n_rows)
            continue;
        float all = s.sum[i] + sink_weight(a, m.head0 + row, m.seen.last, s.best[i]);
        float share = s.sum[i] == 0 ? 0.0f : 1 / all; /* NaN stays */
        T *to = a.out + ((size_t)m.t * a.heads.n_heads + m.head0 + row) * LATENT_DIM + column;
#pragma unroll
        for (int j = 0; j < SUMS; j++)
            *(uint32_t *)(to + j * 8) = tensor_pack<T>(s.out[j][2 * i] * share, s.out[j][2 * i + 1] * share);
    }
}

/* Leave this block's part for the last one. */
template <typename T>
__device__ static inline void store_latent_part(const latent_sums &s, const attention_args<T> &a, const decode_item &m)
{
    int lane = threadIdx.x % 32, column = (int)threadIdx.x / 32 * COLUMNS + lane % 4 * 2;
    size_t at = ((size_t)m.index * a.max_parts + m.part) * a.rows_per_item;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = lane / 4 + i * 8;
        if (row >= m.n_rows)
            continue;
        if (column == 0)
            a.partial_sums[at + row] = make_float2(s.best[i], s.sum[i]);
#pragma unroll
        for (int j = 0; j < SUMS; j++)
            *(float2 *)(a.partial + (at + row) * LATENT_DIM + column + j * 8) =
                make_float2(s.out[j][2 * i], s.out[j][2 * i + 1]);
    }
}

/* grid: parts of the keys, items of a token, tokens */
template <typename T>
__global__ void __launch_bounds__(THREADS, 1) attention_latent(attention_args<T> a)
{
    extern __shared__ uint4 shared[];
    latent_shared<T> *sh = (latent_shared<T> *)shared;
    let_next_begin();
    decode_item m = find_item(a, (int)blockIdx.z, (int)blockIdx.y);
    int length = (m.end - m.begin + a.max_parts - 1) / a.max_parts;
    length = max(LATENT_MIN_BLOCKS, (length + TILE_BLOCKS - 1) / TILE_BLOCKS * TILE_BLOCKS);
    bool wanted = take_part(&m, (int)blockIdx.x, length) && m.n_rows > 0;
    if (leaves_at_once(wanted))
        return;
    wait_for_previous();
    if (!wanted)
        return;
    latent_sums s = {};
    s.best[0] = s.best[1] = -INFINITY;
    attend_keys(sh, s, a, m);
    if (m.n_parts == 1) {
        store_rows(s, a, m);
        return;
    }
    store_latent_part(s, a, m);
    if (arrive(sh, a, m))
        add_parts<LATENT_DIM>(sh, a, m);
}

template <typename T>
static cudaError_t allow_shared(void)
{
    return cudaFuncSetAttribute((const void *)attention_latent<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                sizeof(latent_shared<T>));
}

cudaError_t latent_open(size_t most, bool *fits)
{
    *fits = most >= sizeof(latent_shared<__half>);
    cudaError_t rc = *fits ? allow_shared<__half>() : cudaSuccess;
    return *fits && rc == cudaSuccess ? allow_shared<__nv_bfloat16>() : rc;
}

template <typename T>
void latent_launch(struct queue *q, bool early, const attention_args<T> &a, dim3 grid)
{
    launch_early(q, early, attention_latent<T>, grid, THREADS, sizeof(latent_shared<T>), a);
}

template void latent_launch<__half>(struct queue *, bool, const attention_args<__half> &, dim3);
template void latent_launch<__nv_bfloat16>(struct queue *, bool, const attention_args<__nv_bfloat16> &, dim3);
