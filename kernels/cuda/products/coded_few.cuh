/* kernels/cuda/products/coded_few.cuh - the products of experts of codes for few tokens of each. A warp takes 16 rows
 * of an expert's weights, all of their columns, for a run of up to NT of its tokens: codes go from memory into
 * registers, some steps ahead, become numbers there, and are the rows of tensor-core products whose columns are tokens.
 * So weights are stored nowhere and no thread waits for another one. The tokens' x are in shared memory in the order of
 * the products' operands, for the runs that a block is at. Rows of the first product are 8 gates and the 8 rows that
 * they multiply, so both parts of a result meet in a thread.
 *
 * A result depends on the expert's weights and the token alone: columns are added in order. */
#ifndef PRODUCTS_CODED_FEW_CUH
#define PRODUCTS_CODED_FEW_CUH

#include "kernels/cuda/codes_wide.cuh"
#include "kernels/cuda/products/experts.cuh"

#define FEW_WARPS   16
#define FEW_THREADS (FEW_WARPS * 32)
#define FEW_COLS    128 /* per warp and step */
#define FEW_ROWS    16  /* of weights */
#define FEW_RUNS    2   /* maximum runs whose x a block has at a time */
#define FEW_TOKENS  32  /* maximum of a run */

/* Units of 16 bytes of x, of 8 tokens and a step's columns. */
#define FEW_UNITS (8 * FEW_COLS * 2 / 16)

/* Tokens of one expert; units of work: tiles of FEW_ROWS rows, numbered through all runs. */
struct few_run {
    int expert, begin, n_tokens; /* in the pairs by expert */
    int first, n;                /* the block's units in this run: tiles from `first` on */
};

struct alignas(16) few_shared {
    int32_t begin[ROUTING_MAX_EXPERTS + 1];  /* of each expert's pairs */
    int32_t before[ROUTING_MAX_EXPERTS + 1]; /* runs of tokens of lower experts */
    few_run run[FEW_RUNS];                   /* the block's current runs */
    int32_t pair[FEW_RUNS][FEW_TOKENS];      /* of their tokens */
};

/* The group of column c is (first + c) >> this. */
__device__ static inline int few_shift(const coded &w)
{
    return w.n_groups == 1 ? 31 : 31 - __clz(w.form.group);
}

template <typename T, codes C, bool FIRST, int NT>
struct few_work {
    static const int BITS = bits_of_codes<C>, PIECES = BITS / 4, AHEAD = BITS == 8 ? 2 : 4;
    static const int PIECE = 16 * 8 / BITS; /* columns of 16 bytes of codes */
    static const int X = NT / 8, TWO = NT > 8 ? 2 : 1, ROWS = FIRST ? FEW_ROWS / 2 : FEW_ROWS; /* of results */
    static const bool BY_STEP = C == CODES_E4M3; /* a scale is a whole step's, and multiplies its sums */

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
        bool any;
    };

    __device__ few_work(const expert_product<T> &args, const coded &weights, few_shared *shared)
        : a(args), w(weights), sh(shared), x((uint4 *)(shared + 1)), lane(threadIdx.x % 32),
          n_steps((args.cols + FEW_COLS - 1) / FEW_COLS), n_tiles((args.rows + ROWS - 1) / ROWS),
          shift(few_shift(weights))
    {
    }

    /* ---- runs ---- */

    /* Called by all threads. */
    __device__ void count_runs() const
    {
        for (int e = threadIdx.x; e <= a.n_held; e += FEW_THREADS)
            sh->begin[e] = a.r.begin[e];
        __syncthreads();
        if (threadIdx.x < 32)
            for (int e0 = 0, before = 0; e0 <= a.n_held; e0 += 32) {
                int e = e0 + lane, runs = e < a.n_held ? (sh->begin[e + 1] - sh->begin[e] + NT - 1) / NT : 0;
                int sum = runs;
                for (int d = 1; d < 32; d *= 2) {
                    int other = __shfl_up_sync(0xffffffffu, sum, d);
                    sum += lane >= d ? other : 0;
                }
                if (e <= a.n_held)
                    sh->before[e] = before + sum - runs;
                before += __shfl_sync(0xffffffffu, sum, 31);
            }
        __syncthreads();
    }
    /* The run of unit i, up to unit `end`. */
    __device__ few_run find_run(int i, int end) const
    {
        int at = i / n_tiles, low = 0, high = a.n_held; /* before[low] <= at < before[high] */
        while (high - low > 1) {
            int middle = (low + high) / 2;
            if (sh->before[middle] <= at)
                low = middle;
            else
                high = middle;
        }
        int all = sh->begin[low + 1] - sh->begin[low], runs = sh->before[low + 1] - sh->before[low];
        int width = ((all + runs - 1) / runs + 7) / 8 * 8, from = sh->begin[low] + (at - sh->before[low]) * width;
        return few_run{low, from, min(width, sh->begin[low + 1] - from), i % n_tiles,
                       min(n_tiles - i % n_tiles, end - i)};
    }

    /* ---- x ---- */

    /* The column of unit q of a lane's four in a step. */
    __device__ static int column(int q, int p)
    {
        return BITS == 4 ? p * 32 + q * 8 : q / 2 * 64 + p * 16 + q % 2 * 8;
    }
    /* As the codes' pairs have it: columns (0, 1), (2, 3) .. or (0, 4), (1, 5) .. of eight. */
    __device__ static uint4 paired(uint4 x)
    {
        if (BITS == 8)
            return x;
        return make_uint4(codes_pick(x.x, x.z, 0x5410), codes_pick(x.x, x.z, 0x7632), codes_pick(x.y, x.w, 0x5410),
                          codes_pick(x.y, x.w, 0x7632));
    }
    /* By all threads. Tokens that the run's last eight lack become zeros. */
    __device__ void bring_x(const few_run &run, int slot) const
    {
        int tiles = (run.n_tokens + 7) / 8, units = n_steps * tiles * FEW_UNITS;
        uint4 *to = x + (size_t)slot * n_steps * X * FEW_UNITS;
#pragma unroll 4
        for (int i = threadIdx.x; i < units; i += FEW_THREADS) {
            int l = i % 32, q = i / 32 % 4, j = i / FEW_UNITS % tiles, s = i / FEW_UNITS / tiles;
            int t = j * 8 + l / 4, col = s * FEW_COLS + column(q, l % 4);
            uint4 v = make_uint4(0, 0, 0, 0);
            if (t < run.n_tokens && col < a.cols) {
                int row = a.r.pair[run.begin + t] / (FIRST ? a.n_chosen : 1);
                v = *(const uint4 *)(a.x + (size_t)row * a.cols + col);
            }
            to[(s * X + j) * FEW_UNITS + i % FEW_UNITS] = paired(v);
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
    __device__ place find_place(int expert, int tile, bool any) const
    {
        place at = {};
        at.any = any;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = any ? weight_row(expert, tile, h) : 0;
            at.codes[h] = (uint32_t)row * (uint32_t)(w.pitch / 16) + (uint32_t)lane % 4;
            at.scale[h] = (uint32_t)row * (uint32_t)w.n_groups;
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
    __device__ void load(piece &to, const place &at, int step) const
    {
        int left = a.cols - step * FEW_COLS - lane % 4 * PIECE; /* columns from this lane's first one on */
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < PIECES; j++) {
                to.codes[h][j] = make_uint4(0, 0, 0, 0);
                if (at.any && left > j * 4 * PIECE)
                    to.codes[h][j] =
                        load_codes((const uint4 *)w.codes + (at.codes[h] + (uint32_t)(step * PIECES + j) * 4));
            }
        int col = min(step * FEW_COLS + (BY_STEP ? 0 : lane % 4 * PIECE), a.cols - 1);
        uint32_t group = (uint32_t)(w.form.first + col) >> shift;
#pragma unroll
        for (int h = 0; h < 2; h++)
            to.scale[h] = BY_STEP ? ((const uint32_t *)w.scales)[at.scale[h] + group] : w.scales[at.scale[h] + group];
    }

    /* The factors whose product is a scale and what decoded codes lack of it: one is enough up to 2. */
    struct factors {
        uint32_t low, high;
    };
    __device__ static factors factors_of(uint32_t scale)
    {
        uint32_t low = min(scale, 128u) + 126, high = max(scale, 128u) - 1 + (scale == 255); /* 2^(x - 127) */
        return factors{low << 7 | low << 23, high << 7 | high << 23};
    }
    /* Eight columns of codes as operands of two products. */
    __device__ static void widen(uint32_t (&to)[4], const uint4 &codes, int k, const factors &f, bool twice,
                                 uint32_t scale)
    {
        const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
        if constexpr (BITS == 8) {
            uint32_t low[2], high[2];
            code_pairs<T, C>::decode(low, word[k * 2], 0);
            code_pairs<T, C>::decode(high, word[k * 2 + 1], 0);
            to[0] = low[0], to[1] = low[1], to[2] = high[0], to[3] = high[1];
        } else if constexpr (std::is_same<T, __nv_bfloat16>::value) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t t = i < 2 ? word[k] << (6 - 4 * i) : word[k] >> (4 * i - 6), sign = word[k] << (12 - 4 * i);
                t = (t & 0x01c001c0u) | (sign & 0x80008000u);
                to[i] = tensor_multiply<__nv_bfloat16>(t, f.low);
                if (twice)
                    to[i] = tensor_multiply<__nv_bfloat16>(to[i], f.high);
            }
        } else {
            code_pairs<T, C>::decode(to, word[k], 0);
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[i] = pair_times<T>(to[i], scale_of_word(SCALE_E8M0, scale));
        }
    }
    /* from: the step's x, of this lane. TILES: of 8 tokens */
    template <int TILES, bool TWICE>
    __device__ void multiply(float (&sum)[TILES][4], const piece &p, const uint4 *from) const
    {
        factors f[2] = {factors_of(p.scale[0]), factors_of(p.scale[1])};
#pragma unroll
        for (int q = 0; q < 4; q++) {
            uint32_t r[2][4];
#pragma unroll
            for (int h = 0; h < 2; h++)
                widen(r[h], p.codes[h][q * PIECES / 4], q % (4 / PIECES), f[h], TWICE, p.scale[h]);
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                uint4 b = from[(j * 4 + q) * 32];
                tensor_mma<T>(sum[j], r[0][0], r[1][0], r[0][1], r[1][1], b.x, b.y);
                tensor_mma<T>(sum[j], r[0][2], r[1][2], r[0][3], r[1][3], b.z, b.w);
            }
        }
    }
    template <int TILES>
    __device__ void add(float (&sum)[TILES][4], const piece &p, const uint4 *from) const
    {
        if constexpr (BY_STEP) {
            float step[TILES][4] = {};
            multiply<TILES, false>(step, p, from);
#pragma unroll
            for (int j = 0; j < TILES; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    sum[j][i] = fmaf(step[j][i], __uint_as_float(p.scale[i / 2]), sum[j][i]);
        } else if (std::is_same<T, __nv_bfloat16>::value &&
                   __any_sync(0xffffffffu, max(p.scale[0], p.scale[1]) > 128)) {
            multiply<TILES, true>(sum, p, from);
        } else {
            multiply<TILES, false>(sum, p, from);
        }
    }

    /* ---- results ---- */

    /* Stores the results of 8 tokens for 8 rows from `row` on: low and high belong to this lane's tokens. */
    __device__ void store(int j, int row, float low, float high, const few_run &run, int slot) const
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
    __device__ void store_tile(const float (&sum)[TILES][4], const float (&bias)[2], const few_run &run, int tile,
                               int slot) const
    {
        const gate_formula formula = gate_formula_of(a.kind);
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            float y[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                y[i] = sum[j][i] + bias[i / 2];
            if (FIRST) {
                store(j, tile * 8, gated_by(formula, y[0], y[2]), gated_by(formula, y[1], y[3]), run, slot);
            } else {
                store(j, tile * FEW_ROWS, y[0], y[1], run, slot);
                store(j, tile * FEW_ROWS + 8, y[2], y[3], run, slot);
            }
        }
    }

    /* ---- units ---- */

    /* A unit of two runs; slot: which of the runs. */
    struct unit {
        int slot, tile;
        bool any;
    };
    __device__ unit unit_at(int i) const
    {
        const few_run *run = sh->run;
        int slot = i >= run[0].n;
        return unit{slot, run[slot].first + i - (slot ? run[0].n : 0), i < run[0].n + run[1].n};
    }
    /* A unit; ahead: its first steps, in the end those of the next one. */
    template <int TILES>
    __device__ void work_unit(piece (&ahead)[AHEAD], const place &at, const place &next, const unit &u,
                              const few_run &run) const
    {
        float sum[TILES][4] = {};
        float bias[2] = {bias_of(run.expert, u.tile, 0), bias_of(run.expert, u.tile, 1)};
        const uint4 *from = x + (size_t)u.slot * n_steps * X * FEW_UNITS + lane;
        for (int s = 0; s < n_steps; s += AHEAD) {
            bool last = s + AHEAD >= n_steps;
            place then = at;
            if (last)
                then = next;
            int step = last ? 0 : s + AHEAD;
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                piece now = ahead[i];
                load(ahead[i], then, step + i);
                if (s + i < n_steps)
                    add(sum, now, from + (size_t)(s + i) * X * FEW_UNITS);
            }
        }
        store_tile(sum, bias, run, u.tile, u.slot);
    }
    __device__ place find_place(const unit &u) const
    {
        return find_place(sh->run[u.slot].expert, u.tile, u.any);
    }
    /* The first steps of this warp's first unit. */
    __device__ void load_first(piece (&ahead)[AHEAD]) const
    {
        place at = find_place(unit_at((int)threadIdx.x / 32));
#pragma unroll
        for (int s = 0; s < AHEAD; s++)
            load(ahead[s], at, s);
    }
    __device__ __forceinline__ void work_units(piece (&ahead)[AHEAD]) const
    {
        int i = (int)threadIdx.x / 32;
        unit u = unit_at(i);
        place at = find_place(u);
        for (; u.any; i += FEW_WARPS) {
            unit then = unit_at(i + FEW_WARPS);
            place next = find_place(then);
            const few_run &mine = sh->run[u.slot];
            if (X > 2 && mine.n_tokens > 16)
                work_unit<X>(ahead, at, next, u, mine);
            else if (X > 1 && mine.n_tokens > 8)
                work_unit<TWO>(ahead, at, next, u, mine);
            else
                work_unit<1>(ahead, at, next, u, mine);
            u = then, at = next;
        }
    }
    /* Called by all threads: loads the runs of unit i and of those after it; returns the number of units in them. */
    __device__ int show_runs(int i, int end, int n_slots) const
    {
        few_run first = find_run(i, end), second = {};
        if (i + first.n < end && n_slots > 1)
            second = find_run(i + first.n, end);
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
        count_runs();
        int units = sh->before[a.n_held] * n_tiles;
        int end = (int)((int64_t)units * ((int)blockIdx.x + 1) / (int)gridDim.x);
        bool waits = !FIRST;
        for (int i = (int)((int64_t)units * (int)blockIdx.x / (int)gridDim.x); i < end;) {
            i += show_runs(i, end, n_slots);
            piece ahead[AHEAD];
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
