/* kernels/cuda/products/route_logits.cuh - the router's arguments, and its product: every expert's logit for every
 * token. */
#ifndef PRODUCTS_ROUTE_LOGITS_CUH
#define PRODUCTS_ROUTE_LOGITS_CUH

#include "kernels/cuda/products/route_lanes.cuh"
#include "kernels/cuda/products/row_dots.cuh"
#include "kernels/cuda/tensor.cuh"

template <typename T, typename W>
struct route_args {
    struct routes to;
    const T *x;
    const W *w;
    const void *of_logits,
        *of_choice; /* added to the logits, or to the values by which experts are chosen; NULL: none */
    enum dtype bias_type;
    struct routing how;
    int n_tokens, cols;
};

/* The choice, given the logits. */
struct choose_args {
    struct routes to;
    const void *bias;
    enum dtype bias_type;
    struct routing how;
    int n_tokens;
};

template <typename T, typename W>
__host__ __device__ static inline choose_args choice_of(const route_args<T, W> &a)
{
    return {a.to, a.of_choice, a.bias_type, a.how, a.n_tokens};
}

__device__ static inline route_choice choice_of_token(const choose_args &a, int t)
{
    size_t pair = (size_t)t * a.how.n_chosen;
    return {a.to.expert + pair, a.to.share + pair, a.to.logits + (size_t)t * a.how.n_experts, a.bias, a.bias_type};
}

/* The bias of an expert's logit; 0 without one, and for experts that do not exist. */
template <typename T, typename W>
__device__ static inline float bias_of_logit(const route_args<T, W> &a, int e)
{
    return e < a.how.n_experts ? weight_at(a.of_logits, a.bias_type, e, 0.0f) : 0.0f;
}

/* Stores a logit; also(token, expert, logit) may store it elsewhere, too. */
template <typename T, typename W, typename F>
__device__ static inline void put_logit(const route_args<T, W> &a, int t, int e, float sum, F also)
{
    float logit = sum + bias_of_logit(a, e);
    a.to.logits[(size_t)t * a.how.n_experts + e] = logit;
    also(t, e, logit);
}

/* For logits that are stored once. */
struct stored_once {
    __device__ void operator()(int, int, float) const {}
};

/* Expert e's logits for tokens t0 .. t0 + TOKENS - 1, by a warp. */
template <typename T, typename W, int N, int TOKENS, typename F = stored_once>
__device__ static inline void make_logits(const route_args<T, W> &a, int e, int t0, F also = F())
{
    const T *row[TOKENS];
    float sum[TOKENS];
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        row[t] = a.x + (size_t)min(t0 + t, a.n_tokens - 1) * a.cols;
    row_dots<T, W, N>(sum, row, a.w + (size_t)e * a.cols, a.cols);
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
        if (threadIdx.x % 32 == 0 && t0 + t < a.n_tokens)
            put_logit(a, t0 + t, e, sum[t], also);
}

/* ---- logits on the tensor cores ---- */

/* True where the router's weights have the activations' 16-bit type, in rows that are loaded 8 elements at a time. */
template <typename T, typename W, int N>
constexpr bool ON_TILES = std::is_same<T, W>::value && sizeof(T) == 2 && N == 8;

#define TILE_TOKENS  16
#define TILE_EXPERTS 16 /* of a warp */

/* 16 tokens' logits of 16 experts, over columns [begin, end), which are multiples of 32. As in matmul_stream.cuh lanes
 * hold 16 bytes of a row of each operand, which permutes the columns within 32, the same for both. */
template <typename T>
__device__ static inline void multiply_tile(float (&sum)[2][4], const route_args<T, T> &a, int t0, int e0, int begin,
                                            int end)
{
    int lane = threadIdx.x % 32, g = lane / 4;
    const T *x[2], *w[2];
    for (int i = 0; i < 2; i++) {
        x[i] = a.x + (size_t)min(t0 + i * 8 + g, a.n_tokens - 1) * a.cols;
        w[i] = a.w + (size_t)min(e0 + i * 8 + g, a.how.n_experts - 1) * a.cols;
    }
#pragma unroll 8
    for (int k = begin + lane % 4 * 8; k < end; k += 32) {
        uint4 of_x[2], of_w[2], none = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            of_x[i] = k < a.cols ? *(const uint4 *)(x[i] + k) : none;
            of_w[i] = k < a.cols ? *(const uint4 *)(w[i] + k) : none;
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            tensor_mma<T>(sum[i], of_x[0].x, of_x[1].x, of_x[0].y, of_x[1].y, of_w[i].x, of_w[i].y);
            tensor_mma<T>(sum[i], of_x[0].z, of_x[1].z, of_x[0].w, of_x[1].w, of_w[i].z, of_w[i].w);
        }
    }
}

typedef float tile_sums[TILE_TOKENS][TILE_EXPERTS];

/* Called by a block of N_WARPS warps: the logits of TILE_TOKENS tokens, from t0 on, for N_WARPS / PARTS times
 * TILE_EXPERTS experts, from e0 on. PARTS of the warps split the columns; their sums are added in order. part: shared
 * memory, [N_WARPS]. */
template <typename T, int N_WARPS, int PARTS, typename F = stored_once>
__device__ static inline void tile_logits(const route_args<T, T> &a, tile_sums *part, int t0, int e0, F also = F())
{
    const int OF_BLOCK = N_WARPS / PARTS * TILE_EXPERTS;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, steps = (a.cols + 31) / 32;
    float sum[2][4] = {}; /* of 8 experts each */
    multiply_tile(sum, a, t0, e0 + warp / PARTS * TILE_EXPERTS, warp % PARTS * steps / PARTS * 32,
                  (warp % PARTS + 1) * steps / PARTS * 32);
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            part[warp][c / 2 * 8 + lane / 4][i * 8 + lane % 4 * 2 + c % 2] = sum[i][c];
    __syncthreads();
    for (int i = threadIdx.x; i < TILE_TOKENS * OF_BLOCK; i += N_WARPS * 32) {
        int t = i / OF_BLOCK, e = i % OF_BLOCK;
        float logit = 0;
#pragma unroll
        for (int p = 0; p < PARTS; p++)
            logit += part[e / TILE_EXPERTS * PARTS + p][t][e % TILE_EXPERTS];
        if (t0 + t < a.n_tokens && e0 + e < a.how.n_experts)
            put_logit(a, t0 + t, e0 + e, logit, also);
    }
}

/* ---- weights ahead of time ---- */

/* Prefetches weights that are needed soon to L2 while the preceding kernel ends. */
template <typename T, typename W>
__device__ static inline void prefetch_row(const route_args<T, W> &a, int e)
{
    const char *row = (const char *)(a.w + (size_t)e * a.cols);
    for (size_t at = (size_t)threadIdx.x % 32 * 128; at < (size_t)a.cols * sizeof(W); at += 32 * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(row + at));
}

#endif
