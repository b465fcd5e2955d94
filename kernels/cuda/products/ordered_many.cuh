/* kernels/cuda/products/ordered_many.cuh - ordered.cuh for many tokens: each warpgroup multiplies 64 tokens by all rows
 * of weights of the tile. */
#ifndef PRODUCTS_ORDERED_MANY_CUH
#define PRODUCTS_ORDERED_MANY_CUH

#include "kernels/cuda/products/ordered.cuh"
#include "kernels/cuda/warpgroup.cuh"

/* warpgroup_product with the widest instruction, [64, 256]. */
template <typename T, bool KEPT>
__device__ static inline void warpgroup_product(float (&c)[128], uint64_t a, uint64_t b)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define PRODUCT(TYPE)                                                                                              \
    asm volatile("{ .reg .pred keep; setp.ne.b32 keep, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE \
                 "." TYPE " {" NAMES_128 "}, %128, %129, keep, 1, 1, 0, 0; }"                                      \
                 : LIST_128(c, 0)                                                                                  \
                 : "l"(a), "l"(b), "n"((int)KEPT))
    if constexpr (std::is_same<T, __half>::value)
        PRODUCT("f16");
    else
        PRODUCT("bf16");
#undef PRODUCT
#endif
}

/* G: warpgroups that multiply. N: rows of weights. */
template <int G, int N, int CH>
struct ordered_many_form : ordered_tile<64 * G, N, CH> {
    static const int CONSUMERS = 4 * G, THREADS = 128 * (G + 1);
    static const bool MANY = true;
};

template <typename T, typename FORM>
struct ordered_warpgroup {
    static const int N = FORM::WIDTH;
    const ordered_work<T, FORM> &work;
    int warpgroup;

    __device__ void multiply(float (&sum)[N / 2], ordered_cursor &at) const
    {
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            sum[i] = 0;
        for (int s = 0; s < work.n_stages; s++, work.advance(at)) {
            int slot = work.await(at);
            warpgroup_begin();
#pragma unroll
            for (int chunk = 0; chunk < FORM::CHUNKS; chunk++) {
                uint64_t x =
                    warpgroup_matrix<128>(shared_address(work.x_rows(slot, chunk) + warpgroup * 64 * 128), 16, 1024);
                uint64_t w = warpgroup_matrix<128>(shared_address(work.w_rows(slot, chunk)), 16, 1024);
#pragma unroll
                for (int k = 0; k < ORDERED_COLS / 16; k++)
                    warpgroup_product<T, true>(sum, x + k * 2, w + k * 2);
            }
            warpgroup_commit();
            warpgroup_wait<1>();
            if (s > 0)
                work.release(at.count - 1);
        }
        warpgroup_wait<0>();
        work.release(at.count - 1);
        warpgroup_results(sum);
    }
    /* Stores two neighbouring results of a token; words: rows come in pairs of one word. */
    __device__ void store(int token, int row, const float *sum, bool words) const
    {
        T *to = work.a.out + (size_t)token * work.a.rows + row;
        bool both = row + 1 < work.a.rows;
        float low = work.result(to, row, sum[0]), high = both ? work.result(to + 1, row + 1, sum[1]) : 0;
        if (words) {
            *(uint32_t *)to = tensor_pack<T>(low, high);
            return;
        }
        to[0] = from_float<T>(low);
        if (both)
            to[1] = from_float<T>(high);
    }
    __device__ void store_all(const float (&sum)[N / 2], int token0, int row0) const
    {
        int lane = (int)threadIdx.x % 32, token = token0 + (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
        bool words = work.a.rows % 2 == 0 && (uintptr_t)work.a.out % 4 == 0;
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (token + h * 8 < work.a.n_tokens)
#pragma unroll
                for (int j = 0; j < N / 8; j++) {
                    int row = row0 + j * 8 + lane % 4 * 2;
                    if (row < work.a.rows)
                        store(token + h * 8, row, &sum[j * 4 + h * 2], words);
                }
    }
    __device__ void multiply_all(void) const
    {
        wait_for_previous(); /* which may still read or write the results' memory */
        for (ordered_cursor at = work.first(); !work.ended(at);) {
            float sum[N / 2];
            int token = work.token0(at) + warpgroup * 64, row = work.row0(at);
            multiply(sum, at);
            store_all(sum, token, row);
        }
    }
};

/* grid: at most one block per multiprocessor */
template <typename T, typename FORM>
__global__ void __launch_bounds__(FORM::THREADS, 1)
    ordered_many(ordered_args<T> a, const __grid_constant__ CUtensorMap x_map,
                 const __grid_constant__ CUtensorMap w_map)
{
    extern __shared__ uint4 shared[];
    ordered_work<T, FORM> work(a, &x_map, &w_map, ordered_memory<FORM>(shared));
    if (a.early)
        let_next_begin();
    work.open();
    if (threadIdx.x < 128) {
        if constexpr (FORM::WIDTH > 128)
            give_registers<40>();
        if (threadIdx.x == 0)
            work.bring_all();
    } else {
        if constexpr (FORM::WIDTH > 128)
            take_registers<232>();
        ordered_warpgroup<T, FORM>{work, (int)threadIdx.x / 128 - 1}.multiply_all();
    }
}

#endif
