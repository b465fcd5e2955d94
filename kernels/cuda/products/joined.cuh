/* kernels/cuda/products/joined.cuh - the product of a medium number of tokens, for devices whose warpgroups multiply
 * (compute capability 9.0a): out[t][row] (+)= x[t] w_row^T + bias_row, at memory bandwidth. Rows of weights are the
 * rows (M) of the tensor cores' products, 64 a warpgroup, tokens their columns (N). The two blocks of a cluster have
 * the same tile of results and half of the columns each, so that few rows keep all multiprocessors busy. One thread
 * copies boxes of both operands to rings of stages: weights as far ahead as shared memory allows, the first before the
 * preceding kernel is done, and x, which comes from L2, a few stages ahead. At last each block adds both halves for its
 * share of the tokens, in order, from the cluster's shared memory. Columns are divided at the same place for any number
 * of tokens, so a result does not depend on it. */
#ifndef PRODUCTS_JOINED_CUH
#define PRODUCTS_JOINED_CUH

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/warpgroup_codes.cuh"

#define JOINED_PARTS 2   /* of the columns, blocks of a cluster */
#define JOINED_SPAN  128 /* bytes of a row in a chunk */
#define JOINED_BREAK 2   /* columns are divided at multiples of so many chunks */
#define JOINED_ALIGN 1024
#define JOINED_BYTES (220 * 1024) /* of shared memory for stages, at most */

/* G: warpgroups; N: tokens of the tile; CD: operands are codes of E4M3, otherwise of the results' type. A stage has
 * CHUNKS chunks, since a copy takes the thread as long whatever its size. */
template <int G, int N, bool CD>
struct joined_form {
    static const bool CODES = CD;
    static const int GROUPS = G, TOKENS = N, ROWS = 64 * G, CHUNKS = G == 1 ? 2 : 1;
    static const int W_STAGE = ROWS * JOINED_SPAN * CHUNKS, X_STAGE = TOKENS * JOINED_SPAN * CHUNKS;
    static const int X_STAGES = N <= 64 ? 4 : 3, W_STAGES = (JOINED_BYTES - X_STAGES * X_STAGE) / W_STAGE;
    static const int CONSUMERS = 128 * G, THREADS = CONSUMERS + 32;
    static const int PITCH = ROWS + 4; /* of a token's sums: stored without conflicts of banks */
    static_assert(X_STAGES <= W_STAGES && W_STAGES * W_STAGE >= TOKENS * PITCH * (int)sizeof(float), "no room");
};

template <typename T>
struct joined_args {
    T *out; /* [n_tokens, rows] */
    const void *bias;
    enum dtype bias_type;
    const float *w_scales, *x_scales; /* of codes: of rows */
    int n_tokens, rows, n_chunks;
    int box; /* rows of a tile, a multiple of 8 */
    bool accumulate;
    bool early; /* the next kernel may begin */
};

/* A stage: [chunks][rows][JOINED_SPAN]; at last the sums, [tokens][PITCH], take the place of weights. */
template <typename FORM>
struct joined_shared {
    char w[FORM::W_STAGES][FORM::W_STAGE], x[FORM::X_STAGES][FORM::X_STAGE];
    uint64_t w_full[FORM::W_STAGES], x_full[FORM::X_STAGES], read[FORM::W_STAGES];
};

template <typename T, typename FORM>
struct joined_work {
    static const int W_STAGES = FORM::W_STAGES, X_STAGES = FORM::X_STAGES, CHUNKS = FORM::CHUNKS;
    static const int TOKENS = FORM::TOKENS, SHARE = TOKENS / JOINED_PARTS;
    static const int UNITS = FORM::ROWS / 8; /* of 8 results, which a thread adds at once */
    static const int MOST = SHARE * UNITS / FORM::CONSUMERS;
    const joined_args<T> &a;
    const CUtensorMap *x_map, *w_map; /* boxes of a stage */
    joined_shared<FORM> *sh;
    int rank, chunk0, n_stages; /* of this block's part */
    int row0;

    __device__ joined_work(const joined_args<T> &args, const CUtensorMap *x, const CUtensorMap *w,
                           joined_shared<FORM> *shared)
        : a(args), x_map(x), w_map(w), sh(shared), rank(cluster_rank())
    {
        int n = (a.n_chunks + JOINED_BREAK - 1) / JOINED_BREAK;
        int first = rank * n / JOINED_PARTS, end = (rank + 1) * n / JOINED_PARTS;
        chunk0 = first * JOINED_BREAK;
        n_stages = (end - first) * JOINED_BREAK / CHUNKS;
        row0 = (int)blockIdx.x / JOINED_PARTS * a.box;
    }
    __device__ void open(void) const
    {
        if (threadIdx.x == 0) {
            for (int i = 0; i < W_STAGES; i++) {
                barrier_open(shared_address(&sh->w_full[i]), 1);
                barrier_open(shared_address(&sh->read[i]), FORM::CONSUMERS / 32);
            }
            for (int i = 0; i < X_STAGES; i++)
                barrier_open(shared_address(&sh->x_full[i]), 1);
            barriers_opened();
        }
        __syncthreads();
    }

    /* ---- one thread brings ---- */

    __device__ void bring_weights(int stage) const
    {
        uint32_t full = shared_address(&sh->w_full[stage % W_STAGES]);
        barrier_expect(full, a.box * JOINED_SPAN * CHUNKS);
        box_copy(shared_address(sh->w[stage % W_STAGES]), w_map, 0, row0, chunk0 + stage * CHUNKS, full);
    }
    __device__ void bring_tokens(int stage) const
    {
        uint32_t full = shared_address(&sh->x_full[stage % X_STAGES]);
        barrier_expect(full, FORM::X_STAGE);
        box_copy_shared(shared_address(sh->x[stage % X_STAGES]), x_map, 0, 0, chunk0 + stage * CHUNKS, full);
    }
    __device__ void bring_all(void) const
    {
        for (int s = 0; s < min(n_stages, W_STAGES); s++)
            bring_weights(s);
        wait_for_previous();
        copies_see_writes();
        for (int s = 0; s < min(n_stages, X_STAGES); s++)
            bring_tokens(s);
        for (int s = 0; s + X_STAGES < n_stages; s++) {
            barrier_wait(shared_address(&sh->read[s % W_STAGES]), s / W_STAGES % 2);
            if (s + W_STAGES < n_stages)
                bring_weights(s + W_STAGES);
            bring_tokens(s + X_STAGES);
        }
    }

    /* ---- warpgroups multiply ---- */

    /* Tells that this warp has read a stage. */
    __device__ void release(int stage) const
    {
        if (threadIdx.x % 32 == 0)
            barrier_arrive(shared_address(&sh->read[stage % W_STAGES]));
    }
    /* The products of a stage; those of 16-bit numbers run on. */
    __device__ void multiply_stage(float (&sum)[TOKENS / 2], uint64_t w, uint64_t x) const
    {
        const uint64_t w_next = (uint64_t)(a.box * (JOINED_SPAN / 16)), x_next = TOKENS * JOINED_SPAN / 16;
        warpgroup_begin();
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                warpgroup_product<T, true>(sum, w + c * w_next + k * 2, x + c * x_next + k * 2);
        warpgroup_commit();
    }
    /* The same of codes, which the tensor cores accumulate inexactly: not for more columns than a chunk's. */
    __device__ void multiply_codes(float (&sum)[TOKENS / 2], uint64_t w, uint64_t x) const
    {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            float part[TOKENS / 2];
            uint64_t w_at = w + (uint64_t)(c * a.box * (JOINED_SPAN / 16)), x_at = x + c * TOKENS * JOINED_SPAN / 16;
            warpgroup_begin();
            warpgroup_product_of_codes<false>(part, w_at, x_at);
            warpgroup_product_of_codes<true>(part, w_at + 2, x_at + 2);
            warpgroup_product_of_codes<true>(part, w_at + 4, x_at + 4);
            warpgroup_product_of_codes<true>(part, w_at + 6, x_at + 6);
            warpgroup_commit();
            warpgroup_wait<0>();
            warpgroup_results(part);
#pragma unroll
            for (int i = 0; i < TOKENS / 2; i++)
                sum[i] += part[i];
        }
    }
    __device__ void multiply(float (&sum)[TOKENS / 2], int group) const
    {
#pragma unroll
        for (int i = 0; i < TOKENS / 2; i++)
            sum[i] = 0;
        for (int s = 0; s < n_stages; s++) {
            barrier_wait(shared_address(&sh->w_full[s % W_STAGES]), s / W_STAGES % 2);
            barrier_wait(shared_address(&sh->x_full[s % X_STAGES]), s / X_STAGES % 2);
            uint32_t w_at = shared_address(sh->w[s % W_STAGES]) + (uint32_t)(group * 64 * JOINED_SPAN);
            uint64_t w = warpgroup_matrix<128>(w_at, 16, 1024);
            uint64_t x = warpgroup_matrix<128>(shared_address(sh->x[s % X_STAGES]), 16, 1024);
            if constexpr (FORM::CODES) {
                multiply_codes(sum, w, x);
                release(s);
            } else {
                multiply_stage(sum, w, x);
                warpgroup_wait<1>();
                if (s > 0)
                    release(s - 1);
            }
        }
        warpgroup_wait<0>();
        warpgroup_results(sum);
    }

    /* ---- both parts are added ---- */

    __device__ float *sums(void) const
    {
        return (float *)sh->w;
    }
    __device__ void put(const float (&sum)[TOKENS / 2], int group) const
    {
        int lane = (int)threadIdx.x % 32, row = group * 64 + (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
        float *to = sums() + lane % 4 * 2 * FORM::PITCH + row;
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[(j * 8 + i % 2) * FORM::PITCH + i / 2 * 8] = sum[j * 4 + i];
    }
    /* A thread's i-th unit: 8 results of a token of this block's share. */
    struct unit {
        bool wanted;
        int token, at; /* at: of the tile's rows */
    };
    __device__ unit find_unit(int i) const
    {
        int n = (int)threadIdx.x + i * FORM::CONSUMERS, token = rank * SHARE + n / UNITS, at = n % UNITS * 8;
        return {token < a.n_tokens && at < a.box && row0 + at < a.rows, token, at};
    }
    __device__ T *place_of(const unit &u) const
    {
        return a.out + (size_t)u.token * a.rows + row0 + u.at;
    }
    /* The factors of the parts' sum, if operands are codes, and what is added then. */
    struct terms {
        float factor[8], plus[8];
    };
    __device__ void load(terms &to, const unit &u) const
    {
        uint4 had = a.accumulate && u.wanted ? *(const uint4 *)place_of(u) : make_uint4(0, 0, 0, 0);
        const uint32_t old[4] = {had.x, had.y, had.z, had.w};
        float scale = FORM::CODES && u.wanted ? a.x_scales[u.token] : 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float2 pair = tensor_unpack<T>(old[i / 2]);
            int row = u.wanted ? row0 + u.at + i : 0;
            to.plus[i] = (i % 2 == 0 ? pair.x : pair.y) + weight_at(a.bias, a.bias_type, row, 0.0f);
            to.factor[i] = FORM::CODES ? a.w_scales[row] * scale : 1;
        }
    }
    /* Adds the parts and stores the results. */
    __device__ void add(const unit &u, const terms &of) const
    {
        uint32_t from = shared_address(sums() + u.token * FORM::PITCH + u.at);
        float sum[8] = {};
#pragma unroll
        for (int p = 0; p < JOINED_PARTS; p++) {
            float4 low = cluster_load(from, p), high = cluster_load(from + 16, p);
            sum[0] += low.x, sum[1] += low.y, sum[2] += low.z, sum[3] += low.w;
            sum[4] += high.x, sum[5] += high.y, sum[6] += high.z, sum[7] += high.w;
        }
        uint32_t y[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            y[i] = tensor_pack<T>(fmaf(sum[2 * i], of.factor[2 * i], of.plus[2 * i]),
                                  fmaf(sum[2 * i + 1], of.factor[2 * i + 1], of.plus[2 * i + 1]));
        *(uint4 *)place_of(u) = make_uint4(y[0], y[1], y[2], y[3]);
    }
    __device__ void compute(int group) const
    {
        float sum[TOKENS / 2];
        wait_for_previous(); /* which may still use the results' memory */
        multiply(sum, group);
        asm volatile("bar.sync 1, %0;" ::"n"(FORM::CONSUMERS) : "memory"); /* all stages are read */
        put(sum, group);
        cluster_arrive();
        terms of[MOST];
#pragma unroll
        for (int i = 0; i < MOST; i++)
            load(of[i], find_unit(i));
        cluster_wait();
#pragma unroll
        for (int i = 0; i < MOST; i++) {
            unit u = find_unit(i);
            if (u.wanted)
                add(u, of[i]);
        }
    }
};

/* A kernel's structure in shared memory. */
template <typename FORM>
__device__ static inline joined_shared<FORM> *joined_memory(void)
{
    extern __shared__ uint4 shared[];
    uint32_t past = shared_address(shared) % JOINED_ALIGN;
    return (joined_shared<FORM> *)((char *)shared + (past > 0 ? JOINED_ALIGN - past : 0));
}

/* grid: tiles x JOINED_PARTS, a cluster a tile. Maps: see joined.cu */
template <typename T, typename FORM>
__global__ void __launch_bounds__(FORM::THREADS, 1)
    joined_product(const joined_args<T> a, const __grid_constant__ CUtensorMap x_map,
                   const __grid_constant__ CUtensorMap w_map)
{
    joined_work<T, FORM> work(a, &x_map, &w_map, joined_memory<FORM>());
    if (a.early)
        let_next_begin();
    work.open();
    int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    if (warp == FORM::CONSUMERS / 32) {
        if (threadIdx.x % 32 == 0)
            work.bring_all();
        __syncwarp();
        cluster_meet();
    } else {
        work.compute(warp / 4);
        __syncwarp();
    }
    cluster_meet(); /* the other block has read this one's sums */
}

#endif
