/* kernels/cuda/products/fours_digits.cuh - products of experts with weights in E2M1, a scale of E8M0 for each 32
 * columns, for runs of up to 8 tokens whose activations are bfloat16, on devices whose warpgroups multiply (compute
 * capability 9.0a). Codes become E4M3 by 7 instructions for 8 of them, and an activation is the sum of two E4M3 digits:
 * exact where it is at least 2^-10 of the token's largest one, and never off by more than 2^-17 of that. One product of
 * a warpgroup takes 64 rows of weights from registers, and a group's 32 columns of all tokens from shared memory;
 * scales multiply its sums. The tensor cores' accumulation within it has about 14 bits. The token's factor comes after
 * the scales, so results from 2^117 on may be infinite.
 *
 * One thread copies boxes of codes to a ring, in steps of long rows: with rows of 64 bytes it would reach half of the
 * memory's rate. Steps are dealt to four warpgroups in turn, whatever unit they belong to, so all have the same number
 * of them but one. The sums of every fourth step of a unit are added apart, and joined by the warps that store the
 * results: a result depends on the expert's weights and the token alone. */
#ifndef PRODUCTS_FOURS_DIGITS_CUH
#define PRODUCTS_FOURS_DIGITS_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/products/expert_runs.cuh"
#include "kernels/cuda/warpgroup_codes.cuh"

/* Warpgroups that multiply. The slots of the ring are a multiple of it, so that each belongs to one of them: another
 * one could take a phase of its barrier for a later one. */
#define DIGITS_PARTS 4

#define DIGITS_THREADS (128 + DIGITS_PARTS * 128)
#define DIGITS_WARPS   (DIGITS_THREADS / 32)
#define DIGITS_TOKENS  8
#define DIGITS_ROWS    64
#define DIGITS_BOX     32 /* rows */
#define DIGITS_UNITS   3  /* under way */
#define DIGITS_GROUPS  15 /* of a step: an odd number, so that the rows of a box begin in different banks */
#define DIGITS_SHARE   3  /* of these, multiplied between two waits */
#define DIGITS_ROW     (DIGITS_GROUPS * 16)
#define DIGITS_SLOTS   8  /* of the ring */
#define DIGITS_RUNS    8  /* of a pass, at most */
#define DIGITS_PITCH   68 /* floats from one token's sums to the next one's */
#define DIGITS_CHUNKS  8  /* groups of x that a thread converts, at most */

struct digits_shared {
    alignas(128) char codes[DIGITS_SLOTS][DIGITS_ROWS * DIGITS_ROW];
    float sums[DIGITS_UNITS][DIGITS_PARTS][DIGITS_TOKENS * DIGITS_PITCH];
    float gain[DIGITS_TOKENS];                  /* of each token's sums */
    uint32_t most[DIGITS_WARPS][DIGITS_TOKENS]; /* the largest magnitudes */
    uint64_t full[DIGITS_SLOTS], empty[DIGITS_SLOTS], begun[DIGITS_UNITS], ended[DIGITS_UNITS], stored[DIGITS_UNITS];
    expert_run run[DIGITS_RUNS + 1];
    int first[DIGITS_RUNS + 1]; /* each run's first pair; then that behind the last one */
    int n_runs;
    int32_t pair[DIGITS_RUNS * DIGITS_TOKENS]; /* of the pass */
    expert_counts counts;
};

/* Eight codes as E4M3, 2^-6 of what they stand for: those at even and at odd places. */
__device__ static inline void fours_as_eights(uint32_t &even, uint32_t &odd, uint32_t w)
{
    const uint32_t SIGNS = 0x80808080u, ALL = 0x9c9c9c9cu;
    even = codes_merge(w << 4, w << 2, SIGNS) & ALL;
    odd = codes_merge(w, w >> 2, SIGNS) & ALL;
}

__host__ __device__ static inline int digits_steps(int n_groups)
{
    return (n_groups + DIGITS_GROUPS - 1) / DIGITS_GROUPS;
}

template <bool FIRST>
struct digits_work {
    using T = __nv_bfloat16;
    static const int HALF = DIGITS_TOKENS * 16, DIGIT = 2 * HALF, GROUP = 2 * DIGIT; /* bytes of x, see below */
    static const int RESULTS = FIRST ? DIGITS_BOX : DIGITS_ROWS;                     /* rows of results of a unit */

    const expert_product<T> &a;
    const coded &w;
    const CUtensorMap *map;
    digits_shared *sh;
    char *x, *scales; /* [groups, of whole steps][GROUP]; [DIGITS_UNITS][DIGITS_ROWS][n_groups] */
    int n_steps, n_tiles;
    const bool all; /* a column of x is a token; otherwise a pair of the pass */

    /* The numbers of steps and units in the passes before this one, and this one's units. */
    struct pass {
        int steps, units, n_units;
    };
    /* The thread's next copies. */
    struct stream {
        int n, unit, step, run, tile; /* steps so far */
    };

    __device__ digits_work(const expert_product<T> &args, const coded &weights, const CUtensorMap *of_codes, bool early,
                           char *memory)
        : a(args), w(weights), map(of_codes), sh((digits_shared *)memory), x(memory + sizeof(digits_shared)),
          n_steps(digits_steps(weights.n_groups)), n_tiles((args.rows + RESULTS - 1) / RESULTS),
          all(early && args.n_tokens <= DIGITS_TOKENS)
    {
        scales = x + n_steps * DIGITS_GROUPS * GROUP;
    }

    /* ---- passes ---- */

    __device__ void open() const
    {
        if (threadIdx.x != 0)
            return;
        box_map_prefetch(map);
        for (int i = 0; i < DIGITS_SLOTS; i++) {
            barrier_open(shared_address(&sh->full[i]), 1);
            barrier_open(shared_address(&sh->empty[i]), 4);
        }
        for (int i = 0; i < DIGITS_UNITS; i++) {
            barrier_open(shared_address(&sh->begun[i]), 1);
            barrier_open(shared_address(&sh->ended[i]), 4 * DIGITS_PARTS);
            barrier_open(shared_address(&sh->stored[i]), 3);
        }
        barriers_opened();
    }
    /* Called by all threads: selects runs from unit i on whose columns fit, a lane each; returns the number of their
     * units. */
    __device__ int select_runs(int i, int end) const
    {
        if (threadIdx.x < 32) {
            const int k = (int)threadIdx.x, from = k == 0 ? i : (i / n_tiles + k) * n_tiles;
            const bool any = k < DIGITS_RUNS && from < end;
            expert_run run = {};
            if (any)
                run = find_run(&sh->counts, a.n_held, n_tiles, from, end);
            int behind = run.n_tokens; /* the pairs up to this run's end */
            for (int d = 1; d < DIGITS_RUNS; d *= 2) {
                const int other = __shfl_up_sync(0xffffffffu, behind, d);
                behind += k >= d ? other : 0;
            }
            const bool fits = any && (all || behind <= DIGITS_TOKENS);
            if (fits)
                sh->run[k] = run, sh->first[k + 1] = behind;
            const int n = __popc(__ballot_sync(0xffffffffu, fits));
            if (k == 0)
                sh->first[0] = 0, sh->n_runs = n;
        }
        __syncthreads();
        int n_units = 0;
        for (int r = 0; r < sh->n_runs; r++)
            n_units += sh->run[r].n;
        return n_units;
    }

    /* ---- x ---- */

    /* Called by all threads: the pairs of the pass. */
    __device__ void bring_pairs() const
    {
        const int i = (int)threadIdx.x;
        for (int r = 0; r < sh->n_runs; r++)
            if (i >= sh->first[r] && i < sh->first[r + 1])
                sh->pair[i] = a.r.pair[sh->run[r].begin + i - sh->first[r]];
    }
    /* The token of this thread, and the row of x that it is; -1: none. */
    __device__ static int token()
    {
        return (int)threadIdx.x % 32 / 4;
    }
    __device__ int row_of_token() const
    {
        if (all)
            return token() < a.n_tokens ? token() : -1;
        for (int r = 0; r < sh->n_runs; r++)
            if (token() < sh->first[r + 1]) {
                const int pair = a.r.pair[sh->run[r].begin + token() - sh->first[r]];
                return FIRST ? pair / a.n_chosen : pair;
            }
        return -1;
    }
    /* The column of the pass's pair i. */
    __device__ int column_of(int i) const
    {
        return all ? sh->pair[i] / a.n_chosen : i;
    }
    /* The numbers' first digits; they become what is left of them. */
    __device__ static uint32_t digits_of(float (&rest)[4])
    {
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            uint32_t two = __nv_cvt_float2_to_fp8x2(make_float2(rest[i], rest[i + 1]), __NV_SATFINITE, __NV_E4M3);
            float2 back = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)two, __NV_E4M3)));
            rest[i] -= back.x, rest[i + 1] -= back.y;
            word |= two << i * 8;
        }
        return word;
    }
    /* Eight columns: those at even places and those at odd ones, as a lane holds their codes. */
    __device__ static void store_digits(char *to, const uint4 &v, float factor)
    {
        const uint32_t pair[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            float rest[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                rest[i] = __uint_as_float(odd ? pair[i] & 0xffff0000u : pair[i] << 16) * factor;
            }
            *(uint32_t *)(to + odd * HALF) = digits_of(rest);
            *(uint32_t *)(to + DIGIT + odd * HALF) = digits_of(rest);
        }
    }
    /* The factor that makes a token's largest magnitude, given as bfloat16, 128 to 256. */
    __device__ float factor_of(uint32_t most, int token) const
    {
        const int exponent = max((int)most >> 7, 8);
        const float back = __uint_as_float((uint32_t)(exponent - 7) << 23);
        if (threadIdx.x < 32 && threadIdx.x % 4 == 0) /* infinite and NaN x make NaN */
            sh->gain[token] = exponent == 255 ? __uint_as_float(0x7fffffffu) : back * 64.0f; /* see fours_as_eights */
        return __uint_as_float((uint32_t)(261 - exponent) << 23);
    }
    __device__ static uint32_t largest_of(const uint4 &v)
    {
        uint32_t two =
            __vmaxu2(__vmaxu2(v.x & 0x7fff7fffu, v.y & 0x7fff7fffu), __vmaxu2(v.z & 0x7fff7fffu, v.w & 0x7fff7fffu));
        return max(two & 0xffffu, two >> 16);
    }
    /* Called by all threads: a warp has all tokens, a group's columns at a time. row: row_of_token */
    __device__ void bring_x(int row) const
    {
        const int warp = (int)threadIdx.x / 32, quarter = (int)threadIdx.x % 4, groups = n_steps * DIGITS_GROUPS;
        const T *from = a.x + (size_t)row * a.cols;
        uint4 v[DIGITS_CHUNKS];
        uint32_t most = 0;
#pragma unroll
        for (int k = 0; k < DIGITS_CHUNKS; k++) {
            int col = (warp + k * DIGITS_WARPS) * 32 + quarter * 8;
            v[k] = make_uint4(0, 0, 0, 0);
            if (row >= 0 && col < a.cols)
                v[k] = *(const uint4 *)(from + col);
        }
#pragma unroll
        for (int k = 0; k < DIGITS_CHUNKS; k++)
            most = max(most, largest_of(v[k]));
        most = max(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = max(most, __shfl_xor_sync(0xffffffffu, most, 2));
        if (quarter == 0)
            sh->most[warp][token()] = most;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < DIGITS_WARPS; i++)
            most = max(most, sh->most[i][token()]);
        const float factor = factor_of(most, token());
#pragma unroll
        for (int k = 0; k < DIGITS_CHUNKS; k++) {
            int group = warp + k * DIGITS_WARPS;
            if (group < groups)
                store_digits(x + group * GROUP + token() * 16 + quarter * 4, v[k], factor);
        }
        products_see_stores();
        __syncthreads();
    }

    /* ---- copies, by one thread ---- */

    __device__ void copy_scales(const expert_run &run, int tile, int unit) const
    {
        const int b = unit % DIGITS_UNITS, row = tile * RESULTS, half = DIGITS_BOX * w.n_groups;
        const uint32_t begun = shared_address(&sh->begun[b]), to = shared_address(scales + b * 2 * half);
        const uint8_t *from = w.scales + (size_t)run.expert * (FIRST ? 2 : 1) * a.rows * w.n_groups;
        barrier_wait(shared_address(&sh->stored[b]), unit / DIGITS_UNITS & 1 ^ 1);
        barrier_expect(begun, 2 * half);
        if (FIRST && a.kind != ACTIVATION_SWIGLU) {
            bulk_copy(to, from + (size_t)row * w.n_groups, half, begun);
            bulk_copy(to + half, from + (size_t)(row + a.rows) * w.n_groups, half, begun);
        } else {
            bulk_copy(to, from + (size_t)(FIRST ? 2 : 1) * row * w.n_groups, 2 * half, begun);
        }
    }
    __device__ void copy(stream &f, const pass &p) const
    {
        const expert_run &run = sh->run[f.run];
        const int n = p.steps + f.n, slot = n % DIGITS_SLOTS;
        const uint32_t full = shared_address(&sh->full[slot]), to = shared_address(sh->codes[slot]);
        if (f.step == 0)
            copy_scales(run, f.tile, p.units + f.unit);
        barrier_wait(shared_address(&sh->empty[slot]), n / DIGITS_SLOTS & 1 ^ 1);
        barrier_expect(full, DIGITS_ROWS * DIGITS_ROW);
        for (int b = 0; b < 2; b++)
            fours_box(to + b * DIGITS_BOX * DIGITS_ROW, map, f.step * DIGITS_ROW,
                      f.tile * RESULTS + (FIRST ? 0 : b * DIGITS_BOX), FIRST ? b : 0, run.expert, full);
        f.n++;
        if (++f.step < n_steps)
            return;
        f.step = 0, f.unit++;
        if (++f.tile == run.first + run.n)
            f.tile = sh->run[++f.run].first;
    }
    __device__ static void fours_box(uint32_t into, const CUtensorMap *map, int x, int y, int z, int expert,
                                     uint32_t barrier)
    {
#if __CUDA_ARCH__ >= 900
        uint64_t policy;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
                     "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(into),
                     "l"(map), "r"(x), "r"(y), "r"(z), "r"(expert), "r"(barrier), "l"(policy)
                     : "memory");
#endif
    }

    /* ---- products ---- */

    /* A group's codes of two rows: this lane's operand. from: of the first row. */
    __device__ static void load_codes(uint32_t (&code)[4], uint32_t from)
    {
#pragma unroll
        for (int h = 0; h < 2; h++, from += 8 * DIGITS_ROW) {
            uint32_t word;
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from));
            fours_as_eights(code[h], code[2 + h], word);
        }
    }
    __device__ static float scale_at(uint32_t from)
    {
        uint32_t code;
        asm volatile("ld.shared.u8 %0, [%1];" : "=r"(code) : "r"(from));
        return __uint_as_float(max(code << 23, 0x00400000u)); /* 2^-127 is subnormal */
    }
    /* The descriptor of a group's columns of one digit, [half of the columns][token][16 bytes], by its first word. */
    __device__ static uint64_t matrix_of(uint32_t low)
    {
        return (uint64_t)(128 >> 4) << 32 | low;
    }
    /* DIGITS_SHARE groups' products, not awaited. from: this lane's codes of the first group; low: of its
     * descriptor. */
    __device__ static void multiply(float (&part)[DIGITS_SHARE][4], uint32_t (&code)[DIGITS_SHARE][4], uint32_t from,
                                    uint32_t low)
    {
#pragma unroll
        for (int j = 0; j < DIGITS_SHARE; j++)
            load_codes(code[j], from + j * 16);
        warpgroup_begin();
#pragma unroll
        for (int j = 0; j < DIGITS_SHARE; j++) {
            warpgroup_product_of_codes<false>(part[j], code[j], matrix_of(low + j * (GROUP >> 4)));
            warpgroup_product_of_codes<true>(part[j], code[j], matrix_of(low + (j * GROUP + DIGIT >> 4)));
        }
        warpgroup_commit();
    }
    /* Adds the products of DIGITS_SHARE groups from `first` on. scale: the first ones of the lane's rows. WHOLE: all
     * groups exist. */
    template <bool WHOLE>
    __device__ void add(float (&sum)[4], float (&part)[DIGITS_SHARE][4], const uint32_t (&scale)[2], int first) const
    {
#pragma unroll
        for (int j = 0; j < DIGITS_SHARE; j++) {
            warpgroup_results(part[j]);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (!WHOLE && first + j >= w.n_groups)
                    continue;
                const float s = scale_at(scale[h] + first + j);
                sum[2 * h] = fmaf(part[j][2 * h], s, sum[2 * h]);
                sum[2 * h + 1] = fmaf(part[j][2 * h + 1], s, sum[2 * h + 1]);
            }
        }
    }
    /* n: the step's number among all passes'. */
    template <bool WHOLE>
    __device__ void work_step(float (&sum)[4], int n, int step, const uint32_t (&scale)[2]) const
    {
        const int slot = n % DIGITS_SLOTS, lane = threadIdx.x % 32, row = (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
        const uint32_t from = shared_address(sh->codes[slot]) + row * DIGITS_ROW + lane % 4 * (4);
        const uint32_t columns = shared_address(x) + step * DIGITS_GROUPS * GROUP;
        const uint32_t low = __shfl_sync(0xffffffffu, columns >> 4 | HALF >> 4 << 16, 0);
        const int LAST = DIGITS_GROUPS / DIGITS_SHARE - 1, first = step * DIGITS_GROUPS;
        float part[2][DIGITS_SHARE][4];
        uint32_t code[2][DIGITS_SHARE][4];
        barrier_wait(shared_address(&sh->full[slot]), n / DIGITS_SLOTS & 1);
#pragma unroll
        for (int b = 0; b <= LAST; b++) {
            multiply(part[b % 2], code[b % 2], from + b * DIGITS_SHARE * 16, low + (b * DIGITS_SHARE * GROUP >> 4));
            if (b == LAST) {
                __syncwarp();
                if (lane == 0)
                    barrier_arrive(shared_address(&sh->empty[slot]));
            }
            if (b > 0) {
                warpgroup_wait<1>();
                add<WHOLE>(sum, part[(b - 1) % 2], scale, first + (b - 1) * DIGITS_SHARE);
            }
        }
        warpgroup_wait<0>();
        add<WHOLE>(sum, part[LAST % 2], scale, first + LAST * DIGITS_SHARE);
    }
    /* The place of the scales of a unit's row r, in rows. */
    __device__ int scale_row(int r) const
    {
        return FIRST && a.kind == ACTIVATION_SWIGLU ? r % DIGITS_BOX * 2 + r / DIGITS_BOX : r;
    }
    __device__ void hand_on(const float (&sum)[4], int b, int part) const
    {
        const int lane = threadIdx.x % 32, row = (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
        float *to = sh->sums[b][part] + lane % 4 * 2 * DIGITS_PITCH + row;
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[i % 2 * DIGITS_PITCH + i / 2 * 8] = sum[i];
    }
    /* By one of the four warpgroups: its steps of the pass. All of them take part in every unit, even without a step in
     * it, so that none confuses the phases of a barrier. */
    __device__ void work(const pass &p) const
    {
        const int lane = threadIdx.x % 32, row = (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
        int n = (int)threadIdx.x / 128 - 1, step = n;
        for (int u = 0; u < p.n_units; u++, step -= n_steps) {
            const int unit = p.units + u, b = unit % DIGITS_UNITS, part = step % DIGITS_PARTS;
            const uint32_t of_unit = shared_address(scales) + b * DIGITS_ROWS * w.n_groups;
            const uint32_t scale[2] = {of_unit + scale_row(row) * w.n_groups,
                                       of_unit + scale_row(row + 8) * w.n_groups};
            const bool any = step < n_steps;
            float sum[4] = {};
            barrier_wait(shared_address(&sh->begun[b]), unit / DIGITS_UNITS & 1);
            for (; step < n_steps; step += DIGITS_PARTS, n += DIGITS_PARTS)
                if ((step + 1) * DIGITS_GROUPS <= w.n_groups)
                    work_step<true>(sum, p.steps + n, step, scale);
                else
                    work_step<false>(sum, p.steps + n, step, scale);
            if (any)
                hand_on(sum, b, part);
            __syncwarp();
            if (lane == 0)
                barrier_arrive(shared_address(&sh->ended[b]));
        }
    }

    /* ---- results ---- */

    __device__ float sum_of(int b, int column, int row) const
    {
        float sum = 0;
        for (int part = 0; part < min(n_steps, DIGITS_PARTS); part++)
            sum += sh->sums[b][part][column * DIGITS_PITCH + row];
        return sum * sh->gain[column];
    }
    __device__ float result(const expert_run &run, int b, int column, int tile, int f) const
    {
        const int row = tile * RESULTS + f;
        if (!FIRST) {
            float bias = a.bias == nullptr ? 0 : weight_at(a.bias, a.bias_type, run.expert * a.rows + row, 0.0f);
            return sum_of(b, column, f) + bias;
        }
        const bool biased = a.bias != nullptr;
        float gate = biased ? gate_bias(a, run.expert, row, 0) : 0, up = biased ? gate_bias(a, run.expert, row, 1) : 0;
        return gated_by(gate_formula_of(a.kind), gate + sum_of(b, column, f), up + sum_of(b, column, f + DIGITS_BOX));
    }
    /* By the warps 1 to 3. */
    __device__ void store(const pass &p) const
    {
        const int lane = threadIdx.x % 32;
        for (int u = 0, r = 0, tile = sh->run[0].first; u < p.n_units; u++) {
            const expert_run run = sh->run[r];
            const int unit = p.units + u, b = unit % DIGITS_UNITS;
            barrier_wait(shared_address(&sh->ended[b]), unit / DIGITS_UNITS & 1);
            for (int t = (int)threadIdx.x / 32 - 1; t < run.n_tokens; t += 3) {
                const int pair = sh->pair[sh->first[r] + t], column = column_of(sh->first[r] + t);
                for (int f = lane; f < RESULTS && tile * RESULTS + f < a.rows; f += 32)
                    a.out[(size_t)pair * a.rows + tile * RESULTS + f] = from_float<T>(result(run, b, column, tile, f));
            }
            __syncwarp();
            if (lane == 0)
                barrier_arrive(shared_address(&sh->stored[b]));
            if (++tile == run.first + run.n)
                tile = sh->run[++r].first;
        }
    }

    /* The first product's x may be known before its preceding kernel, the router, ends, which read it, too: its digits
     * are made meanwhile. The routing is complete before the second product's preceding kernel, so its first codes are
     * copied while that one ends. */
    __device__ void run() const
    {
        open();
        if (all)
            bring_x(row_of_token());
        if (FIRST)
            after_previous();
        count_runs<DIGITS_TOKENS, DIGITS_THREADS>(&sh->counts, a.r.begin, a.n_held);
        const int64_t units = (int64_t)sh->counts.before[a.n_held] * n_tiles;
        const int end = (int)(units * ((int)blockIdx.x + 1) / (int)gridDim.x);
        bool waits = !FIRST;
        pass p = {0, 0, 0};
        for (int i = (int)(units * (int)blockIdx.x / (int)gridDim.x); i < end; i += p.n_units) {
            p.units += p.n_units, p.steps += p.n_units * n_steps;
            p.n_units = select_runs(i, end);
            stream ahead = {0, 0, 0, 0, sh->run[0].first};
            const int steps = p.n_units * n_steps;
            if (threadIdx.x == 0)
                while (ahead.n < min(steps, DIGITS_SLOTS) && ahead.unit < DIGITS_UNITS)
                    copy(ahead, p);
            bring_pairs();
            const int row = row_of_token();
            if (waits)
                after_previous();
            waits = false;
            if (all)
                __syncthreads();
            else
                bring_x(row);
            if (threadIdx.x >= 128)
                work(p);
            else if (threadIdx.x >= 32)
                store(p);
            else if (threadIdx.x == 0)
                while (ahead.n < steps)
                    copy(ahead, p);
            __syncwarp();
            __syncthreads(); /* runs and x are no longer needed */
        }
        if (waits)
            after_previous();
    }
};

/* Shared memory of a block. */
static inline size_t digits_bytes(int n_groups)
{
    return 128 + sizeof(digits_shared) + (size_t)digits_steps(n_groups) * DIGITS_GROUPS * DIGITS_TOKENS * 64 +
           (size_t)DIGITS_UNITS * DIGITS_ROWS * (size_t)n_groups;
}

/* early: the preceding kernel does not write x, and waited for the one that did. grid: one block per multiprocessor. */
template <bool FIRST>
__global__ void __launch_bounds__(DIGITS_THREADS, 1)
    fours_digits(const __grid_constant__ expert_product<__nv_bfloat16> a, const __grid_constant__ coded w,
                 const __grid_constant__ CUtensorMap map, bool early)
{
    extern __shared__ uint4 shared[];
    digits_work<FIRST>(a, w, &map, early, (char *)shared + (-shared_address(shared) & 127)).run();
}

#endif
