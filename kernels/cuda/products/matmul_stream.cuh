/* kernels/cuda/products/matmul_stream.cuh - the product for few tokens, bound by reading the weights. A block works
 * through tiles of 8 R rows of weights. Its warps split the columns, 128 bytes of every row at a time, and each lane
 * keeps a ring of copies in flight from the weights to its own piece of shared memory: no barrier separates a load from
 * its use, and the ring prefetches across the ends of tiles. The tensor cores take the tokens as rows of their [16, 16]
 * operand and 8 rows of weights as the other; columns within 32 are permuted to the order in which lanes hold 16 bytes,
 * the same for both. Float weights are multiplied without tensor cores. The warps' partial sums are added in order, so
 * a token's result does not depend on the number of tokens, of rows in a tile or of blocks. */
#ifndef PRODUCTS_MATMUL_STREAM_CUH
#define PRODUCTS_MATMUL_STREAM_CUH

#include "kernels/cuda/read_once.cuh"

#define STREAM_MAX_TOKENS 16

/* Bytes in flight to each multiprocessor. More than 128 KiB leaves x too little cache, and with R 4 a block on an A100
 * has no more shared memory. */
#define STREAM_RING_BYTES(R) ((R) > 2 ? 96 * 1024 : 128 * 1024)

/* The settings for a number type (measured on an H200, 2026-11-20). The warps determine the order of summation. */
template <typename T>
struct stream_shape {
    static const int WARPS = 16, AHEAD = 2; /* AHEAD: steps by which x is prefetched */
};
template <>
struct stream_shape<float> {
    static const int WARPS = 8, AHEAD = 1;
};

template <typename T>
struct stream_args {
    T *out;
    const T *x, *w, *bias;
    int n_tokens, rows, cols;
    bool accumulate;
    bool early; /* the next kernel may begin: no collective follows */
};

/* A warp's sums over its columns. NT: capacity in tokens. */
template <typename T, int NT, int R, int P>
struct stream_sums {
    float sum[R][4];
    struct part {
        uint4 x[P][NT / 8]; /* tokens g and g + 8 */
    };

    __device__ void clear()
    {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[r][i] = 0;
    }
    /* The activations for P pieces of weights; k: this lane's first column. */
    __device__ part load(const stream_args<T> &a, int k) const
    {
        part p;
        int token = threadIdx.x % 32 / 4;
#pragma unroll
        for (int j = 0; j < P; j++)
#pragma unroll
            for (int i = 0; i < NT / 8; i++) {
                p.x[j][i] = make_uint4(0, 0, 0, 0);
                if (token + i * 8 < a.n_tokens && k + j * 32 < a.cols)
                    p.x[j][i] = *(const uint4 *)(a.x + (size_t)(token + i * 8) * a.cols + k + j * 32);
            }
        return p;
    }
    /* w: [P][R][32], from this lane's element on */
    __device__ void add(const part &p, const uint4 *w)
    {
#pragma unroll
        for (int j = 0; j < P; j++)
#pragma unroll
            for (int r = 0; r < R; r++) {
                uint4 b = w[(j * R + r) * 32], lo = p.x[j][0], hi = make_uint4(0, 0, 0, 0);
                if (NT > 8)
                    hi = p.x[j][NT / 8 - 1];
                tensor_mma<T>(sum[r], lo.x, hi.x, lo.y, hi.y, b.x, b.y);
                tensor_mma<T>(sum[r], lo.z, hi.z, lo.w, hi.w, b.z, b.w);
            }
    }
    /* to: [NT][8 R] */
    __device__ void store(float *to) const
    {
        int g = threadIdx.x % 32 / 4, c = threadIdx.x % 4 * 2;
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int i = 0; i < NT / 8; i++) {
                to[(g + i * 8) * 8 * R + r * 8 + c] = sum[r][i * 2];
                to[(g + i * 8) * 8 * R + r * 8 + c + 1] = sum[r][i * 2 + 1];
            }
    }
};

template <int NT, int R, int P>
struct stream_sums<float, NT, R, P> {
    float sum[R][NT];
    struct part {
        float4 x[P][NT];
    };

    __device__ void clear()
    {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int t = 0; t < NT; t++)
                sum[r][t] = 0;
    }
    __device__ part load(const stream_args<float> &a, int k) const
    {
        part p;
#pragma unroll
        for (int j = 0; j < P; j++)
#pragma unroll
            for (int t = 0; t < NT; t++) {
                p.x[j][t] = make_float4(0, 0, 0, 0);
                if (t < a.n_tokens && k + j * 16 < a.cols)
                    p.x[j][t] = *(const float4 *)(a.x + (size_t)t * a.cols + k + j * 16);
            }
        return p;
    }
    __device__ void add(const part &p, const uint4 *w)
    {
#pragma unroll
        for (int j = 0; j < P; j++)
#pragma unroll
            for (int r = 0; r < R; r++) {
                float4 b = *(const float4 *)&w[(j * R + r) * 32];
#pragma unroll
                for (int t = 0; t < NT; t++) {
                    float s = fmaf(b.x, p.x[j][t].x, sum[r][t]);
                    s = fmaf(b.y, p.x[j][t].y, s);
                    s = fmaf(b.z, p.x[j][t].z, s);
                    sum[r][t] = fmaf(b.w, p.x[j][t].w, s);
                }
            }
    }
    __device__ void store(float *to) const
    {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int t = 0; t < NT; t++) {
                float s = sum[r][t];
                s += __shfl_xor_sync(0xffffffffu, s, 1);
                s += __shfl_xor_sync(0xffffffffu, s, 2);
                if (threadIdx.x % 4 == 0)
                    to[t * 8 * R + r * 8 + threadIdx.x % 32 / 4] = s;
            }
    }
};

/* The source of a lane's next copy. */
template <typename T, int NT, int R, int P>
struct matmul_cursor {
    static const int PIECE = 64 / sizeof(T); /* columns in 64 bytes */
    int tile, step, row, k;                  /* row, k: this lane's row in the tile and column in step 0 */

    /* This lane's first column in a step: a warp has two neighbouring pieces, followed by those of the other warps. */
    __device__ static int column(int step, int k)
    {
        int piece = step * P;
        return k + piece / 2 * (stream_shape<T>::WARPS * 2 * PIECE) + piece % 2 * PIECE;
    }
    __device__ void copy(const stream_args<T> &a, uint4 *slot, int n_tiles, int n_steps)
    {
        if (tile >= n_tiles)
            return;
        int at = column(step, k);
#pragma unroll
        for (int j = 0; j < P; j++)
#pragma unroll
            for (int r = 0; r < R; r++) {
                int from = tile * 8 * R + r * 8 + row;
                bool wanted = from < a.rows && at + j * PIECE < a.cols;
                const T *w = wanted ? a.w + (size_t)from * a.cols + at + j * PIECE : a.w;
                if (NT <= 8) /* with 16 tokens it costs 0.4 % of a step (8B bf16, H200) */
                    async_copy_once(&slot[(j * R + r) * 32], w, wanted);
                else
                    async_copy(&slot[(j * R + r) * 32], w, wanted);
            }
        if (++step == n_steps) {
            step = 0;
            tile += gridDim.x;
        }
    }
};

/* The warps' sums, added in order; partial: [WARPS][NT][8 R] */
template <typename T, int NT, int R>
__device__ static inline void stream_store(const stream_args<T> &a, const float *partial, int tile)
{
    const int WARPS = stream_shape<T>::WARPS;
    for (int i = threadIdx.x; i < a.n_tokens * 8 * R; i += WARPS * 32) {
        int row = tile * 8 * R + i % (8 * R);
        if (row >= a.rows)
            continue;
        float s = a.bias ? to_float(a.bias[row]) : 0.0f;
#pragma unroll
        for (int v = 0; v < WARPS; v++)
            s += partial[v * NT * 8 * R + i];
        T *out = a.out + (size_t)(i / (8 * R)) * a.rows + row;
        *out = from_float<T>(a.accumulate ? s + to_float(*out) : s);
    }
}

/* A step of a warp is P (1 or 2) pieces of 64 bytes of each row. Shared memory: the ring, then float
 * [2][WARPS][NT][8 R]. */
template <typename T, int NT, int R, int P>
__global__ void __launch_bounds__(stream_shape<T>::WARPS * 32) stream_matmul(stream_args<T> a)
{
    const int WARPS = stream_shape<T>::WARPS, AHEAD = stream_shape<T>::AHEAD, PIECE = 64 / sizeof(T);
    const int SLOT = P * R * 32, SLOTS = STREAM_RING_BYTES(R) / (WARPS * SLOT * 16);
    extern __shared__ uint4 shared[];
    if (a.early)
        let_next_begin();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k = warp * 2 * PIECE + lane % 4 * (PIECE / 4);
    uint4 *ring = shared + warp * SLOTS * SLOT + lane;
    float *partial = (float *)((char *)shared + STREAM_RING_BYTES(R));
    int n_tiles = (a.rows + 8 * R - 1) / (8 * R);
    int n_steps = (a.cols + WARPS * 2 * PIECE - 1) / (WARPS * 2 * PIECE) * (2 / P);
    matmul_cursor<T, NT, R, P> cursor = {(int)blockIdx.x, 0, lane / 4, k};
    for (int i = 0; i < SLOTS - 1; i++) { /* weights are in flight before the kernel that produces x is done */
        cursor.copy(a, ring + i * SLOT, n_tiles, n_steps);
        async_commit();
    }
    wait_for_previous();
    stream_sums<T, NT, R, P> sums;
    typename stream_sums<T, NT, R, P>::part ahead[AHEAD];
    int next = 0; /* the step whose part of x is loaded next */
    for (int i = 0; i < AHEAD; i++) {
        ahead[i] = sums.load(a, cursor.column(next, k));
        next = next + 1 < n_steps ? next + 1 : 0;
    }
    int slot = 0, buffer = 0;
    for (int tile = blockIdx.x; tile < n_tiles; tile += gridDim.x, buffer ^= 1) {
        sums.clear();
        for (int step = 0; step < n_steps; step++) {
            typename stream_sums<T, NT, R, P>::part now = ahead[0];
#pragma unroll
            for (int i = 0; i + 1 < AHEAD; i++)
                ahead[i] = ahead[i + 1];
            ahead[AHEAD - 1] = sums.load(a, cursor.column(next, k));
            next = next + 1 < n_steps ? next + 1 : 0;
            cursor.copy(a, ring + (slot > 0 ? slot - 1 : SLOTS - 1) * SLOT, n_tiles, n_steps);
            async_commit();
            async_wait<SLOTS - 1>();
            sums.add(now, ring + slot * SLOT);
            slot = slot + 1 < SLOTS ? slot + 1 : 0;
        }
        sums.store(partial + (buffer * WARPS + warp) * NT * 8 * R);
        __syncthreads(); /* one barrier per tile suffices: the next tile's sums go to the other buffer */
        stream_store<T, NT, R>(a, partial + buffer * WARPS * NT * 8 * R, tile);
    }
    async_wait<0>();
}

template <typename T, int NT, int R>
constexpr size_t stream_shared_bytes()
{
    return STREAM_RING_BYTES(R) + 2 * stream_shape<T>::WARPS * NT * 8 * R * sizeof(float);
}

#endif
