/* kernels/cuda/products/experts_stream.cuh - the products of experts for few tokens, bound by reading the chosen
 * experts' weights. As in matmul_stream.cuh warps split the columns, lanes keep rings of copies in flight, the tensor
 * cores take tokens as rows of one operand and 8 rows of weights as the other, and the warps' sums are added in order.
 * The differences: only the device knows which matrices are read; and x, which differs from tile to tile, goes through
 * the ring, too: a plain load would wait for all copies issued before it. The first product works through the chosen
 * experts, 8 gates and their 8 ups at a time, with the expert's own tokens. The second one gives each block a part of
 * the rows of the result, and works through all chosen experts for each row, in order of their numbers: the outputs of
 * a token's experts are summed without leaving the registers. Its copies begin while the first product ends. So a
 * token's result has the same bits whatever else is in the batch. */
#ifndef PRODUCTS_EXPERTS_STREAM_CUH
#define PRODUCTS_EXPERTS_STREAM_CUH

#include "kernels/cuda/products/experts.cuh"

#define EXPERT_MAX_TOKENS 16
#define EXPERT_MAX_CHOSEN 32
#define EXPERT_WARPS      16
#define EXPERT_THREADS    (EXPERT_WARPS * 32)
#define EXPERT_STEP       (EXPERT_WARPS * 32) /* columns: each warp takes 64 bytes of every row */
#define EXPERT_RING_BYTES (144 * 1024)
#define EXPERT_MAX_ROWS   32 /* of a tile of the second product */

/* The held experts that have tokens, in order of their numbers, and their tokens. NT: capacity in tokens. */
template <int NT>
struct expert_table {
    static const int PAIRS = NT * EXPERT_MAX_CHOSEN;
    int n, found[EXPERT_WARPS];
    int32_t expert[PAIRS];
    int32_t begin[PAIRS + 1]; /* of its pairs, in `pair` */
    int32_t pair[PAIRS];

    /* Called by all threads of the block; one of them calls f(i) for the i-th expert when its pairs are known. */
    template <typename F>
    __device__ void fill(const struct routes &r, int n_held, int n_pairs, F f)
    {
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32, before = 0;
        for (int p = threadIdx.x; p < n_pairs; p += EXPERT_THREADS)
            pair[p] = __ldcg(&r.pair[p]);
        for (int e0 = 0; e0 < n_held; e0 += EXPERT_THREADS) {
            int e = e0 + (int)threadIdx.x, first = 0, end = 0;
            if (e < n_held) {
                first = __ldcg(&r.begin[e]);
                end = __ldcg(&r.begin[e + 1]);
            }
            unsigned has = __ballot_sync(0xffffffffu, end > first);
            if (lane == 0)
                found[warp] = __popc(has);
            __syncthreads();
            int at = before + __popc(has & ((1u << lane) - 1));
            for (int i = 0; i < EXPERT_WARPS; i++) {
                at += i < warp ? found[i] : 0;
                before += found[i];
            }
            if (end > first) {
                expert[at] = e;
                begin[at] = first;
                f(at, first, end);
            }
            __syncthreads();
        }
        n = before;
        begin[before] = __ldcg(&r.begin[n_held]);
        __syncthreads();
    }
};

/* A warp's sums over its columns, of R times 8 rows of weights. */
template <typename T, int NT, int R>
struct expert_sums {
    float sum[R][4];

    __device__ void clear()
    {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[r][i] = 0;
    }
    /* slot: [R + NT / 8][32], this lane's piece of the rows of weights, then of tokens g and g + 8, g = lane / 4 */
    __device__ void add(const uint4 *slot)
    {
        uint4 lo = slot[R * 32], hi = NT > 8 ? slot[(R + NT / 8 - 1) * 32] : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int r = 0; r < R; r++) {
            uint4 b = slot[r * 32];
            tensor_mma<T>(sum[r], lo.x, hi.x, lo.y, hi.y, b.x, b.y);
            tensor_mma<T>(sum[r], lo.z, hi.z, lo.w, hi.w, b.z, b.w);
        }
    }
    /* Adds those of `one`, times the tokens' shares; tokens without a share add nothing, not even NaN. */
    __device__ void take(const expert_sums &one, const float (&share)[NT / 8], const bool (&has)[NT / 8])
    {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int i = 0; i < NT / 4; i++)
                if (has[i / 2])
                    sum[r][i] = fmaf(share[i / 2], one.sum[r][i], sum[r][i]);
    }
    /* to: [NT][8 R] */
    __device__ void store(float *to) const
    {
        int g = threadIdx.x % 32 / 4, c = threadIdx.x % 4 * 2;
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int i = 0; i < NT / 4; i++)
                to[(g + i / 2 * 8) * 8 * R + r * 8 + c + i % 2] = sum[r][i];
    }
};

/* This lane's first column in step 0. */
__device__ static inline int expert_column(void)
{
    return (int)threadIdx.x / 32 * 32 + (int)threadIdx.x % 4 * 8;
}

/* Copies this lane's piece of N rows to a slot of the ring; no row: zeros. */
template <typename T, int N>
__device__ static inline void copy_pieces(uint4 *slot, const expert_product<T> &a, const T *const (&row)[N], int k)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        bool wanted = row[i] != nullptr && k < a.cols;
        async_copy(&slot[i * 32], wanted ? row[i] + k : a.w, wanted);
    }
}

/* The ring of a warp, as this lane sees it. */
template <int NT, int R>
struct expert_ring {
    static const int SLOT = (R + NT / 8) * 32, SLOTS = EXPERT_RING_BYTES / (EXPERT_WARPS * SLOT * 16);
    uint4 *slots;
    int at;

    __device__ explicit expert_ring(uint4 *shared)
        : slots(shared + (threadIdx.x / 32 * SLOTS * SLOT + threadIdx.x % 32)), at(0)
    {
    }
    __device__ uint4 *slot(int i) const
    {
        return slots + i * SLOT;
    }
    __device__ uint4 *last() const
    {
        return slot(at > 0 ? at - 1 : SLOTS - 1);
    }
    __device__ void next()
    {
        at = at + 1 < SLOTS ? at + 1 : 0;
    }
};

/* ---- the first product ---- */

/* A position in the order of the block's work: a tile is one expert's 8 gates and 8 ups. */
template <typename T, int NT>
struct first_place {
    const expert_product<T> &a;
    const expert_table<NT> &table;
    int tiles, n_tiles, n_steps; /* tiles per expert */
    int tile, step;

    __device__ int which() const
    {
        return tile / tiles;
    }
    /* This lane's column of the result. */
    __device__ int column() const
    {
        return tile % tiles * 8 + (int)threadIdx.x % 32 / 4;
    }
    __device__ void find(const T *(&row)[2]) const
    {
        row[0] = row[1] = nullptr;
        int f = column();
        if (tile < n_tiles && f < a.rows)
            for (int i = 0; i < 2; i++)
                row[i] = a.w + ((size_t)table.expert[which()] * 2 * a.rows + row_of_gate(a, f, i)) * a.cols;
    }
    __device__ void find_tokens(const T *(&row)[NT / 8]) const
    {
        int begin = 0, end = 0;
        if (tile < n_tiles) {
            begin = table.begin[which()] + (int)threadIdx.x % 32 / 4;
            end = table.begin[which() + 1];
        }
#pragma unroll
        for (int i = 0; i < NT / 8; i++)
            row[i] = begin + i * 8 < end ? a.x + (size_t)(table.pair[begin + i * 8] / a.n_chosen) * a.cols : nullptr;
    }
    /* Returns true where another tile begins. */
    __device__ bool advance()
    {
        if (++step < n_steps)
            return false;
        step = 0;
        tile += gridDim.x;
        return true;
    }
};

/* The warps' sums, added in order; partial: [EXPERT_WARPS][NT][16] */
template <typename T, int NT>
__device__ static inline void store_first(const first_place<T, NT> &at, const float *partial)
{
    const expert_product<T> &a = at.a;
    int i = at.which(), begin = at.table.begin[i], n = at.table.begin[i + 1] - begin, e = at.table.expert[i];
    for (int j = threadIdx.x; j < n * 8; j += EXPERT_THREADS) {
        int t = j / 8, f = at.tile % at.tiles * 8 + j % 8;
        if (f >= a.rows)
            continue;
        float gate = gate_bias(a, e, f, 0), up = gate_bias(a, e, f, 1);
#pragma unroll
        for (int v = 0; v < EXPERT_WARPS; v++) {
            gate += partial[(v * NT + t) * 16 + j % 8];
            up += partial[(v * NT + t) * 16 + 8 + j % 8];
        }
        a.out[(size_t)at.table.pair[begin + t] * a.rows + f] = from_float<T>(gated_activation(a.kind, gate, up));
    }
}

template <typename T, int NT>
constexpr size_t first_shared_bytes()
{
    return EXPERT_RING_BYTES + 2 * EXPERT_WARPS * NT * 16 * sizeof(float);
}

/* Shared memory: the ring, then float [2][EXPERT_WARPS][NT][16]. */
template <typename T, int NT>
__global__ void __launch_bounds__(EXPERT_THREADS, 1) experts_first(expert_product<T> a)
{
    extern __shared__ uint4 shared[];
    __shared__ expert_table<NT> table;
    expert_ring<NT, 2> ring(shared);
    float *partial = (float *)((char *)shared + EXPERT_RING_BYTES);
    wait_for_previous();
    let_next_begin(); /* the next kernel may read the routing, which is complete, and weights */
    table.fill(a.r, a.n_held, a.n_tokens * a.n_chosen, [](int, int, int) {});
    int tiles = (a.rows + 7) / 8, n_steps = (a.cols + EXPERT_STEP - 1) / EXPERT_STEP, k = expert_column();
    first_place<T, NT> now = {a, table, tiles, table.n * tiles, n_steps, (int)blockIdx.x, 0}, copied = now;
    const T *row[2], *token[NT / 8];
    copied.find(row);
    copied.find_tokens(token);
    auto copy = [&](uint4 *slot) {
        copy_pieces<T>(slot, a, row, copied.step * EXPERT_STEP + k);
        copy_pieces<T>(slot + 2 * 32, a, token, copied.step * EXPERT_STEP + k);
        async_commit();
        if (copied.advance()) {
            copied.find(row);
            copied.find_tokens(token);
        }
    };
    for (int i = 0; i + 1 < ring.SLOTS; i++)
        copy(ring.slot(i));
    for (int buffer = 0; now.tile < now.n_tiles; buffer ^= 1) {
        expert_sums<T, NT, 2> sums;
        sums.clear();
        for (int step = 0; step < n_steps; step++) {
            copy(ring.last());
            async_wait<expert_ring<NT, 2>::SLOTS - 1>();
            sums.add(ring.slot(ring.at));
            ring.next();
        }
        sums.store(partial + (buffer * EXPERT_WARPS + threadIdx.x / 32) * NT * 16);
        __syncthreads(); /* one barrier per tile suffices: the next tile's sums go to the other buffer */
        store_first(now, partial + buffer * EXPERT_WARPS * NT * 16);
        now.tile += gridDim.x;
    }
    async_wait<0>();
}

/* ---- the second product ---- */

/* The pair of a token and an expert, -1: none; and its weight. */
template <int NT>
struct expert_pairs {
    int16_t of[NT * EXPERT_MAX_CHOSEN][NT];
    float share[NT * EXPERT_MAX_CHOSEN]; /* by pair */
};

/* A position in the order of the block's work: by tile of rows, and within a tile by expert. */
template <typename T, int NT, int R>
struct second_place {
    const expert_product<T> &a;
    const expert_table<NT> &table;
    const expert_pairs<NT> &pairs;
    int tile_rows, n_tiles, n_steps; /* tiles whose weights are read; none if no held expert has tokens */
    int tile, which, step;

    __device__ void find(const T *(&row)[R]) const
    {
#pragma unroll
        for (int r = 0; r < R; r++) {
            int i = r * 8 + (int)threadIdx.x % 32 / 4, o = tile * tile_rows + i;
            bool in = tile < n_tiles && i < tile_rows && o < a.rows;
            row[r] = in ? a.w + ((size_t)table.expert[which] * a.rows + o) * a.cols : nullptr;
        }
    }
    __device__ int pair_of(int i) const
    {
        return pairs.of[which][(int)threadIdx.x % 32 / 4 + i * 8];
    }
    __device__ void find_tokens(const T *(&row)[NT / 8]) const
    {
#pragma unroll
        for (int i = 0; i < NT / 8; i++)
            row[i] = tile < n_tiles && pair_of(i) >= 0 ? a.x + (size_t)pair_of(i) * a.cols : nullptr;
    }
    /* Returns true where another expert or tile begins. */
    __device__ bool advance()
    {
        if (++step < n_steps)
            return false;
        step = 0;
        if (++which == table.n) {
            which = 0;
            tile += gridDim.x;
        }
        return true;
    }
};

/* The warps' sums, added in order, and the biases' share; partial: [EXPERT_WARPS][NT][8 R] */
template <typename T, int NT, int R>
__device__ static inline void store_second(const second_place<T, NT, R> &at, const float *partial)
{
    const expert_product<T> &a = at.a;
    for (int j = threadIdx.x; j < a.n_tokens * 8 * R; j += EXPERT_THREADS) {
        int t = j / (8 * R), i = j % (8 * R), o = at.tile * at.tile_rows + i;
        if (i >= at.tile_rows || o >= a.rows)
            continue;
        float sum = 0;
        for (int c = 0; c < a.n_chosen && a.bias != nullptr; c++) {
            int e = a.r.expert[t * a.n_chosen + c] - a.r.first_held;
            if (e < 0 || e >= a.n_held)
                continue;
            sum = fmaf(at.pairs.share[t * a.n_chosen + c], weight_at(a.bias, a.bias_type, e * a.rows + o, 0.0f), sum);
        }
#pragma unroll
        for (int v = 0; v < EXPERT_WARPS; v++)
            sum += partial[(v * NT + t) * 8 * R + i];
        T *to = a.out + (size_t)t * a.rows + o;
        *to = from_float<T>(a.accumulate ? sum + to_float(*to) : sum);
    }
}

template <typename T, int NT, int R>
constexpr size_t second_shared_bytes()
{
    return EXPERT_RING_BYTES + EXPERT_WARPS * NT * 8 * R * sizeof(float) + sizeof(expert_table<NT>) +
           sizeof(expert_pairs<NT>);
}

/* Reads the routing before the preceding kernel, the first product, has ended. Shared memory: the ring, float
 * [EXPERT_WARPS][NT][8 R], the table, the pairs. */
template <typename T, int NT, int R>
__global__ void __launch_bounds__(EXPERT_THREADS, 1) experts_second(expert_product<T> a, int tile_rows)
{
    extern __shared__ uint4 shared[];
    expert_ring<NT, R> ring(shared);
    float *partial = (float *)((char *)shared + EXPERT_RING_BYTES);
    expert_table<NT> &table = *(expert_table<NT> *)(partial + EXPERT_WARPS * NT * 8 * R);
    expert_pairs<NT> &pairs = *(expert_pairs<NT> *)(&table + 1);
    int n_pairs = a.n_tokens * a.n_chosen, n_steps = (a.cols + EXPERT_STEP - 1) / EXPERT_STEP, k = expert_column();
    for (int p = threadIdx.x; p < n_pairs; p += EXPERT_THREADS)
        pairs.share[p] = __ldcg(&a.r.share[p]);
    table.fill(a.r, a.n_held, n_pairs, [&](int i, int first, int end) {
        for (int t = 0; t < NT; t++)
            pairs.of[i][t] = -1;
        for (int p = first; p < end; p++)
            pairs.of[i][table.pair[p] / a.n_chosen] = (int16_t)table.pair[p];
    });
    int n_tiles = (a.rows + tile_rows - 1) / tile_rows, n_read = table.n > 0 ? n_tiles : 0;
    second_place<T, NT, R> now = {a, table, pairs, tile_rows, n_read, n_steps, (int)blockIdx.x, 0, 0};
    second_place<T, NT, R> copied = now, early = now;
    const T *row[R], *token[NT / 8];
    early.find(row);
    for (int i = 0; i + 1 < ring.SLOTS; i++) { /* weights are in flight before the first product is done */
        copy_pieces<T>(ring.slot(i), a, row, early.step * EXPERT_STEP + k);
        if (early.advance())
            early.find(row);
    }
    wait_for_previous();
    copied.find_tokens(token);
    auto copy_tokens = [&](uint4 *slot) {
        copy_pieces<T>(slot + R * 32, a, token, copied.step * EXPERT_STEP + k);
        async_commit();
        if (!copied.advance())
            return;
        copied.find(row);
        copied.find_tokens(token);
    };
    for (int i = 0; i + 1 < ring.SLOTS; i++)
        copy_tokens(ring.slot(i));
    copied.find(row);
    for (; now.tile < n_tiles; now.tile += gridDim.x) {
        expert_sums<T, NT, R> all, one;
        all.clear();
        for (now.which = 0; now.which < table.n; now.which++) {
            float share[NT / 8];
            bool has[NT / 8];
#pragma unroll
            for (int i = 0; i < NT / 8; i++) {
                has[i] = now.pair_of(i) >= 0;
                share[i] = has[i] ? pairs.share[now.pair_of(i)] : 0;
            }
            one.clear();
            for (int step = 0; step < n_steps; step++) {
                copy_pieces<T>(ring.last(), a, row, copied.step * EXPERT_STEP + k);
                copy_tokens(ring.last());
                async_wait<expert_ring<NT, R>::SLOTS - 1>();
                one.add(ring.slot(ring.at));
                ring.next();
            }
            all.take(one, share, has);
        }
        all.store(partial + threadIdx.x / 32 * NT * 8 * R);
        __syncthreads();
        store_second(now, partial);
        __syncthreads();
    }
    async_wait<0>();
}

#endif
