/* kernels/cuda/matmul_stream.cuh - the product for few tokens, where reading the weights is all that counts.
 *
 * A block works through tiles of 8 R rows of weights. Its warps share out the columns, 128 bytes of every row at a time,
 * and each lane keeps a ring of copies under way from the weights to its own piece of shared memory: no barrier stands
 * between a load and its use, and the ring runs ahead over the ends of tiles. The tensor cores take the tokens as the
 * rows of their [16, 16] operand and 8 rows of weights as the other; the order of the columns within 32 is that in which
 * lanes hold 16 bytes, the same for both. Float weights are multiplied by hand. The partial sums of the warps are added
 * in order, so that a token's result is the same whatever the number of tokens, of rows in a tile or of blocks. */
#ifndef KERNELS_CUDA_MATMUL_STREAM_CUH
#define KERNELS_CUDA_MATMUL_STREAM_CUH

#include "kernels/cuda/matmul_tensor.cuh"

#define STREAM_WARPS      8            /* part of the order of summation */
#define STREAM_RING_BYTES (128 * 1024) /* in flight on each multiprocessor; 64 KiB measured 8 % slower */
#define STREAM_MAX_TOKENS 16

template <typename T>
struct stream_args {
    T *out;
    const T *x, *w, *bias;
    int n_tokens, rows, cols;
    bool accumulate;
};

/* A warp's sums over its columns. NT: tokens it has room for. */
template <typename T, int NT, int R>
struct stream_sums {
    float sum[R][4];
    struct part {
        uint4 x[2][NT / 8]; /* tokens g and g + 8 of two pieces */
    };

    __device__ void clear()
    {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[r][i] = 0;
    }
    /* The part of x that belongs to columns [k, k + 64); k: this lane's first. */
    __device__ part load(const stream_args<T> &a, int k) const
    {
        part p;
        int token = threadIdx.x % 32 / 4;
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int i = 0; i < NT / 8; i++) {
                p.x[j][i] = make_uint4(0, 0, 0, 0);
                if (token + i * 8 < a.n_tokens && k + j * 32 < a.cols)
                    p.x[j][i] = *(const uint4 *)(a.x + (size_t)(token + i * 8) * a.cols + k + j * 32);
            }
        return p;
    }
    /* w: this lane's [2][R][32] pieces of 16 bytes. */
    __device__ void add(const part &p, const uint4 *w)
    {
#pragma unroll
        for (int j = 0; j < 2; j++)
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

template <int NT, int R>
struct stream_sums<float, NT, R> {
    float sum[R][NT];
    struct part {
        float4 x[2][NT];
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
        for (int j = 0; j < 2; j++)
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
        for (int j = 0; j < 2; j++)
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

/* Where a lane's next copy comes from. */
template <typename T, int R>
struct stream_cursor {
    const T *w;
    int tile, step, row, k; /* row, k: this lane's in the tile */

    __device__ void copy(const stream_args<T> &a, uint4 *slot, int n_tiles, int n_steps, int warps)
    {
        const int piece = 64 / sizeof(T); /* columns in 64 bytes */
        if (tile >= n_tiles)
            return;
        int column = step * warps * 2 * piece + k;
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int r = 0; r < R; r++) {
                int at = tile * 8 * R + r * 8 + row;
                bool wanted = at < a.rows && column + j * piece < a.cols;
                async_copy(&slot[(j * R + r) * 32], wanted ? a.w + (size_t)at * a.cols + column + j * piece : a.w,
                           wanted);
            }
        if (++step == n_steps) {
            step = 0;
            tile += gridDim.x;
        }
    }
};

/* Shared memory: the ring, then float [2][WARPS][NT][8 R]. */
template <typename T, int NT, int R, int WARPS, int RING>
__global__ void __launch_bounds__(WARPS * 32) stream_matmul(stream_args<T> a)
{
    const int SLOTS = RING / (WARPS * 32 * 2 * R * 16), PIECE = 64 / sizeof(T);
    extern __shared__ uint4 shared[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint4 *ring = shared + warp * SLOTS * 2 * R * 32 + lane;
    float *partial = (float *)((char *)shared + RING);
    int n_tiles = (a.rows + 8 * R - 1) / (8 * R);
    int n_steps = (a.cols + WARPS * 2 * PIECE - 1) / (WARPS * 2 * PIECE);
    int k = warp * 2 * PIECE + lane % 4 * (PIECE / 4);
    stream_cursor<T, R> cursor = {a.w, (int)blockIdx.x, 0, lane / 4, k};
    for (int i = 0; i < SLOTS - 1; i++) { /* weights are there before the kernel that makes x is done */
        cursor.copy(a, ring + i * 2 * R * 32, n_tiles, n_steps, WARPS);
        async_commit();
    }
    wait_for_previous();
    stream_sums<T, NT, R> sums;
    typename stream_sums<T, NT, R>::part next = sums.load(a, k);
    int slot = 0, buffer = 0;
    for (int tile = blockIdx.x; tile < n_tiles; tile += gridDim.x, buffer ^= 1) {
        sums.clear();
        for (int step = 0; step < n_steps; step++) {
            typename stream_sums<T, NT, R>::part now = next;
            next = sums.load(a, (step + 1 < n_steps ? step + 1 : 0) * WARPS * 2 * PIECE + k);
            cursor.copy(a, ring + (slot > 0 ? slot - 1 : SLOTS - 1) * 2 * R * 32, n_tiles, n_steps, WARPS);
            async_commit();
            async_wait<SLOTS - 1>();
            sums.add(now, ring + slot * 2 * R * 32);
            slot = slot + 1 < SLOTS ? slot + 1 : 0;
        }
        float *part = partial + buffer * WARPS * NT * 8 * R;
        sums.store(part + warp * NT * 8 * R);
        __syncthreads();
        for (int i = threadIdx.x; i < a.n_tokens * 8 * R; i += WARPS * 32) {
            int row = tile * 8 * R + i % (8 * R);
            if (row >= a.rows)
                continue;
            float s = a.bias ? to_float(a.bias[row]) : 0.0f;
            for (int v = 0; v < WARPS; v++)
                s += part[v * NT * 8 * R + i];
            T *out = a.out + (size_t)(i / (8 * R)) * a.rows + row;
            *out = from_float<T>(a.accumulate ? s + to_float(*out) : s);
        }
    }
    async_wait<0>();
}

template <typename T, int NT, int R, int WARPS, int RING>
constexpr size_t stream_shared_bytes()
{
    return RING + 2 * WARPS * NT * 8 * R * sizeof(float);
}

#endif
