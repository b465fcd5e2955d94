/* kernels/cuda/products/inputs_many.cuh - E4M3 codes times E4M3 codes for a medium number of tokens, on Hopper: the
 * tiles of experts_many.cuh, where two neighbouring codes count as one element, so that a stage has 128 columns, one
 * group of scales. One thread issues TMA copies of boxes of both operands. The tensor cores compute a stage's products,
 * which are multiplied by its scales and accumulated in float. */
#ifndef PRODUCTS_INPUTS_MANY_CUH
#define PRODUCTS_INPUTS_MANY_CUH

#include "kernels/cuda/products/experts_many.cuh"
#include "kernels/cuda/warpgroup_codes.cuh"

#define INPUTS_STAGES 5
#define INPUTS_WIDTH  64 /* maximum tokens of a tile */

using inputs_shared = many_shared<INPUTS_STAGES, INPUTS_WIDTH>;

/* w: [rows, n_groups]; x: [n_groups, pitch]. */
struct inputs_scales {
    const float *w, *x;
    int n_groups, pitch;
};

/* The scales for a thread's results of a group: of two rows in each of two boxes, of two tokens in 8. */
template <int HALF>
struct inputs_factors {
    float row[2][2], token[HALF / 4][2];
};

template <typename T>
struct inputs_work : many_work<T, MANY_DENSE, INPUTS_STAGES, INPUTS_WIDTH, MANY_BRINGING> {
    using base = many_work<T, MANY_DENSE, INPUTS_STAGES, INPUTS_WIDTH, MANY_BRINGING>;
    using base::a, base::sh;
    const inputs_scales &scales;
    const CUtensorMap *x_map;

    __device__ inputs_work(const expert_product<T> &args, const inputs_scales &of, const CUtensorMap *w,
                           const CUtensorMap *x, inputs_shared *shared)
        : base(args, w, shared), scales(of), x_map(x)
    {
    }
    __device__ int first_token(const many_tile &tile) const
    {
        return tile.begin - tile.expert * a.n_tokens;
    }

    /* Called by one thread. Elements outside are read as zeros. */
    __device__ void bring() const
    {
        many_tile tile;
        unsigned done = 0;
        for (int i = -1; base::next_tile(tile, i);)
            for (int s = 0, end = base::stages_of(tile); s < end; s++, done++) {
                int place = base::place_of(done), column = base::column(tile, s) * 2;
                uint32_t full = shared_address(&sh->full[place]);
                barrier_wait(shared_address(&sh->empty[place]), base::phase_of(done) ^ 1);
                barrier_expect(full, (2 * MANY_BOX + INPUTS_WIDTH) * 128);
                for (int b = 0; b < 2; b++)
                    box_copy(shared_address(sh->w[place][b]), base::map, column, tile.row0 + b * MANY_BOX, 0, full);
                box_copy_shared(shared_address(sh->x[place]), x_map, column, first_token(tile), 0, full);
            }
    }

    template <int HALF>
    __device__ void load(inputs_factors<HALF> &to, const many_tile &tile, int group) const
    {
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int row = min(tile.row0 + b * MANY_BOX + base::row_in_box() + h * 8, a.rows - 1);
                to.row[b][h] = scales.w[(size_t)row * scales.n_groups + group];
            }
        const float *x = scales.x + (size_t)group * scales.pitch + first_token(tile);
#pragma unroll
        for (int i = 0; i < HALF / 2; i++) {
            int t = i / 2 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
            to.token[i / 2][i % 2] = t < tile.n_tokens ? x[t] : 0.0f;
        }
    }
    template <int HALF>
    __device__ static void add(float (&sum)[2][HALF], const float (&part)[2][HALF])
    {
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int i = 0; i < HALF; i++)
                sum[b][i] += part[b][i];
    }
    /* The same, times their scales; ADDED false: overwrites the sums. */
    template <bool ADDED, int HALF>
    __device__ static void scale(float (&sum)[2][HALF], const float (&part)[2][HALF], const inputs_factors<HALF> &of)
    {
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int i = 0; i < HALF; i++) {
                float factor = of.row[b][i % 4 / 2] * of.token[i / 4][i % 2];
                sum[b][i] = ADDED ? fmaf(part[b][i], factor, sum[b][i]) : part[b][i] * factor;
            }
    }
    /* A stage's products, without scales. */
    template <int HALF>
    __device__ void multiply_stage(float (&part)[2][HALF], unsigned done) const
    {
        int place = base::place_of(done);
        barrier_wait(shared_address(&sh->full[place]), base::phase_of(done));
        uint64_t x = warpgroup_matrix<128>(shared_address(sh->x[place]), 16, 1024);
        uint64_t w = warpgroup_matrix<128>(shared_address(sh->w[place]) + base::half() * 64 * 128, 16, 1024);
        warpgroup_begin();
#pragma unroll
        for (int b = 0; b < 2; b++) {
            const int next = MANY_BOX * 128 / 16;
            warpgroup_product_of_codes<false>(part[b], w + b * next, x);
            warpgroup_product_of_codes<true>(part[b], w + b * next + 2, x + 2);
            warpgroup_product_of_codes<true>(part[b], w + b * next + 4, x + 4);
            warpgroup_product_of_codes<true>(part[b], w + b * next + 6, x + 6);
        }
        warpgroup_commit();
        warpgroup_wait<0>();
        base::release(done);
        warpgroup_results(part[0]);
        warpgroup_results(part[1]);
    }
    template <int N>
    __device__ __forceinline__ void run(const many_tile &tile, unsigned &done) const
    {
        float sum[2][N / 2] = {}, part[2][N / 2];
        inputs_factors<N / 2> now, next;
        bool groups = scales.n_groups > 1;
        int first = base::first_stage(tile.expert), end = base::stages_of(tile);
        load(next, tile, groups ? first : 0);
        for (int s = 0; s < end; s++, done++) {
            now = next;
            if (groups && s + 1 < end)
                load(next, tile, first + s + 1);
            multiply_stage(part, done);
            if (groups)
                scale<true>(sum, part, now);
            else
                add(sum, part);
        }
        if (!groups)
            scale<false>(sum, sum, next);
        if (a.sums != nullptr)
            base::store_part(sum, tile);
        else
            base::store_tile(sum, tile);
    }
    __device__ void multiply() const
    {
        many_tile tile;
        unsigned done = 0;
        for (int i = -1; base::next_tile(tile, i);)
            if (tile.n_tokens <= 32)
                run<32>(tile, done);
            else
                run<64>(tile, done);
    }
};

/* grid: one block per multiprocessor. maps: of w and of x, see inputs_many.cu */
template <typename T>
__global__ void __launch_bounds__(MANY_THREADS, 1)
    inputs_many(const __grid_constant__ expert_product<T> a, const __grid_constant__ inputs_scales scales,
                const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x)
{
    extern __shared__ uint4 shared[];
    inputs_work<T> work(a, scales, &w, &x, many_memory<inputs_shared>(shared));
    work.open(1, true);
    if (threadIdx.x < MANY_BRINGING) {
        give_registers<56>();
        if (threadIdx.x == 0)
            work.bring();
    } else {
        take_registers<224>();
        work.multiply();
    }
}

#endif
