/* kernels/cuda/products/coded_few.cuh - the products of quantised experts for few tokens of each. A warp takes 16 rows
 * of an expert's weights, all of their columns, for a run of up to NT of its tokens: it loads codes into registers some
 * steps ahead and makes f16 of them, the rows of tensor-core products whose columns are tokens. So weights are stored
 * nowhere and no thread waits for another one. The tokens' x are f16 in shared memory, in the order of the products'
 * operands, for the runs that a block works on. Rows of the first product are 8 gates and the 8 rows that they
 * multiply, so both parts of a result meet in a thread.
 *
 * f16 costs half of what bf16 costs to make of codes. Where x is bf16 it is multiplied by FEW_HALF_SCALE first: exact
 * from 2^-11 to 2^22, and never off by more than 2^-19.
 *
 * A result depends on the expert's weights and the token alone: columns are added in order. */
#ifndef PRODUCTS_CODED_FEW_CUH
#define PRODUCTS_CODED_FEW_CUH

#include "kernels/cuda/codes_wide.cuh"
#include "kernels/cuda/products/expert_runs.cuh"

#define FEW_WARPS   16
#define FEW_THREADS (FEW_WARPS * 32)
#define FEW_COLS    128 /* per warp and step */
#define FEW_ROWS    16  /* of weights */
#define FEW_RUNS    2   /* maximum runs whose x a block has at a time */
#define FEW_TOKENS  32  /* maximum of a run */

#define FEW_HALF_SCALE 0.015625f

/* Units of 16 bytes of x, of 8 tokens and a step's columns. */
#define FEW_UNITS (8 * FEW_COLS * 2 / 16)

struct alignas(16) few_shared {
    expert_counts counts;
    expert_run run[FEW_RUNS];           /* the block's current runs */
    int32_t pair[FEW_RUNS][FEW_TOKENS]; /* of their tokens */
};

/* The group of column c is (first + c) >> this. */
__device__ static inline int few_shift(const coded &w)
{
    return w.n_groups == 1 ? 31 : 31 - __clz(w.form.group);
}

template <typename T, codes C, bool FIRST, int NT>
struct few_work {
    static const int BITS = bits_of_codes<C>, PIECES = BITS / 4;
    static const int BUFFERS = BITS == 8 ? 2 : NT == 8 ? 4 : 3; /* pieces in registers: more of them are spilled */
    static const bool LATE = BITS == 8; /* a step's piece is replaced after its products, else the one before it */
    static const int LEAD = LATE ? BUFFERS : BUFFERS - 1; /* steps from products to the loads beside them */
    static const int PIECE = 16 * 8 / BITS;               /* columns of 16 bytes of codes */
    static const int X = NT / 8, TWO = NT > 8 ? 2 : 1, ROWS = FIRST ? FEW_ROWS / 2 : FEW_ROWS; /* of results */
    static const bool BY_STEP = C == CODES_E4M3;  /* one scale covers a whole step and multiplies its sums */
    static constexpr float SMALL_GAIN = 16384.0f; /* of what code_pairs::decode_small makes */
    static constexpr bool HALF = std::is_same<T, __half>::value;

    const expert_product<T> &a;
    const coded &w;
    few_shared *sh;
    uint4 *x; /* [runs][n_steps][X][FEW_UNITS] */
    int lane, n_steps, n_tiles, shift;

    /* Codes and scales of two rows for one step: row lane / 4 of the tile, and 8 after it. */
    struct piece {
        uint4 codes[2][PIECES];
        uint32_t scale[2];
    };
    /* The beginnings of this lane's two rows: codes in units of 16 bytes, and the first scale. */
    struct place {
        uint32_t codes[2], scale[2];
    };
    /* Work of a warp: one tile of rows, for one of the block's runs. */
    struct unit {
        int slot, tile; /* slot: which run */
        bool any;       /* false: the block has no such unit */
    };
    template <int TILES>
    using sums = float[TILES][4]; /* TILES: of 8 tokens */

    __device__ few_work(const expert_product<T> &args, const coded &weights, few_shared *shared)
        : a(args), w(weights), sh(shared), x((uint4 *)(shared + 1)), lane(threadIdx.x % 32),
          n_steps((args.cols + FEW_COLS - 1) / FEW_COLS), n_tiles((args.rows + ROWS - 1) / ROWS),
          shift(few_shift(weights))
    {
    }

    /* ---- x ---- */

    /* The column of unit q of a lane's four in a step. */
    __device__ static int column(int q, int p)
    {
        return BITS == 4 ? p * 32 + q * 8 : q / 2 * 64 + p * 16 + q % 2 * 8;
    }
    __device__ static uint32_t half_pair(uint32_t pair)
    {
        if (HALF)
            return pair;
        float2 x = tensor_unpack<T>(pair);
        return tensor_pack<__half>(x.x * FEW_HALF_SCALE, x.y * FEW_HALF_SCALE);
    }
    /* Eight columns as f16 in the order of the codes' pairs: (0, 1), (2, 3) .. or (0, 4), (1, 5) .. */
    __device__ static uint4 paired(uint4 x)
    {
        x = make_uint4(half_pair(x.x), half_pair(x.y), half_pair(x.z), half_pair(x.w));
        if (BITS == 8)
            return x;
        return make_uint4(codes_pick(x.x, x.z, 0x5410), codes_pick(x.x, x.z, 0x7632), codes_pick(x.y, x.w, 0x5410),
                          codes_pick(x.y, x.w, 0x7632));
    }
    /* All threads call this. Places of tokens that the run's last eight lack are filled with zeros. apart: see
     * fours_few.cuh. */
    __device__ void bring_x(const expert_run &run, int slot, bool apart = false) const
    {
        const int q = (int)threadIdx.x / 32 % 4, tiles = (run.n_tokens + 7) / 8;
        for (int j = 0; j < tiles; j++) {
            int t = apart ? lane / 16 : j * 8 + lane / 4, row = -1;
            if (t < run.n_tokens && (!apart || lane % 4 == lane / 4 % 4))
                row = a.r.pair[run.begin + t] / (FIRST ? a.n_chosen : 1);
            uint4 *to = x + (size_t)(slot * n_steps * X + j) * FEW_UNITS + q * 32 + lane;
#pragma unroll 4
            for (int s = (int)threadIdx.x / FEW_UNITS; s < n_steps; s += FEW_THREADS / FEW_UNITS) {
                int col = s * FEW_COLS + column(q, lane % 4);
                uint4 v = make_uint4(0, 0, 0, 0);
                if (row >= 0 && col < a.cols)
                    v = *(const uint4 *)(a.x + (size_t)row * a.cols + col);
                to[s * X * FEW_UNITS] = paired(v);
            }
        }
        if (threadIdx.x < NT && (int)threadIdx.x < run.n_tokens)
            sh->pair[slot][threadIdx.x] = a.r.pair[run.begin + threadIdx.x];
    }

    /* ---- weights ---- */

    /* The lane's row h (1: 8 after row 0) of the expert's results; and its row in the weights of all experts. */
    __device__ int row_of(int tile, int h) const
    {
        return FIRST ? tile * 8 + lane / 4 : tile * FEW_ROWS + h * 8 + lane / 4;
    }
    __device__ int weight_row(int expert, int tile, int h) const
    {
        int row = min(row_of(tile, h), a.rows - 1);
        return FIRST ? expert * 2 * a.rows + row_of_gate(a, row, h) : expert * a.rows + row;
    }
    __device__ place find_place(const unit &u) const
    {
        place at;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t row = (uint32_t)weight_row(sh->run[u.slot].expert, u.tile, h);
            at.codes[h] = row * (uint32_t)(w.pitch / 16);
            at.scale[h] = row * (uint32_t)w.n_groups;
        }
        return at;
    }
    __device__ static uint4 load_codes(const uint4 *from)
    {
        uint4 v;
        asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(from));
        return v;
    }
    /* Columns behind the row's end meet x of 0: their codes and scales are the row's last ones. */
    __device__ void load(piece &to, const place &at, int step) const
    {
        const uint32_t last = (uint32_t)w.pitch / 16 - 1;
#pragma unroll
        for (int j = 0; j < PIECES; j++) {
            uint32_t of_row = min((uint32_t)((step * PIECES + j) * 4 + lane % 4), last);
#pragma unroll
            for (int h = 0; h < 2; h++)
                to.codes[h][j] = load_codes((const uint4 *)w.codes + (at.codes[h] + of_row));
        }
        int col = min(step * FEW_COLS + (BY_STEP ? 0 : lane % 4 * PIECE), a.cols - 1);
        uint32_t group = (uint32_t)(w.form.first + col) >> shift;
#pragma unroll
        for (int h = 0; h < 2; h++)
            to.scale[h] = BY_STEP ? ((const uint32_t *)w.scales)[at.scale[h] + group] : w.scales[at.scale[h] + group];
    }

    /* ---- products ---- */

    /* Eight columns of codes as operands of two products; of E2M1 2^-14 of what they stand for. */
    __device__ static void widen(uint32_t (&to)[4], const uint4 &codes, int k)
    {
        const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
        if constexpr (BITS == 8) {
            uint32_t low[2], high[2];
            code_pairs<__half, C>::decode(low, word[k * 2], 0);
            code_pairs<__half, C>::decode(high, word[k * 2 + 1], 0);
            to[0] = low[0], to[1] = low[1], to[2] = high[0], to[3] = high[1];
        } else {
            code_pairs<__half, C>::decode_small(to, word[k]);
        }
    }
    /* Adds the products of a step. from: the step's x, of this lane. Scales of E2M1, of which each lane of a quad has
     * its own, multiply the codes if they are in range (see `in_range`); APART: nothing does, and the codes of all
     * lanes but number `one` of each quad count as 0. */
    template <int TILES, bool APART>
    __device__ void multiply(sums<TILES> &sum, const piece &p, const uint4 *from, int one) const
    {
        const uint32_t factor[2] = {(p.scale[0] - 98) * 0x04000400u, (p.scale[1] - 98) * 0x04000400u}; /* 2^(s - 113) */
#pragma unroll
        for (int q = 0; q < 4; q++) {
            uint32_t r[2][4];
            uint4 b[TILES];
#pragma unroll
            for (int j = 0; j < TILES; j++)
                b[j] = from[(j * 4 + q) * 32];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                widen(r[h], p.codes[h][q * PIECES / 4], q % (4 / PIECES));
#pragma unroll
                for (int i = 0; i < 4 && !BY_STEP; i++)
                    r[h][i] = APART ? (lane % 4 == one ? r[h][i] : 0) : tensor_multiply<__half>(r[h][i], factor[h]);
            }
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                tensor_mma<__half>(sum[j], r[0][0], r[1][0], r[0][1], r[1][1], b[j].x, b[j].y);
                tensor_mma<__half>(sum[j], r[0][2], r[1][2], r[0][3], r[1][3], b[j].z, b[j].w);
            }
        }
    }
    template <int TILES>
    __device__ static void add_times(sums<TILES> &sum, const sums<TILES> &part, float low, float high)
    {
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[j][i] = fmaf(part[j][i], i < 2 ? low : high, sum[j][i]);
    }
    template <int TILES>
    __device__ void add(sums<TILES> &sum, const piece &p, const uint4 *from) const
    {
        if constexpr (BY_STEP) {
            sums<TILES> step = {};
            multiply<TILES, false>(step, p, from, 0);
            add_times<TILES>(sum, step, __uint_as_float(p.scale[0]), __uint_as_float(p.scale[1]));
        } else {
            multiply<TILES, false>(sum, p, from, 0);
        }
    }
    /* f16 holds E2M1 times its scale, 2^-23 to 2, exactly. */
    __device__ static bool in_range(const piece &p)
    {
        return BY_STEP || (p.scale[0] - 104 <= 24 && p.scale[1] - 104 <= 24);
    }
    /* A unit's sums with scales of any size, which multiply sums of one group each. */
    template <int TILES>
    __device__ void add_groups(sums<TILES> &sum, const place &at, const uint4 *from) const
    {
#pragma unroll 1
        for (int s = 0; s < n_steps; s++, from += X * FEW_UNITS) {
            piece p;
            load(p, at, s);
#pragma unroll 1
            for (int one = 0; one < 4; one++) {
                sums<TILES> part = {};
                multiply<TILES, true>(part, p, from, one);
                float low = scale_of_word(SCALE_E8M0, __shfl_sync(0xffffffffu, p.scale[0], one, 4));
                float high = scale_of_word(SCALE_E8M0, __shfl_sync(0xffffffffu, p.scale[1], one, 4));
#pragma unroll
                for (int j = 0; j < TILES; j++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        part[j][i] *= SMALL_GAIN;
                add_times<TILES>(sum, part, low, high);
            }
        }
    }

    /* ---- results ---- */

    /* Stores the results of 8 tokens for 8 rows from `row` on: low and high belong to this lane's tokens. */
    __device__ void store(int j, int row, float low, float high, const expert_run &run, int slot) const
    {
        uint32_t pair = tensor_pack<T>(low, high);
        asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(pair));
        int t = j * 8 + lane / 4;
        if (t < run.n_tokens && row < a.rows)
            *(uint32_t *)(a.out + (size_t)sh->pair[slot][t] * a.rows + row + lane % 4 * 2) = pair;
    }
    __device__ float bias_of(int expert, int tile, int h) const
    {
        int row = row_of(tile, h);
        if (a.bias == nullptr || row >= a.rows)
            return 0;
        return FIRST ? gate_bias(a, expert, row, h) : weight_at(a.bias, a.bias_type, expert * a.rows + row, 0.0f);
    }
    template <int TILES>
    __device__ void store_tile(const sums<TILES> &sum, const expert_run &run, int tile, int slot) const
    {
        const gate_formula formula = gate_formula_of(a.kind);
        const float bias[2] = {bias_of(run.expert, tile, 0), bias_of(run.expert, tile, 1)};
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            float y[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                y[i] = fmaf(sum[j][i], HALF ? 1 : 1 / FEW_HALF_SCALE, bias[i / 2]);
            if (FIRST) {
                store(j, tile * 8, gated_by(formula, y[0], y[2]), gated_by(formula, y[1], y[3]), run, slot);
            } else {
                store(j, tile * FEW_ROWS, y[0], y[1], run, slot);
                store(j, tile * FEW_ROWS + 8, y[2], y[3], run, slot);
            }
        }
    }

    /* ---- units ---- */

    __device__ unit unit_at(int i) const
    {
        const expert_run *run = sh->run;
        int slot = i >= run[0].n;
        return unit{slot, run[slot].first + i - (slot ? run[0].n : 0), i < run[0].n + run[1].n};
    }
    /* The block's unit i. ahead: its first steps, in the end those of the next one. */
    template <int TILES>
    __device__ void work_unit(piece (&ahead)[BUFFERS], int i, const unit &u, const expert_run &run) const
    {
        const int padded = (n_steps + BUFFERS - 1) / BUFFERS * BUFFERS;
        const uint4 *from = x + (size_t)u.slot * n_steps * X * FEW_UNITS + lane;
        const place at = find_place(u);
        sums<TILES> sum = {};
        bool fits = true;
        /* Behind the unit's steps are those of the next one; where there is none, its own once more, since a load under
         * another condition is waited for before it is needed. */
        for (int s0 = 0; s0 < padded; s0 += BUFFERS)
#pragma unroll
            for (int k = 0; k < BUFFERS; k++)
#pragma unroll
                for (int part = 0; part < 2; part++) {
                    int s = s0 + k, then = s + LEAD;
                    piece &to = ahead[(k + LEAD) % BUFFERS];
                    if (part != LATE) {
                        if (s < n_steps) {
                            fits = fits && in_range(ahead[k]);
                            add<TILES>(sum, ahead[k], from + (size_t)s * X * FEW_UNITS);
                        }
                    } else if (then < padded) {
                        load(to, at, then);
                    } else {
                        const unit next = unit_at(i + FEW_WARPS);
                        load(to, find_place(next.any ? next : u), then - padded);
                    }
                }
        if (!BY_STEP && !__all_sync(0xffffffffu, fits)) {
            memset(&sum, 0, sizeof sum);
            add_groups<TILES>(sum, at, from);
        }
        store_tile<TILES>(sum, run, u.tile, u.slot);
    }
    /* The first steps of this warp's first unit. */
    __device__ void load_first(piece (&ahead)[BUFFERS]) const
    {
        const unit u = unit_at((int)threadIdx.x / 32);
        if (!u.any)
            return;
        const place at = find_place(u);
#pragma unroll
        for (int s = 0; s < LEAD; s++)
            load(ahead[s], at, s);
    }
    __device__ __forceinline__ void work_units(piece (&ahead)[BUFFERS]) const
    {
        int i = (int)threadIdx.x / 32;
        for (unit u = unit_at(i); u.any; i += FEW_WARPS, u = unit_at(i)) {
            const expert_run &mine = sh->run[u.slot];
            if (X > 2 && mine.n_tokens > 16)
                work_unit<X>(ahead, i, u, mine);
            else if (X > 1 && mine.n_tokens > 8)
                work_unit<TWO>(ahead, i, u, mine);
            else
                work_unit<1>(ahead, i, u, mine);
        }
    }
    /* Called by all threads: loads the runs of unit i and of those after it; returns the number of units in them. */
    __device__ int show_runs(int i, int end, int n_slots) const
    {
        expert_run first = find_run(&sh->counts, a.n_held, n_tiles, i, end), second = {};
        if (i + first.n < end && n_slots > 1)
            second = find_run(&sh->counts, a.n_held, n_tiles, i + first.n, end);
        if (threadIdx.x == 0)
            sh->run[0] = first, sh->run[1] = second;
        __syncthreads();
        return first.n + second.n;
    }
    /* n_slots: runs whose x fits. The routing is complete before the second product's preceding kernel, so its first
     * codes are loaded while that one ends. */
    __device__ void run(int n_slots) const
    {
        if (FIRST) /* the preceding kernel may be the router */
            after_previous();
        count_runs<NT, FEW_THREADS>(&sh->counts, a.r.begin, a.n_held);
        int units = sh->counts.before[a.n_held] * n_tiles;
        int end = (int)((int64_t)units * ((int)blockIdx.x + 1) / (int)gridDim.x);
        bool waits = !FIRST;
        for (int i = (int)((int64_t)units * (int)blockIdx.x / (int)gridDim.x); i < end;) {
            i += show_runs(i, end, n_slots);
            piece ahead[BUFFERS];
            load_first(ahead);
            if (waits)
                after_previous();
            waits = false;
            for (int slot = 0; slot < 2 && sh->run[slot].n > 0; slot++)
                bring_x(sh->run[slot], slot);
            __syncthreads();
            work_units(ahead);
            __syncthreads(); /* x is no longer needed */
        }
        if (waits)
            after_previous();
    }
};

/* grid: one block per multiprocessor. */
template <typename T, enum codes C, bool FIRST, int NT>
__global__ void __launch_bounds__(FEW_THREADS, 1)
    coded_few(const __grid_constant__ expert_product<T> a, const __grid_constant__ coded w, int n_slots)
{
    extern __shared__ uint4 shared[];
    few_work<T, C, FIRST, NT>(a, w, (few_shared *)shared).run(n_slots);
}

#endif
