/* kernels/cuda/attention/attention_decode.cuh - attention of a few single tokens. An item is one token and up to 16
 * query heads that read the same KV head. Its keys are divided among blocks, in a way that depends on their number
 * only, and among a block's warps; the last block to finish adds the parts in order. */
#ifndef ATTENTION_ATTENTION_DECODE_CUH
#define ATTENTION_ATTENTION_DECODE_CUH

#include "kernels/cuda/attention/attention_ring.cuh"

#define DECODE_ROWS       16
#define DECODE_MAX_PARTS  32                    /* parts of an item's keys: one lane each when they are added */
#define DECODE_MIN_BLOCKS (2 * ATTENTION_WARPS) /* blocks of the cache per part */

template <typename T, int HD>
struct decode_shared {
    union {
        attention_ring<T, HD> warp[ATTENTION_WARPS];
        float out[ATTENTION_WARPS][DECODE_ROWS][HD];
    };
    uint4 query[attention_query<T, HD>::shared_bytes / 16 + 1]; /* the same for all warps */
    float2 sums[ATTENTION_WARPS][DECODE_ROWS];                  /* best, sum */
    float share[DECODE_ROWS][DECODE_MAX_PARTS];
    bool is_last;
};

/* Processes all keys of [begin, end); the warps take blocks in turn. */
template <typename T, int HD, typename C, typename TOKEN>
__device__ static inline void attend_item(decode_shared<T, HD> *sh, attention_sums<T, HD> &sums,
                                          const attention_args<T, C> &a, const decode_item &m, TOKEN token)
{
    int warp = threadIdx.x / 32;
    attention_query<T, HD> query;
    query.shared = sh->query + threadIdx.x % 32;
    attend_blocks<ATTENTION_WARPS>(&sh->warp[warp], sums, query, a, m, token, [&] {
        let_next_begin(); /* not earlier: its copies of weights would delay the end of the preceding kernel */
        if (query.in_registers || warp == 0)
            load_query(query, a, m);
        if (!query.in_registers)
            __syncthreads();
    });
}

/* Combines the sums of the block's warps: sh->out[0], and sh->sums[0] relative to the best score of all. */
template <typename T, int HD>
__device__ static inline void add_warps(decode_shared<T, HD> *sh, const attention_sums<T, HD> &sums, int n_rows)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (lane % 4 == 0)
            sh->sums[warp][lane / 4 + i * 8] = make_float2(sums.best[i], sums.sum[i]);
    __syncthreads(); /* also ensures that no warp reads keys any more */
    float2 mine[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = lane / 4 + i * 8;
        float best = -INFINITY, sum = 0, keep = 0;
        for (int v = 0; v < ATTENTION_WARPS; v++)
            best = fmaxf(best, sh->sums[v][row].x);
        for (int v = 0; v < ATTENTION_WARPS; v++) {
            float2 part = sh->sums[v][row];
            float scale = part.x == -INFINITY ? 0.0f : exp2f(part.x - best);
            sum = fmaf(part.y, scale, sum);
            keep = v == warp ? scale : keep;
        }
        mine[i] = make_float2(best, sum);
        if (row < n_rows)
#pragma unroll
            for (int j = 0; j < HD / 8; j++)
                *(float2 *)&sh->out[warp][row][j * 8 + lane % 4 * 2] =
                    make_float2(sums.out[j][2 * i] * keep, sums.out[j][2 * i + 1] * keep);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (warp == 0 && lane % 4 == 0)
            sh->sums[0][lane / 4 + i * 8] = mine[i];
    for (int i = threadIdx.x; i < n_rows * HD; i += ATTENTION_WARPS * 32) {
        float s = 0;
        for (int v = 0; v < ATTENTION_WARPS; v++)
            s += (&sh->out[v][0][0])[i];
        (&sh->out[0][0][0])[i] = s;
    }
    __syncthreads();
}

/* To be called after all threads of the block have stored its part; true in the last block. S, here and below: its
 * shared memory, with share and is_last as in decode_shared. */
template <typename S, typename T, typename C>
__device__ static inline bool arrive(S *sh, const attention_args<T, C> &a, const decode_item &m)
{
    __syncthreads();
    if (threadIdx.x == 0) { /* for all threads: fences and barriers are cumulative */
        __threadfence();
        sh->is_last = atomicAdd(&a.n_arrived[m.index], 1u) == (unsigned)m.n_parts - 1;
        __threadfence();
    }
    __syncthreads();
    return sh->is_last;
}

/* Stores this block's part for the last one; true in the last block. */
template <typename T, int HD, typename C>
__device__ static inline bool hand_in(decode_shared<T, HD> *sh, const attention_args<T, C> &a, const decode_item &m)
{
    size_t at = ((size_t)m.index * a.max_parts + m.part) * a.rows_per_item;
    for (int i = threadIdx.x; i < m.n_rows * HD; i += ATTENTION_WARPS * 32)
        a.partial[at * HD + i] = (&sh->out[0][0][0])[i];
    if (threadIdx.x < m.n_rows)
        a.partial_sums[at + threadIdx.x] = sh->sums[0][threadIdx.x];
    return arrive(sh, a, m);
}

/* out = the parts' sums in order, each scaled to the best of all, over the sum of the weights. */
template <int HD, typename S, typename T, typename C>
__device__ static inline void add_parts(S *sh, const attention_args<T, C> &a, const decode_item &m)
{
    int lane = threadIdx.x % 32;
    size_t at = (size_t)m.index * a.max_parts * a.rows_per_item;
    for (int row = threadIdx.x / 32; row < m.n_rows; row += (int)blockDim.x / 32) {
        float2 part = make_float2(-INFINITY, 0);
        if (lane < m.n_parts)
            part = __ldcg(&a.partial_sums[at + (size_t)lane * a.rows_per_item + row]);
        float best = part.x;
        for (int d = 16; d > 0; d /= 2)
            best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, d));
        float scale = part.x == -INFINITY ? 0.0f : exp2f(part.x - best), sum = warp_sum(part.y * scale);
        sh->share[row][lane] = sum > 0 ? scale / (sum + sink_weight(a, m.head0 + row, m.seen.last, best)) : 0.0f;
    }
    if (threadIdx.x == 0)
        a.n_arrived[m.index] = 0; /* for the next launch */
    __syncthreads();
    for (int i = threadIdx.x; i < m.n_rows * HD / 4; i += (int)blockDim.x) {
        int row = i * 4 / HD, column = i * 4 % HD;
        if (column >= a.heads.head_dim)
            continue;
        const float4 *part = (const float4 *)(a.partial + at * HD) + i;
        size_t pitch = (size_t)a.rows_per_item * HD / 4;
        float s[4] = {0};
#pragma unroll 8
        for (int p = 0; p < m.n_parts; p++) {
            float4 x = __ldcg(part + p * pitch);
            float share = sh->share[row][p];
            s[0] = fmaf(x.x, share, s[0]);
            s[1] = fmaf(x.y, share, s[1]);
            s[2] = fmaf(x.z, share, s[2]);
            s[3] = fmaf(x.w, share, s[3]);
        }
        T *out = a.out + ((size_t)m.t * a.heads.n_heads + m.head0 + row) * a.heads.head_dim + column;
        ((uint32_t *)out)[0] = tensor_pack<T>(s[0], s[1]);
        ((uint32_t *)out)[1] = tensor_pack<T>(s[2], s[3]);
    }
}

/* The whole item by this block alone. */
template <typename T, int HD, typename C>
__device__ static inline void store_item(decode_shared<T, HD> *sh, const attention_args<T, C> &a, const decode_item &m)
{
    for (int i = threadIdx.x; i < m.n_rows * HD; i += ATTENTION_WARPS * 32) {
        int row = i / HD, column = i % HD;
        float sum = sh->sums[0][row].y, all = sum + sink_weight(a, m.head0 + row, m.seen.last, sh->sums[0][row].x);
        if (column < a.heads.head_dim)
            a.out[((size_t)m.t * a.heads.n_heads + m.head0 + row) * a.heads.head_dim + column] =
                from_float<T>(sum == 0 ? 0.0f : sh->out[0][row][column] / all); /* NaN stays */
    }
}

/* Item number `which` of token t, with all keys that it sees; n_rows <= 0: no rows, since ranks may have some
 * of a KV head's query heads. */
template <typename T, typename C>
__device__ static inline decode_item find_item(const attention_args<T, C> &a, int t, int which)
{
    decode_item m;
    int slot = a.slot[t];
    m.t = t;
    m.kv = which / a.head_parts;
    int begin = (a.heads.first_kv_head + m.kv) * a.heads.heads_per_kv - a.heads.first_head;
    int end = min(begin + a.heads.heads_per_kv, a.heads.n_heads);
    m.head0 = max(begin, 0) + which % a.head_parts * DECODE_ROWS;
    m.n_rows = min(DECODE_ROWS, end - m.head0);
    m.index = t * a.heads.n_kv_heads * a.head_parts + which;
    m.seen = visible(a, slot, a.pos[t]);
    m.table = a.block_table + (ptrdiff_t)slot * a.blocks_per_slot;
    m.begin = m.seen.first / KV_BLOCK_TOKENS;
    m.end = m.seen.last < m.seen.first ? m.begin : m.seen.last / KV_BLOCK_TOKENS + 1;
    m.part = 0;
    m.n_parts = 1;
    return m;
}

/* Restricts it to part number `part` of parts of `length` blocks; false: there are fewer parts. */
__device__ static inline bool take_part(decode_item *m, int part, int length)
{
    m->part = part;
    m->n_parts = max(1, (m->end - m->begin + length - 1) / length);
    m->begin += part * length;
    m->end = min(m->end, m->begin + length);
    return part < m->n_parts;
}

/* This block's part of an item. */
template <typename T, int HD, typename C, typename TOKEN>
__device__ static inline void attend_part(decode_shared<T, HD> *sh, const attention_args<T, C> &a, const decode_item &m,
                                          const TOKEN &token)
{
    attention_sums<T, HD> sums;
    attend_item(sh, sums, a, m, token);
    add_warps(sh, sums, m.n_rows);
    if (m.n_parts == 1)
        store_item(sh, a, m);
    else if (hand_in(sh, a, m))
        add_parts<HD>(sh, a, m);
}

/* May this block end without waiting for the preceding kernel? Most blocks have no work, since only the device knows
 * how many parts there are; those that wait take the places of others. One block of the grid waits in any case, so that
 * "this kernel is done" implies "those before it are". */
__device__ static inline bool leaves_at_once(bool has_work)
{
    return !has_work && (blockIdx.x > 0 || blockIdx.y > 0 || blockIdx.z > 0);
}

/* Work of a block of a kernel. grid: parts of the keys, items of a token, tokens */
template <typename T, int HD, typename C, typename TOKEN>
__device__ static inline void decode_block(const attention_args<T, C> &a, const TOKEN &token)
{
    extern __shared__ uint4 shared[];
    decode_item m = find_item(a, (int)blockIdx.z, (int)blockIdx.y);
    int length = (m.end - m.begin + a.max_parts - 1) / a.max_parts;
    length = max(DECODE_MIN_BLOCKS, (length + ATTENTION_WARPS - 1) / ATTENTION_WARPS * ATTENTION_WARPS);
    bool wanted = take_part(&m, (int)blockIdx.x, length) && m.n_rows > 0;
    if (leaves_at_once(wanted))
        return;
    if (!TOKEN::FRESH || !wanted)
        wait_for_previous();
    if (wanted)
        attend_part((decode_shared<T, HD> *)shared, a, m, token);
}

template <typename T, int HD, typename C>
__global__ void __launch_bounds__(ATTENTION_WARPS * 32, HD <= 128 ? 3 : 1) attention_decode(attention_args<T, C> a)
{
    decode_block<T, HD>(a, stored_token<T, HD>());
}

#endif
