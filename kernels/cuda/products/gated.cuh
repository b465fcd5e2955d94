/* kernels/cuda/products/gated.cuh - the product with gates and ups of an MLP, activated as it is stored: out[t][f] =
 * act(x[t] gate_f^T) (x[t] up_f^T), for devices whose warpgroups multiply (compute capability 9.0a). Both operands are
 * 16-bit numbers, or codes of E4M3 with a scale for each row of weights and each token. Rows of weights
 * are the rows (M) of the tensor cores' products, tokens their columns (N): a tile is up to 128 gates and their ups by
 * FORM::TOKENS tokens, and each of two warpgroups has 64 gates and these gates' ups, so both parts of a result meet in
 * a thread's registers. One thread copies boxes of both operands to a ring of stages. Neighbouring blocks may form a
 * cluster, whose tiles have the same weights and other tokens: then each block copies its share of the weights to all
 * of them. Columns are added in order in one accumulator, so a result depends neither on the tile nor on the number of
 * tokens. */
#ifndef PRODUCTS_GATED_CUH
#define PRODUCTS_GATED_CUH

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/warpgroup_codes.cuh"

#define GATED_SPAN      128 /* bytes of a row in a stage */
#define GATED_BOX       128 /* gates of a tile, or ups, at most */
#define GATED_ALIGN     1024
#define GATED_CONSUMERS 256
#define GATED_THREADS   (128 + GATED_CONSUMERS)
#define GATED_PASS      2048 /* tokens of a pass over the weights, so that they stay in L2 */

/* N: tokens of a tile; S: stages; C: blocks of a cluster, 1 or 2. LEAD: the first warpgroup is a stage ahead of the
 * second one, of codes half of one, so that one multiplies while the other one adds or stores its results. CODES: the
 * operands are codes. */
template <int N, int S, int C, bool L, bool Q>
struct gated_form {
    static const int TOKENS = N, STAGES = S, CLUSTER = C, COLS = Q ? GATED_SPAN : GATED_SPAN / 2;
    static const bool LEAD = L, CODES = Q;
};

template <typename T>
struct gated_args {
    T *out; /* [n_tokens, rows] */
    int n_tokens, rows, cols;
    int box;                          /* gates of a tile */
    int x_rows;                       /* of x in a stage; results of the tile's other tokens are not stored */
    const float *w_scales, *x_scales; /* of codes: [2 rows], [n_tokens] */
};

template <typename FORM>
struct gated_shared {
    char w[FORM::STAGES][2][GATED_BOX * GATED_SPAN]; /* gates, ups */
    char x[FORM::STAGES][FORM::TOKENS * GATED_SPAN];
    char out[2][FORM::TOKENS * 128]; /* of each warpgroup: rows of 64 results */
    uint64_t full[FORM::STAGES], empty[FORM::STAGES];
};

/* Called once at start where the device supports the kernel. */
void prepare_gated_products(struct queue *q);

/* Stores four 8 x 8 matrices of a warp, columns as rows: a lane gives the address of one of these 32 rows. */
__device__ static inline void gated_store_transposed(uint32_t to, const uint32_t (&m)[4])
{
#if __CUDA_ARCH__ >= 900
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(m[0]),
                 "r"(m[1]), "r"(m[2]), "r"(m[3])
                 : "memory");
#endif
}

/* ---- a block's work ---- */

struct gated_tile {
    int row0, token0;
};

template <typename T, typename FORM>
struct gated_work {
    static const int STAGES = FORM::STAGES, TOKENS = FORM::TOKENS, CLUSTER = FORM::CLUSTER;
    const gated_args<T> &a;
    const CUtensorMap *x_map, *w_map; /* of w: [gates, ups][rows][cols] */
    gated_shared<FORM> *sh;
    int n_stages, of_rows, of_tokens, n_tiles; /* of a cluster: a tile of each of its blocks */
    int rank;                                  /* in the cluster */

    __device__ gated_work(const gated_args<T> &args, const CUtensorMap *x, const CUtensorMap *w,
                          gated_shared<FORM> *shared)
        : a(args), x_map(x), w_map(w), sh(shared), n_stages((args.cols + FORM::COLS - 1) / FORM::COLS),
          of_rows((args.rows + args.box - 1) / args.box),
          of_tokens((args.n_tokens + CLUSTER * TOKENS - 1) / (CLUSTER * TOKENS)), n_tiles(of_rows * of_tokens),
          rank(CLUSTER > 1 ? cluster_rank() : 0)
    {
    }
    __device__ void open(void) const
    {
        if (threadIdx.x == 0) {
            for (int i = 0; i < STAGES; i++) {
                barrier_open(shared_address(&sh->full[i]), 1);
                barrier_open(shared_address(&sh->empty[i]), CLUSTER * GATED_CONSUMERS / 32);
            }
            barriers_opened();
            box_map_prefetch(x_map);
            box_map_prefetch(w_map);
        }
        if constexpr (CLUSTER > 1)
            cluster_meet();
        else
            __syncthreads();
    }
    __device__ int first(void) const
    {
        return (int)blockIdx.x / CLUSTER;
    }
    __device__ int step(void) const
    {
        return (int)gridDim.x / CLUSTER;
    }
    /* Tile i: one pass over the weights after the other; in a pass by rows, for all of its tokens. */
    __device__ gated_tile tile(int i) const
    {
        const int most = GATED_PASS / TOKENS / CLUSTER;
        int pass = i / (most * of_rows), first = pass * most, n = min(most, of_tokens - first);
        int at = i - pass * most * of_rows;
        return {at / n * a.box, ((first + at % n) * CLUSTER + rank) * TOKENS};
    }
    __device__ static int slot_of(unsigned count)
    {
        return (int)(count % STAGES);
    }
    __device__ static int phase_of(unsigned count)
    {
        return (int)(count / STAGES % 2);
    }

    /* ---- one thread brings ---- */

    __device__ void bring_weights(const gated_tile &t, int stage, int slot) const
    {
        uint32_t full = shared_address(&sh->full[slot]);
        barrier_expect(full, (2 * a.box + a.x_rows) * GATED_SPAN);
        if constexpr (CLUSTER > 1) {
            box_copy_to_both(shared_address(sh->w[slot][rank]), w_map, stage * FORM::COLS, t.row0, rank, full);
        } else {
            for (int i = 0; i < 2; i++)
                box_copy(shared_address(sh->w[slot][i]), w_map, stage * FORM::COLS, t.row0, i, full);
        }
    }
    __device__ void bring_tokens(const gated_tile &t, int stage, int slot) const
    {
        box_copy_shared(shared_address(sh->x[slot]), x_map, stage * FORM::COLS, t.token0, 0,
                        shared_address(&sh->full[slot]));
    }
    /* The first stages' weights are under way before the preceding kernel is done. */
    __device__ void bring_all(void) const
    {
        unsigned count = 0, early = (unsigned)min(n_stages, STAGES);
        if (first() < n_tiles)
            for (unsigned s = 0; s < early; s++)
                bring_weights(tile(first()), (int)s, (int)s);
        wait_for_previous();
        copies_see_writes();
        for (int i = first(); i < n_tiles; i += step()) {
            gated_tile t = tile(i);
            for (int s = 0; s < n_stages; s++, count++) {
                int slot = slot_of(count);
                if (count >= early) {
                    barrier_wait(shared_address(&sh->empty[slot]), phase_of(count) ^ 1);
                    bring_weights(t, s, slot);
                }
                bring_tokens(t, s, slot);
            }
        }
    }

    /* ---- two warpgroups multiply ---- */

    __device__ void release(unsigned count) const
    {
        uint32_t empty = shared_address(&sh->empty[slot_of(count)]);
        if constexpr (CLUSTER > 1) {
            if (threadIdx.x % 32 < CLUSTER)
                barrier_arrive_at(empty, (int)threadIdx.x % 32);
        } else {
            if (threadIdx.x % 32 == 0)
                barrier_arrive(empty);
        }
    }
    /* The next stage's gates and ups of a warpgroup, and tokens. */
    struct operands {
        uint64_t w[2], x;
    };
    __device__ operands wait_for(unsigned count, int half) const
    {
        int slot = slot_of(count);
        barrier_wait(shared_address(&sh->full[slot]), phase_of(count));
        uint64_t x = warpgroup_matrix<128>(shared_address(sh->x[slot]), 16, 1024);
        uint64_t w = warpgroup_matrix<128>(shared_address(sh->w[slot]) + half * 64 * GATED_SPAN, 16, 1024);
        return {{w, w + GATED_BOX * GATED_SPAN / 16}, x};
    }
    /* Lets the second warpgroup begin, once. */
    __device__ static void lead(int half, bool begun)
    {
        if (FORM::LEAD && half == 0 && begun)
            asm volatile("bar.arrive 3, 256;" ::: "memory");
    }
    __device__ void multiply_numbers(float (&sum)[2][TOKENS / 2], unsigned &count, int half) const
    {
        for (int s = 0; s < n_stages; s++, count++) {
            const operands of = wait_for(count, half);
            warpgroup_begin();
#pragma unroll
            for (int k = 0; k < FORM::COLS / 16; k++)
#pragma unroll
                for (int b = 0; b < 2; b++)
                    warpgroup_product<T, true>(sum[b], of.w[b] + k * 2, of.x + k * 2);
            warpgroup_commit();
            warpgroup_wait<1>();
            if (s > 0)
                release(count - 1);
            lead(half, s == 1 && count == 1);
        }
        warpgroup_wait<0>();
        release(count - 1);
        warpgroup_results(sum[0]);
        warpgroup_results(sum[1]);
    }
    /* A stage's products of gates, then of ups, are added in other registers (see warpgroup_codes.cuh), while the other
     * warpgroup multiplies. */
    __device__ void multiply_codes(float (&sum)[2][TOKENS / 2], unsigned &count, int half) const
    {
        for (int s = 0; s < n_stages; s++, count++) {
            const operands of = wait_for(count, half);
#pragma unroll
            for (int b = 0; b < 2; b++) {
                float part[TOKENS / 2];
                warpgroup_begin();
                warpgroup_product_of_codes<false>(part, of.w[b], of.x);
#pragma unroll
                for (int k = 1; k < FORM::COLS / 32; k++)
                    warpgroup_product_of_codes<true>(part, of.w[b] + k * 2, of.x + k * 2);
                warpgroup_commit();
                warpgroup_wait<0>();
                if (b == 0)
                    lead(half, count == 0);
                else
                    release(count);
                warpgroup_results(part);
#pragma unroll
                for (int i = 0; i < TOKENS / 2; i++)
                    sum[b][i] += part[i];
            }
        }
    }
    /* Multiplies the sums of codes by their scales. */
    __device__ void scale(float (&sum)[2][TOKENS / 2], const gated_tile &t, int half) const
    {
        int lane = (int)threadIdx.x % 32, row = t.row0 + half * 64 + (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
        float of_row[2][2];
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                of_row[b][h] = a.w_scales[b * a.rows + min(row + h * 8, a.rows - 1)];
#pragma unroll
        for (int i = 0; i < TOKENS / 8; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int token = t.token0 + i * 8 + lane % 4 * 2 + e;
                float of_token = token < a.n_tokens ? a.x_scales[token] : 0.0f;
#pragma unroll
                for (int b = 0; b < 2; b++)
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        sum[b][i * 4 + h * 2 + e] *= of_row[b][h] * of_token;
            }
    }
    __device__ void multiply(float (&sum)[2][TOKENS / 2], unsigned &count, const gated_tile &t, int half) const
    {
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int i = 0; i < TOKENS / 2; i++)
                sum[b][i] = 0;
        if constexpr (FORM::CODES) {
            multiply_codes(sum, count, half);
            scale(sum, t, half);
        } else {
            multiply_numbers(sum, count, half);
        }
    }
    /* silu(gate) up; the division's error is far below the rounding of the result. */
    __device__ static float result(float gate, float up)
    {
        return up * __fdividef(gate, 1.0f + __expf(-gate));
    }
    /* Puts the results into rows of tokens in shared memory, 16-byte units swizzled: 8 rows of a thread's 16 weights
     * by 8 tokens are one matrix, four of which are stored transposed at once. */
    __device__ void put(const float (&sum)[2][TOKENS / 2], int half) const
    {
        int lane = (int)threadIdx.x % 32, unit = (int)threadIdx.x % 128 / 32 * 2 + lane / 8 % 2;
        uint32_t to = shared_address(sh->out[half]) + lane / 16 * 8 * 128 + lane % 8 * 128 + (unit ^ lane % 8) * 16;
#pragma unroll
        for (int j = 0; j < TOKENS / 16; j++) {
            uint32_t m[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int at = (2 * j + i / 2) * 4 + i % 2 * 2;
                m[i] = tensor_pack<T>(result(sum[0][at], sum[1][at]), result(sum[0][at + 1], sum[1][at + 1]));
            }
            gated_store_transposed(to + j * 16 * 128, m);
        }
    }
    /* Stores a warpgroup's results from there. */
    __device__ void store(const gated_tile &t, int half) const
    {
        int thread = (int)threadIdx.x % 128, unit = thread % 8, row = half * 64 + unit * 8;
        if (row >= a.box || t.row0 + row >= a.rows)
            return;
        T *out = a.out + (size_t)t.token0 * a.rows + t.row0 + row;
#pragma unroll
        for (int token = thread / 8; token < TOKENS; token += 16)
            if (t.token0 + token < a.n_tokens)
                *(uint4 *)(out + (size_t)token * a.rows) =
                    *(const uint4 *)(sh->out[half] + token * 128 + (unit ^ token % 8) * 16);
    }
    __device__ void store_tile(const float (&sum)[2][TOKENS / 2], const gated_tile &t, int half) const
    {
        asm volatile("bar.sync %0, 128;" ::"r"(1 + half) : "memory"); /* the last tile's are stored */
        put(sum, half);
        asm volatile("bar.sync %0, 128;" ::"r"(1 + half) : "memory");
        store(t, half);
    }
    __device__ void multiply_all(int half) const
    {
        wait_for_previous(); /* which may still read the results' memory */
        unsigned count = 0;
        if (FORM::LEAD && half == 1 && first() < n_tiles && (FORM::CODES || n_stages > 1))
            asm volatile("bar.sync 3, 256;" ::: "memory");
        for (int i = first(); i < n_tiles; i += step()) {
            float sum[2][TOKENS / 2];
            multiply(sum, count, tile(i), half);
            store_tile(sum, tile(i), half);
        }
    }
};

/* A kernel's structure in shared memory. */
template <typename FORM>
__device__ static inline gated_shared<FORM> *gated_memory(void)
{
    extern __shared__ uint4 shared[];
    uint32_t past = shared_address(shared) % GATED_ALIGN;
    return (gated_shared<FORM> *)((char *)shared + (past > 0 ? GATED_ALIGN - past : 0));
}

/* grid: at most one block per multiprocessor, whole clusters. Maps: see gated.cu */
template <typename T, typename FORM>
__global__ void __launch_bounds__(GATED_THREADS, 1)
    gated_product(const gated_args<T> a, const __grid_constant__ CUtensorMap x_map,
                  const __grid_constant__ CUtensorMap w_map)
{
    gated_work<T, FORM> work(a, &x_map, &w_map, gated_memory<FORM>());
    if (!FORM::CODES) /* the next product's blocks bring weights where this one's have ended */
        let_next_begin();
    work.open();
    int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    if (warpgroup == 0) {
        give_registers<40>();
        if (threadIdx.x == 0)
            work.bring_all();
    } else {
        take_registers<232>();
        work.multiply_all(warpgroup - 1);
    }
    if constexpr (FORM::CLUSTER > 1) { /* the other block's arrivals reach this one's barriers */
        __syncwarp();
        cluster_meet();
    }
}

#endif
