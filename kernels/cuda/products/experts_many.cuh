/* kernels/cuda/products/experts_many.cuh - the products of experts for many tokens, on Hopper. A tile is 256 rows of an
 * expert's weights times up to WIDTH of its tokens; the kernel is persistent, one block per multiprocessor, and a block
 * takes one tile after the other. The first warpgroups of a block are producers: for dense weights one warpgroup, of
 * which one thread issues TMA copies of boxes, and all copy rows of x, gathered by token; for codes see coded_many.cuh.
 * Two warpgroups are consumers and multiply, 64 rows of each of a tile's two boxes each: rows of weights are the
 * products' rows (M) and tokens their columns (N), so that a tile is no wider than its tokens need. The boxes of the
 * first product are 128 gates and their 128 ups, so both parts of a result meet in a thread's registers. There is no
 * capacity limit: an expert with more tokens has more tiles. A result depends on the expert's weights and the token
 * alone: columns are added in order. */
#ifndef PRODUCTS_EXPERTS_MANY_CUH
#define PRODUCTS_EXPERTS_MANY_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/products/experts.cuh"
#include "kernels/cuda/warpgroup.cuh"

#define MANY_BRINGING    128 /* threads that load dense weights */
#define MANY_MULTIPLYING 256
#define MANY_THREADS     (MANY_BRINGING + MANY_MULTIPLYING)
#define MANY_COLS        64  /* of a stage: a row has 128 bytes */
#define MANY_BOX         128 /* rows of weights */
#define MANY_LAG         2   /* stages whose rows of x are in flight before a thread waits for the first */
#define MANY_ALIGN       1024

/* In shared memory, aligned to MANY_ALIGN. WIDTH: maximum tokens of a tile. X_STAGES: stages with rows of x. */
template <int STAGES, int WIDTH, int X_STAGES = STAGES>
struct many_shared {
    static const int TOKENS = WIDTH;
    char w[STAGES][2][MANY_BOX * 128];
    char x[X_STAGES][WIDTH * 128];
    uint64_t full[STAGES], empty[STAGES];
    int32_t begin[ROUTING_MAX_EXPERTS + 1];  /* of each expert's pairs */
    int32_t before[ROUTING_MAX_EXPERTS + 1]; /* runs of tokens of lower experts, one run per tile */
    int32_t pair[2][WIDTH];                  /* for the tile's columns, per consumer warpgroup */
};

struct many_tile {
    int expert, row0;
    int begin, n_tokens; /* index into the pairs by expert */
};

/* Splits n tokens into the fewest runs, of about equal length. */
__device__ static inline int runs_of(int n, int width)
{
    return (n + width - 1) / width;
}

/* Fills sh->before from sh->begin, by the first warp. */
template <typename S>
__device__ static inline void count_runs(S *sh, int n_experts)
{
    int lane = threadIdx.x % 32, before = 0;
    for (int e0 = 0; e0 < n_experts; e0 += 32) {
        int e = e0 + lane, runs = e < n_experts ? runs_of(sh->begin[e + 1] - sh->begin[e], S::TOKENS) : 0, sum = runs;
        for (int d = 1; d < 32; d *= 2) {
            int other = __shfl_up_sync(0xffffffffu, sum, d);
            sum += lane >= d ? other : 0;
        }
        if (e < n_experts)
            sh->before[e] = before + sum - runs;
        before += __shfl_sync(0xffffffffu, sum, 31);
    }
    if (lane == 0)
        sh->before[n_experts] = before;
}

/* Tile i, ordered by expert, then by rows for all of the expert's tokens. Returns false after the last tile. per_run:
 * tiles per run of tokens, of tile_rows rows each. */
template <typename S>
__device__ static inline bool find_tile(many_tile &tile, const S *sh, int n_experts, int per_run, int tile_rows, int i)
{
    if (i >= sh->before[n_experts] * per_run)
        return false;
    int low = 0, high = n_experts; /* before[low] * per_run <= i < before[high] * per_run */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (sh->before[middle] * per_run <= i)
            low = middle;
        else
            high = middle;
    }
    int runs = sh->before[low + 1] - sh->before[low], at = i - sh->before[low] * per_run;
    int n = sh->begin[low + 1] - sh->begin[low], width = ((n + runs - 1) / runs + 15) / 16 * 16;
    tile.expert = low;
    tile.row0 = at / runs * tile_rows;
    tile.begin = sh->begin[low] + at % runs * width;
    tile.n_tokens = min(width, sh->begin[low + 1] - tile.begin);
    return true;
}

__device__ static inline void box_of_expert(uint32_t into, const CUtensorMap *map, int x, int y, int z, int expert,
                                            uint32_t barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(into),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(expert), "r"(barrier)
                 : "memory");
#endif
}

/* One of the two products of experts, or that of a dense matrix, whose parts of the columns take the place of experts
 * with all tokens each. */
enum many_kind { MANY_FIRST, MANY_SECOND, MANY_DENSE };

/* Consumers that only multiply. */
struct many_alone {
    __device__ void ready(unsigned) const {}
    __device__ void begun(int, int) const {}
};

/* BRINGING: number of producer threads. SHARED: many_shared, or another structure with its members. */
template <typename T, many_kind KIND, int STAGES, int WIDTH, int BRINGING, int X_STAGES = STAGES,
          typename SHARED = many_shared<STAGES, WIDTH, X_STAGES>>
struct many_work {
    static const bool FIRST = KIND == MANY_FIRST, DENSE = KIND == MANY_DENSE;
    static const int TILE_ROWS = FIRST ? MANY_BOX : 2 * MANY_BOX; /* of the result */
    const expert_product<T> &a;
    const CUtensorMap *map;
    SHARED *sh;
    int per_run, n_stages; /* of all columns */

    __device__ many_work(const expert_product<T> &args, const CUtensorMap *of_weights, SHARED *shared)
        : a(args), map(of_weights), sh(shared), per_run((args.rows + TILE_ROWS - 1) / TILE_ROWS),
          n_stages((args.cols + MANY_COLS - 1) / MANY_COLS)
    {
    }
    /* Waits until the preceding kernel has ended. */
    __device__ void wait() const
    {
        if (DENSE) /* which a collective may follow */
            after_previous_alone();
        else
            after_previous();
    }
    /* All threads call this first. bringing: arrivals that make a stage full; multiplying: threads that multiply.
     * waits: the preceding kernel may be the router; otherwise threads that read x or write results must wait before
     * they do. */
    __device__ void open(int bringing, bool waits, int multiplying = MANY_MULTIPLYING) const
    {
        if (threadIdx.x == 0) {
            for (int i = 0; i < STAGES; i++) {
                barrier_open(shared_address(&sh->full[i]), bringing);
                barrier_open(shared_address(&sh->empty[i]), multiplying / 32);
            }
            barriers_opened();
            box_map_prefetch(map);
        }
        if (waits)
            wait();
        for (int e = threadIdx.x; e <= a.n_held; e += BRINGING + multiplying)
            sh->begin[e] = DENSE ? e * a.n_tokens : a.r.begin[e];
        __syncthreads();
        if (threadIdx.x < 32)
            count_runs(sh, a.n_held);
        __syncthreads();
    }
    /* The slot of the i-th stage since the kernel began, and the phase of its barriers. */
    __device__ static int place_of(unsigned i)
    {
        return (int)(i % STAGES);
    }
    __device__ static int phase_of(unsigned i)
    {
        return (int)(i / STAGES % 2);
    }
    /* The block's first tile or the one after it; false: there is none. */
    __device__ bool next_tile(many_tile &tile, int &i) const
    {
        i = i < 0 ? (int)blockIdx.x : i + (int)gridDim.x;
        return find_tile(tile, sh, a.n_held, per_run, TILE_ROWS, i);
    }

    /* The first stage of a tile's columns; the next part's is the end. */
    __device__ int first_stage(int part) const
    {
        return DENSE ? part * n_stages / a.n_held : part * n_stages;
    }
    __device__ int stages_of(const many_tile &tile) const
    {
        return first_stage(tile.expert + 1) - first_stage(tile.expert);
    }
    __device__ int column(const many_tile &tile, int stage) const
    {
        return ((DENSE ? first_stage(tile.expert) : 0) + stage) * MANY_COLS;
    }
    /* The row of x of a tile's token. */
    __device__ int x_row(const many_tile &tile, int t) const
    {
        return DENSE ? tile.begin + t - tile.expert * a.n_tokens : a.r.pair[tile.begin + t] / (FIRST ? a.n_chosen : 1);
    }

    /* ---- producers ---- */

    /* Publishes the weights or rows of x that this warp, or its copies, have stored for a stage's products. */
    __device__ void tell(unsigned stage) const
    {
        products_see_stores();
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            barrier_arrive(shared_address(&sh->full[place_of(stage)]));
    }

    /* ---- consumers ---- */

    __device__ int half() const
    {
        return (int)(threadIdx.x - BRINGING) / 128;
    }
    /* This thread's results in a box: rows 0 and 8 after it, see warpgroup.cuh. */
    __device__ int row_in_box() const
    {
        return half() * 64 + (int)threadIdx.x % 128 / 32 * 16 + (int)threadIdx.x % 32 / 4;
    }
    __device__ void release(unsigned stage) const
    {
        if (threadIdx.x % 32 == 0)
            barrier_arrive(shared_address(&sh->empty[place_of(stage)]));
    }
    /* beside: ready(i) is called before stage i since the kernel began is multiplied; begun(s, n) when the products of
     * stage s of a tile's n have been issued. */
    template <int HALF, typename F>
    __device__ void multiply(float (&sum)[2][HALF], int stages, unsigned &done, F &beside) const
    {
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int i = 0; i < HALF; i++)
                sum[b][i] = 0;
        for (int s = 0; s < stages; s++, done++) {
            int place = place_of(done);
            beside.ready(done);
            barrier_wait(shared_address(&sh->full[place]), phase_of(done));
            uint64_t x = warpgroup_matrix<128>(shared_address(sh->x[done % X_STAGES]), 16, 1024);
            uint64_t w = warpgroup_matrix<128>(shared_address(sh->w[place]) + half() * 64 * 128, 16, 1024);
            warpgroup_begin();
#pragma unroll
            for (int k = 0; k < MANY_COLS / 16; k++)
#pragma unroll
                for (int b = 0; b < 2; b++)
                    warpgroup_product<T, true>(sum[b], w + b * (MANY_BOX * 128 / 16) + k * 2, x + k * 2);
            warpgroup_commit();
            beside.begun(s, stages);
            warpgroup_wait<1>();
            if (s > 0)
                release(done - 1);
        }
        warpgroup_wait<0>();
        release(done - 1);
        warpgroup_results(sum[0]);
        warpgroup_results(sum[1]);
    }
    /* Stores the results of 8 tokens, from column 8 j on, for 8 rows from `row` on: low and high belong to this
     * thread's tokens p and p + 1. After the transposition a thread holds neighbouring rows. */
    __device__ void store(int j, int row, float low, float high, const many_tile &tile) const
    {
        uint32_t x = tensor_pack<T>(low, high);
        asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(x));
        int t = j * 8 + (int)threadIdx.x % 32 / 4;
        if (t < tile.n_tokens && row < a.rows)
            *(uint32_t *)(a.out + (size_t)result_row(tile, t) * a.rows + row + (int)threadIdx.x % 4 * 2) = x;
    }
    /* The row of the results of a tile's token. */
    __device__ int result_row(const many_tile &tile, int t) const
    {
        return DENSE ? tile.begin + t : sh->pair[half()][t];
    }
    /* Stores the results of a part: each thread's row of its tokens. */
    template <int HALF>
    __device__ void store_part(const float (&sum)[2][HALF], const many_tile &tile) const
    {
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int i = 0; i < HALF; i++) {
                int row = tile.row0 + b * MANY_BOX + row_in_box() + i % 4 / 2 * 8;
                int t = i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
                if (t < tile.n_tokens && row < a.rows)
                    a.sums[(size_t)(tile.begin + t) * a.rows + row] = sum[b][i];
            }
    }
    template <int HALF>
    __device__ void store_tile(const float (&sum)[2][HALF], const many_tile &tile) const
    {
        const gate_formula formula = gate_formula_of(a.kind);
#pragma unroll
        for (int h = 0; h < 2; h++) { /* of the thread's two rows */
            int row = tile.row0 + row_in_box() + h * 8, first = row - (int)threadIdx.x % 32 / 4;
            float bias[2] = {0, 0};
            if (a.bias != nullptr)
                for (int b = 0; b < 2; b++)
                    if (row + (FIRST ? 0 : b * MANY_BOX) < a.rows)
                        bias[b] = FIRST ? gate_bias(a, tile.expert, row, b)
                                        : weight_at(a.bias, a.bias_type,
                                                    (DENSE ? 0 : tile.expert * a.rows) + row + b * MANY_BOX, 0);
#pragma unroll
            for (int j = 0; j < HALF / 4; j++) {
                float y[2][2];
#pragma unroll
                for (int b = 0; b < 2; b++)
#pragma unroll
                    for (int c = 0; c < 2; c++)
                        y[b][c] = sum[b][j * 4 + h * 2 + c] + bias[b];
                if (FIRST) {
                    store(j, first, gated_by(formula, y[0][0], y[1][0]), gated_by(formula, y[0][1], y[1][1]), tile);
                } else {
                    store(j, first, y[0][0], y[0][1], tile);
                    store(j, first + MANY_BOX, y[1][0], y[1][1], tile);
                }
            }
        }
    }
    template <int N, typename F>
    __device__ __forceinline__ void run_tile(const many_tile &tile, unsigned &done, F &beside) const
    {
        float sum[2][N / 2];
        multiply(sum, stages_of(tile), done, beside);
        if (DENSE && a.sums != nullptr)
            store_part(sum, tile);
        else
            store_tile(sum, tile);
    }
    /* Multiplies by the narrowest instruction of at least N columns that holds a tile's tokens. */
    template <int N, typename F>
    __device__ __forceinline__ void run_fitting(const many_tile &tile, unsigned &done, F &beside) const
    {
        const int MORE = N < 32 ? 32 : N < 64 ? 64 : N < 96 ? 96 : N < 128 ? 128 : WIDTH;
        if constexpr (N < WIDTH)
            if (tile.n_tokens > N) {
                run_fitting<(MORE < WIDTH ? MORE : WIDTH)>(tile, done, beside);
                return;
            }
        run_tile<N>(tile, done, beside);
    }
    __device__ void keep_pairs(const many_tile &tile) const
    {
        asm volatile("bar.sync %0, 128;" ::"r"(1 + half()) : "memory"); /* the last tile's are no longer needed */
        for (int t = (int)threadIdx.x % 128; t < tile.n_tokens; t += 128)
            sh->pair[half()][t] = a.r.pair[tile.begin + t];
        asm volatile("bar.sync %0, 128;" ::"r"(1 + half()) : "memory");
    }
    template <typename F>
    __device__ void multiply_all(F &beside) const
    {
        many_tile tile;
        unsigned done = 0;
        for (int i = -1; next_tile(tile, i);) {
            if (!DENSE)
                keep_pairs(tile);
            run_fitting<16>(tile, done, beside);
        }
    }
};

template <typename T, many_kind KIND, int STAGES, int WIDTH>
struct many_boxes : many_work<T, KIND, STAGES, WIDTH, MANY_BRINGING> {
    static const int ROWS = WIDTH * 8 / MANY_BRINGING, APART = MANY_BRINGING / 8; /* row of x of which a piece is
                                                                                     copied */
    using base = many_work<T, KIND, STAGES, WIDTH, MANY_BRINGING>;
    using base::base, base::a, base::sh, base::map, base::FIRST;

    /* Called by one thread. */
    __device__ void bring_weights(const many_tile &tile, int stage, int place) const
    {
        uint32_t full = shared_address(&sh->full[place]);
        barrier_expect(full, 2 * MANY_BOX * 128);
        for (int b = 0; b < 2; b++)
            box_of_expert(shared_address(sh->w[place][b]), map, stage * MANY_COLS,
                          tile.row0 + (FIRST ? 0 : b * MANY_BOX), FIRST ? b : 0, tile.expert, full);
    }
    /* Loads the weights of the first stages while the preceding kernel ends, then waits for x; returns the number of
     * stages. The second product may read the routing early: the first product waited for it. */
    __device__ unsigned begin() const
    {
        many_tile tile;
        int i = -1;
        unsigned n = FIRST || !this->next_tile(tile, i) ? 0 : (unsigned)min(STAGES, this->n_stages);
        if (threadIdx.x == 0)
            for (unsigned s = 0; s < n; s++)
                bring_weights(tile, (int)s, (int)s);
        if (!FIRST)
            this->wait();
        return n;
    }
    /* The rows of x of which this thread copies a piece: tokens thread / 8, and every APARTth after it. -1: none */
    __device__ void find_rows(int (&row)[ROWS], const many_tile &tile) const
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            int t = (int)threadIdx.x / 8 + i * APART;
            row[i] = -1;
            if (t < tile.n_tokens)
                row[i] = this->x_row(tile, t);
        }
    }
    __device__ void bring_rows(const int (&row)[ROWS], int k, int place) const
    {
        int piece = (int)threadIdx.x % 8, t = (int)threadIdx.x / 8;
        char *to = sh->x[place] + t * 128 + (piece ^ t % 8) * 16;
        k += piece * 8;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (row[i] >= 0)
                async_copy(to + i * APART * 128, k < a.cols ? a.x + (size_t)row[i] * a.cols + k : a.x, k < a.cols);
        async_commit();
    }
    __device__ void bring() const
    {
        many_tile tile;
        unsigned done = 0, early = begin();
        for (int i = -1; this->next_tile(tile, i);) {
            int row[ROWS];
            find_rows(row, tile);
            for (int s = 0; s < this->n_stages; s++, done++) {
                int place = base::place_of(done);
                barrier_wait(shared_address(&sh->empty[place]), base::phase_of(done) ^ 1);
                if (threadIdx.x == 0 && done >= early)
                    bring_weights(tile, s, place);
                bring_rows(row, s * MANY_COLS, place);
                if (done < MANY_LAG)
                    continue;
                async_wait<MANY_LAG>();
                this->tell(done - MANY_LAG);
            }
        }
        async_wait<0>();
        for (unsigned i = done < MANY_LAG ? 0 : done - MANY_LAG; i < done; i++)
            this->tell(i);
    }
};

/* A kernel's structure in shared memory. */
template <typename S>
__device__ static inline S *many_memory(uint4 *shared)
{
    uint32_t past = shared_address(shared) % MANY_ALIGN;
    return (S *)((char *)shared + (past > 0 ? MANY_ALIGN - past : 0));
}

/* Few tokens of an expert leave room for more stages of its weights, which hide memory latency. */
template <int S, int W>
struct many_form {
    static const int STAGES = S, WIDTH = W;
    using shared = many_shared<S, W>;
};
using many_narrow = many_form<6, 32>;
using many_middle = many_form<5, 80>;
using many_wide = many_form<4, 160>;

/* grid: one block per multiprocessor. map: of the weights, see experts_many_host.cuh */
template <typename T, many_kind KIND, typename FORM>
__global__ void __launch_bounds__(MANY_THREADS, 1)
    experts_many(expert_product<T> a, const __grid_constant__ CUtensorMap map)
{
    extern __shared__ uint4 shared[];
    many_boxes<T, KIND, FORM::STAGES, FORM::WIDTH> work(a, &map, many_memory<typename FORM::shared>(shared));
    work.open(1 + MANY_BRINGING / 32, KIND == MANY_FIRST);
    if (threadIdx.x < MANY_BRINGING) {
        give_registers<56>();
        work.bring();
    } else {
        take_registers<224>();
        many_alone alone;
        work.multiply_all(alone);
    }
}

#endif
