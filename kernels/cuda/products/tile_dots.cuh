/* kernels/cuda/products/tile_dots.cuh - the products of 16 tokens with 16 rows of weights by one warp, on the tensor
 * cores. */
#pragma once
#include "kernels/cuda/tensor.cuh"

#define TILE_TOKENS 16
#define TILE_ROWS   16

/* sum[i][c] += the product of token c / 2 * 8 + lane / 4 with row i * 8 + lane % 4 * 2 + c % 2. x and w point to this
 * lane's two tokens and two rows, those of lane / 4 and 8 + lane / 4. As in matmul_stream.cuh lanes hold 16 bytes of a
 * row of each operand, which permutes the columns within 32, the same for both. cols is a multiple of 8. */
template <typename T, int UNROLL>
__device__ static inline void tile_dots(float (*sum)[4], const T *const *x, const T *const *w, int cols)
{
#pragma unroll UNROLL
    for (int k = (int)threadIdx.x % 4 * 8; k < (cols + 31) / 32 * 32; k += 32) {
        uint4 of_x[2], of_w[2], none = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            of_x[i] = k < cols ? *(const uint4 *)(x[i] + k) : none;
            of_w[i] = k < cols ? *(const uint4 *)(w[i] + k) : none;
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            tensor_mma<T>(sum[i], of_x[0].x, of_x[1].x, of_x[0].y, of_x[1].y, of_w[i].x, of_w[i].y);
            tensor_mma<T>(sum[i], of_x[0].z, of_x[1].z, of_x[0].w, of_x[1].w, of_w[i].z, of_w[i].w);
        }
    }
}
