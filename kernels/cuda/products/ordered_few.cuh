/* kernels/cuda/products/ordered_few.cuh - ordered.cuh for few tokens: each warp multiplies 16 rows of weights by all
 * tokens of the tile. A step of 16 columns waits for the one before it, which takes a warp's instruction a quarter of
 * the time that it takes a warpgroup's. */
#ifndef PRODUCTS_ORDERED_FEW_CUH
#define PRODUCTS_ORDERED_FEW_CUH

#include "kernels/cuda/products/ordered.cuh"

/* W: warps that multiply. */
template <int W, int NT, int CH>
struct ordered_few_form : ordered_tile<NT, 16 * W, CH> {
    static const int CONSUMERS = W, THREADS = 32 * (W + 1);
    static const bool MANY = false;
};

/* A lane's share of the operands of 32 columns: of 16 rows of weights, and of 8 tokens each. */
template <int NT>
struct ordered_operands {
    uint32_t w[2][4], x[NT / 8][4];

    __device__ void clear(void)
    {
        for (int i = 0; i < 8; i++)
            w[i / 4][i % 4] = 0;
#pragma unroll
        for (int i = 0; i < NT / 2; i++)
            x[i / 4][i % 4] = 0;
    }
    /* part: of a chunk's columns, 0 or 1. Units of 16 bytes are swizzled as by copies of boxes, by the row's number in
     * the stage. Rows beyond x's are those of other chunks or stages: their results are not stored. */
    template <typename W>
    __device__ void load(const W &work, int slot, int chunk, int row, int part)
    {
        int lane = (int)threadIdx.x % 32;
        const char *weights = work.w_rows(slot, chunk) + (row + lane % 16) * 128;
        const char *inputs = work.x_rows(slot, chunk) + lane % 8 * 128;
        int x_row = (chunk * work.a.x_rows + lane) % 8;
#pragma unroll
        for (int k = 0; k < 2; k++)
            tensor_load(w[k], weights + ((part * 4 + k * 2 + lane / 16) ^ lane % 8) * 16);
#pragma unroll
        for (int t = 0; t < NT / 8; t++)
            tensor_load(x[t], inputs + t * 8 * 128 + ((part * 4 + lane / 8) ^ x_row) * 16);
    }
    template <typename T>
    __device__ void multiply(float (&sum)[NT / 8][4]) const
    {
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int t = 0; t < NT / 8; t++)
                tensor_mma<T>(sum[t], w[k][0], w[k][1], w[k][2], w[k][3], x[t][k * 2], x[t][k * 2 + 1]);
    }
};

/* The 16 rows of this warp. Operands are loaded half a chunk ahead; before a tile's first there are zeros. */
template <typename T, typename FORM>
__device__ static inline void ordered_few_tile(const ordered_work<T, FORM> &work, ordered_cursor &at, int warp)
{
    const int NT = FORM::TOKENS;
    ordered_operands<NT> half[2];
    float sum[NT / 8][4] = {};
    int token = work.token0(at) + (int)threadIdx.x % 4 * 2, row = work.row0(at) + warp * 16 + (int)threadIdx.x % 32 / 4;
    half[1].clear();
    for (int s = 0; s < work.n_stages; s++, work.advance(at)) {
        int slot = work.await(at);
#pragma unroll
        for (int chunk = 0; chunk < FORM::CHUNKS; chunk++) {
            half[0].load(work, slot, chunk, warp * 16, 0);
            half[1].template multiply<T>(sum);
            half[1].load(work, slot, chunk, warp * 16, 1);
            half[0].template multiply<T>(sum);
        }
        __syncwarp();
        work.release(at.count);
    }
    half[1].template multiply<T>(sum);
#pragma unroll
    for (int t = 0; t < NT / 8; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int of_token = token + t * 8 + i % 2, of_row = row + i / 2 * 8;
            T *to = work.a.out + (size_t)of_token * work.a.rows + of_row;
            if (of_token < work.a.n_tokens && of_row < work.a.rows)
                *to = from_float<T>(work.result(to, of_row, sum[t][i]));
        }
}

/* grid: at most one block per multiprocessor */
template <typename T, typename FORM>
__global__ void __launch_bounds__(FORM::THREADS, 1)
    ordered_few(ordered_args<T> a, const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap w_map)
{
    extern __shared__ uint4 shared[];
    ordered_work<T, FORM> work(a, &x_map, &w_map, ordered_memory<FORM>(shared));
    if (a.early)
        let_next_begin();
    work.open();
    int warp = (int)threadIdx.x / 32;
    if (warp == FORM::CONSUMERS) {
        if (threadIdx.x % 32 == 0)
            work.bring_all();
    } else {
        wait_for_previous(); /* which may still read or write the results' memory */
        for (ordered_cursor at = work.first(); !work.ended(at);)
            ordered_few_tile(work, at, warp);
    }
}

#endif
