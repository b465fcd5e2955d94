/* kernels/cuda/products/fours_digits.cuh - products of experts with weights in E2M1, a scale of E8M0 for each 32
 * columns, for runs of up to 8 tokens whose activations are bfloat16, on devices whose warpgroups multiply (compute
 * capability 9.0a). Codes become E4M3 by 7 instructions for 8 of them, and an activation is the sum of two E4M3 digits:
 * exact where it is at least 2^-10 of the token's largest one, and never off by more than 2^-17 of that. One product of
 * a warpgroup takes 64 rows of weights from registers, and both digits of a group's 32 columns of all tokens from
 * shared memory; scales multiply its sums. The tensor cores' accumulation within it has about 14 bits. The token's
 * factor comes after the scales, so results from 2^117 on may be infinite.
 *
 * One warp copies boxes of codes to a ring, in steps of long rows: with rows of 64 bytes it would reach half of the
 * memory's rate. It waits for nobody else, so that products begin with the first codes that arrive. Four warpgroups
 * share a step, so it leaves the ring soon; a share's sums of a unit are added apart, and joined by the warps that
 * store the results: a result depends on the expert's weights and the token alone.
 *
 * The device's power limits its clock here, so columns without a token are zeros, which cost less of it. */
#ifndef PRODUCTS_FOURS_DIGITS_CUH
#define PRODUCTS_FOURS_DIGITS_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/products/codes_map.cuh"
#include "kernels/cuda/products/expert_runs.cuh"
#include "kernels/cuda/warpgroup_codes.cuh"

#define DIGITS_SHARES  4 /* of a step, one for each warpgroup that multiplies */
#define DIGITS_WORKERS (DIGITS_SHARES * 128)
#define DIGITS_THREADS (128 + DIGITS_WORKERS)
#define DIGITS_TOKENS  8
#define DIGITS_ROWS    64
#define DIGITS_BOX     32                   /* rows of gates, and of ups; of others DIGITS_ROWS */
#define DIGITS_UNITS   3                    /* under way */
#define DIGITS_GROUPS  30                   /* of a step: its rows begin and end at sectors of 32 bytes */
#define DIGITS_SHARE   8                    /* of these; the last share has the rest */
#define DIGITS_PART    2                    /* of these, multiplied between two waits */
#define DIGITS_ROW     (DIGITS_GROUPS * 16) /* bytes */
#define DIGITS_SLOTS   4                    /* of the ring */
#define DIGITS_RUNS    8                    /* of a pass, at most */
#define DIGITS_PITCH   68                   /* floats from one token's sums to the next one's */
#define DIGITS_CHUNKS  7                    /* groups of x that a quad converts, at most */

/* The most groups of a row: as many as the quads convert when each of DIGITS_TOKENS columns has its part of them. */
#define DIGITS_MOST_GROUPS (DIGITS_CHUNKS * (DIGITS_WORKERS / 4 / DIGITS_TOKENS))

struct digits_shared {
    alignas(128) char codes[DIGITS_SLOTS][DIGITS_ROWS * DIGITS_ROW];
    float sums[DIGITS_UNITS][DIGITS_SHARES][DIGITS_TOKENS * DIGITS_PITCH];
    float gain[DIGITS_TOKENS];    /* of each token's sums */
    uint32_t most[DIGITS_TOKENS]; /* its largest magnitude */
    uint64_t full[DIGITS_SLOTS], empty[DIGITS_SLOTS], begun[DIGITS_UNITS], ended[DIGITS_UNITS], stored[DIGITS_UNITS];
    expert_run run[DIGITS_RUNS + 1];
    int first[DIGITS_RUNS + 1];                /* each run's first pair; then that behind the last one */
    int n_runs, n_units;                       /* of the pass */
    int begin, end;                            /* the block's units that are left */
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
    /* A column of x is a token; otherwise a pair of the pass. The columns behind them are zeros in the first pass. */
    const bool all;

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

    /* Waits for the N threads that call it with this ID. */
    template <int ID, int N>
    __device__ static void meet()
    {
        asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(N) : "memory");
    }

    /* ---- passes ---- */

    __device__ void open() const
    {
        if (threadIdx.x != 0)
            return;
        box_map_prefetch(map);
        for (int i = 0; i < DIGITS_SLOTS; i++) {
            barrier_open(shared_address(&sh->full[i]), 1);
            barrier_open(shared_address(&sh->empty[i]), 4 * DIGITS_SHARES);
        }
        for (int i = 0; i < DIGITS_UNITS; i++) {
            barrier_open(shared_address(&sh->begun[i]), 1);
            barrier_open(shared_address(&sh->ended[i]), 4 * DIGITS_SHARES);
            barrier_open(shared_address(&sh->stored[i]), 3);
        }
        barriers_opened();
    }
    /* Called by warp 0 when the routing is complete: counts the runs of all experts, and deals their units to
     * blocks. */
    __device__ void deal_units() const
    {
        load_begins<32>(&sh->counts, a.r.begin, a.n_held);
        __syncwarp();
        const int n = scan_runs<DIGITS_TOKENS>(&sh->counts, a.n_held) * n_tiles;
        const int each = n / (int)gridDim.x, more = n % (int)gridDim.x, block = (int)blockIdx.x;
        sh->begin = each * block + min(block, more);
        sh->end = each * (block + 1) + min(block + 1, more);
        __syncwarp();
    }
    /* Called by warp 0: the runs of the units that are left, at most DIGITS_RUNS; returns their number. */
    __device__ int find_runs() const
    {
        const int begin = sh->begin, end = sh->end, at = begin / n_tiles;
        const int n = end > begin ? min((end - 1) / n_tiles - at + 1, DIGITS_RUNS) : 0;
        for (int e = (int)threadIdx.x; e < a.n_held; e += 32) {
            const int first = sh->counts.before[e], behind = sh->counts.before[e + 1];
            for (int i = max(first, at); i < min(behind, at + n); i++)
                sh->run[i - at] =
                    run_of_expert(&sh->counts, e, i - first, n_tiles, max(begin - i * n_tiles, 0), end - i * n_tiles);
        }
        __syncwarp();
        return n;
    }
    /* Called by warp 0: selects the next runs whose columns fit. */
    __device__ void select_runs() const
    {
        const int n = find_runs();
        int n_runs = 0, behind = 0, n_units = 0;
        for (; n_runs < n; n_runs++) {
            const int n_tokens = sh->run[n_runs].n_tokens;
            if (!all && behind + n_tokens > DIGITS_TOKENS)
                break;
            sh->first[n_runs] = behind;
            behind += n_tokens, n_units += sh->run[n_runs].n;
        }
        sh->first[n_runs] = behind;
        sh->n_runs = n_runs, sh->n_units = n_units;
        __syncwarp();
        if (threadIdx.x == 0)
            sh->begin += n_units;
        __syncwarp();
    }

    /* ---- x ---- */

    /* Called by all threads but warp 0's: the pairs of the pass. */
    __device__ void bring_pairs() const
    {
        const int i = (int)threadIdx.x - 32;
        for (int r = 0; r < sh->n_runs; r++)
            if (i >= sh->first[r] && i < sh->first[r + 1])
                sh->pair[i] = a.r.pair[sh->run[r].begin + i - sh->first[r]];
        meet<2, DIGITS_THREADS - 32>();
    }
    __device__ int row_of_column(int i) const
    {
        return all ? i : FIRST ? sh->pair[i] / a.n_chosen : sh->pair[i];
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
    __device__ static float factor_of(uint32_t most)
    {
        return __uint_as_float((uint32_t)(261 - max((int)most >> 7, 8)) << 23);
    }
    /* The factor of its sums, see fours_as_eights; infinite and NaN x make NaN. */
    __device__ static float gain_of(uint32_t most)
    {
        const int exponent = max((int)most >> 7, 8);
        const float back = __uint_as_float((uint32_t)(exponent - 7) << 23);
        return exponent == 255 ? __uint_as_float(0x7fffffffu) : back * 64.0f;
    }
    __device__ static uint32_t largest_of(const uint4 &v)
    {
        uint32_t two =
            __vmaxu2(__vmaxu2(v.x & 0x7fff7fffu, v.y & 0x7fff7fffu), __vmaxu2(v.z & 0x7fff7fffu, v.w & 0x7fff7fffu));
        return max(two & 0xffffu, two >> 16);
    }
    /* Called by all threads. */
    __device__ void clear_x() const
    {
        for (int i = (int)threadIdx.x; i < n_steps * DIGITS_GROUPS * (GROUP / 16); i += DIGITS_THREADS)
            ((uint4 *)x)[i] = make_uint4(0, 0, 0, 0);
        if (threadIdx.x < DIGITS_TOKENS)
            sh->most[threadIdx.x] = 0;
    }
    /* Called by the warpgroups that multiply, where x has been cleared: the first n columns. A quad has one column, and
     * some of its groups. */
    __device__ void bring_x(int n) const
    {
        const int quad = ((int)threadIdx.x - 128) / 4, quarter = (int)threadIdx.x % 4;
        const int column = quad % n, first = quad / n, stride = DIGITS_WORKERS / 4 / n;
        const bool any = first < stride;
        const T *from = a.x + (size_t)row_of_column(column) * a.cols;
        uint4 v[DIGITS_CHUNKS];
        uint32_t most = 0;
#pragma unroll
        for (int k = 0; k < DIGITS_CHUNKS; k++) {
            const int col = (first + k * stride) * 32 + quarter * 8;
            v[k] = make_uint4(0, 0, 0, 0);
            if (any && col < a.cols)
                v[k] = *(const uint4 *)(from + col);
        }
#pragma unroll
        for (int k = 0; k < DIGITS_CHUNKS; k++)
            most = max(most, largest_of(v[k]));
        most = max(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = max(most, __shfl_xor_sync(0xffffffffu, most, 2));
        if (quarter == 0)
            atomicMax(&sh->most[column], most);
        meet<1, DIGITS_WORKERS>();
        most = sh->most[column];
        if (first == 0)
            sh->gain[column] = gain_of(most);
#pragma unroll
        for (int k = 0; k < DIGITS_CHUNKS; k++) {
            const int group = first + k * stride;
            if (any && group < w.n_groups)
                store_digits(x + group * GROUP + column * 16 + quarter * 4, v[k], factor_of(most));
        }
        products_see_stores();
        meet<1, DIGITS_WORKERS>();
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
        fours_box(to, map, f.step * DIGITS_ROW / 4, f.tile * RESULTS, run.expert, full);
        f.n++;
        if (++f.step < n_steps)
            return;
        f.step = 0, f.unit++;
        if (++f.tile == run.first + run.n)
            f.tile = sh->run[++f.run].first;
    }
    __device__ static void fours_box(uint32_t into, const CUtensorMap *map, int x, int y, int expert, uint32_t barrier)
    {
#if __CUDA_ARCH__ >= 900
        uint64_t policy;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
                     "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(into),
                     "l"(map), "r"(x), "r"(y), "r"(0), "r"(expert), "r"(barrier), "l"(policy)
                     : "memory");
#endif
    }
    __device__ void copy_all(const pass &p) const
    {
        stream f = {0, 0, 0, 0, sh->run[0].first};
        while (f.n < p.n_units * n_steps)
            copy(f, p);
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
        code <<= 23;
        asm("max.u32 %0, %0, %1;" : "+r"(code) : "n"(0x00400000)); /* 2^-127 is subnormal; the compiler takes two */
        return __uint_as_float(code);
    }
    /* The descriptor of a group's columns, [digit][half of the columns][token][16 bytes], by its first word. */
    __device__ static uint64_t matrix_of(uint32_t low)
    {
        return (uint64_t)(DIGIT >> 4) << 32 | low;
    }
    /* N groups' products, not awaited. from: this lane's codes of the first group; low: of its descriptor */
    template <int N>
    __device__ static void multiply(float (&part)[DIGITS_PART][8], uint32_t (&code)[DIGITS_PART][4], uint32_t from,
                                    uint32_t low)
    {
#pragma unroll
        for (int j = 0; j < N; j++)
            load_codes(code[j], from + j * 16);
        warpgroup_begin();
#pragma unroll
        for (int j = 0; j < N; j++)
            warpgroup_product_of_codes<false>(part[j], code[j], matrix_of(low + j * (GROUP >> 4)));
        warpgroup_commit();
    }
    /* Adds the products of DIGITS_PART groups from `first` on. scale: the first ones of the lane's rows. WHOLE: all
     * groups exist. */
    template <bool WHOLE>
    __device__ void add(float (&sum)[4], float (&part)[DIGITS_PART][8], const uint32_t (&scale)[2], int first) const
    {
#pragma unroll
        for (int j = 0; j < DIGITS_PART; j++) {
            warpgroup_results(part[j]);
            if (!WHOLE && first + j >= w.n_groups)
                continue;
            const float s[2] = {scale_at(scale[0] + first + j), scale_at(scale[1] + first + j)};
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[i] = fmaf(part[j][i] + part[j][4 + i], s[i / 2], sum[i]);
        }
    }
    /* A share of N groups. n: the step's number among all passes' */
    template <int N, bool WHOLE>
    __device__ void work_step(float (&sum)[4], int n, int step, int share, const uint32_t (&scale)[2]) const
    {
        const int slot = n % DIGITS_SLOTS, lane = threadIdx.x % 32, row = (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
        const int in_step = share * DIGITS_SHARE, first = step * DIGITS_GROUPS + in_step;
        const uint32_t from = shared_address(sh->codes[slot]) + row * DIGITS_ROW + in_step * 16 + lane % 4 * 4;
        const uint32_t columns = shared_address(x) + first * GROUP;
        const uint32_t low = __shfl_sync(0xffffffffu, columns >> 4 | HALF >> 4 << 16, 0);
        const int PARTS = N / DIGITS_PART;
        float part[2][DIGITS_PART][8];
        uint32_t code[2][DIGITS_PART][4];
        barrier_wait(shared_address(&sh->full[slot]), n / DIGITS_SLOTS & 1);
#pragma unroll
        for (int b = 0; b < PARTS; b++) {
            const int j = b * DIGITS_PART;
            multiply<DIGITS_PART>(part[b % 2], code[b % 2], from + j * 16, low + j * (GROUP >> 4));
            if (b == PARTS - 1) {
                __syncwarp();
                if (lane == 0)
                    barrier_arrive(shared_address(&sh->empty[slot]));
            }
            if (b > 0) {
                warpgroup_wait<1>();
                add<WHOLE>(sum, part[(b - 1) % 2], scale, first + j - DIGITS_PART);
            }
        }
        warpgroup_wait<0>();
        add<WHOLE>(sum, part[(PARTS - 1) % 2], scale, first + N - DIGITS_PART);
    }
    /* A share of all steps of a unit. n: the first one's number */
    template <int N>
    __device__ void work_unit(float (&sum)[4], int n, int share, const uint32_t (&scale)[2]) const
    {
        for (int step = 0; step < n_steps; step++)
            if ((step + 1) * DIGITS_GROUPS <= w.n_groups)
                work_step<N, true>(sum, n + step, step, share, scale);
            else
                work_step<N, false>(sum, n + step, step, share, scale);
    }
    /* The place of the scales of a unit's row r, in rows. */
    __device__ int scale_row(int r) const
    {
        return FIRST && a.kind == ACTIVATION_SWIGLU ? r % DIGITS_BOX * 2 + r / DIGITS_BOX : r;
    }
    __device__ void hand_on(const float (&sum)[4], int b, int share) const
    {
        const int lane = threadIdx.x % 32, row = (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
        float *to = sh->sums[b][share] + lane % 4 * 2 * DIGITS_PITCH + row;
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[i % 2 * DIGITS_PITCH + i / 2 * 8] = sum[i];
    }
    /* By one of the four warpgroups: its shares of the pass. They change with the units, since the last one is
     * short. */
    __device__ void work(const pass &p) const
    {
        const int lane = threadIdx.x % 32, row = (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
        for (int u = 0; u < p.n_units; u++) {
            const int unit = p.units + u, b = unit % DIGITS_UNITS, n = p.steps + u * n_steps;
            const int share = __shfl_sync(0xffffffffu, ((int)threadIdx.x / 128 + unit) % DIGITS_SHARES, 0);
            const uint32_t of_unit = shared_address(scales) + b * DIGITS_ROWS * w.n_groups;
            const uint32_t scale[2] = {of_unit + scale_row(row) * w.n_groups,
                                       of_unit + scale_row(row + 8) * w.n_groups};
            float sum[4] = {};
            barrier_wait(shared_address(&sh->begun[b]), unit / DIGITS_UNITS & 1);
            if (share < DIGITS_SHARES - 1)
                work_unit<DIGITS_SHARE>(sum, n, share, scale);
            else
                work_unit<DIGITS_GROUPS - (DIGITS_SHARES - 1) * DIGITS_SHARE>(sum, n, share, scale);
            hand_on(sum, b, share);
            __syncwarp();
            if (lane == 0)
                barrier_arrive(shared_address(&sh->ended[b]));
        }
    }

    /* ---- results ---- */

    __device__ float sum_of(int b, int column, int row) const
    {
        float sum = 0;
        for (int share = 0; share < DIGITS_SHARES; share++)
            sum += sh->sums[b][share][column * DIGITS_PITCH + row];
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
     * copied while that one ends, and warp 0, which reads nothing else, does not wait for it. */
    __device__ void run() const
    {
        open();
        clear_x();
        __syncthreads();
        if (all && threadIdx.x >= 128)
            bring_x(a.n_tokens);
        if (FIRST)
            after_previous();
        else if (threadIdx.x < 32)
            let_next_begin();
        if (threadIdx.x < 32)
            deal_units();
        bool waits = !FIRST && threadIdx.x >= 32;
        for (pass p = {0, 0, 0};; p.units += p.n_units, p.steps += p.n_units * n_steps) {
            if (threadIdx.x < 32)
                select_runs();
            __syncthreads();
            p.n_units = sh->n_units;
            if (p.n_units == 0)
                break;
            work_as(p, waits);
            waits = false;
            __syncwarp();
            __syncthreads(); /* runs and x are no longer needed */
            if (threadIdx.x < DIGITS_TOKENS)
                sh->most[threadIdx.x] = 0;
        }
        if (waits)
            after_previous();
    }
    /* Called by all threads: each warp's part in a pass. */
    __device__ void work_as(const pass &p, bool waits) const
    {
        if (threadIdx.x < 32) {
            if (threadIdx.x == 0)
                copy_all(p);
            return;
        }
        bring_pairs();
        if (waits)
            after_previous();
        if (threadIdx.x < 128) {
            store(p);
            return;
        }
        if (!all)
            bring_x(sh->first[sh->n_runs]);
        work(p);
    }
};

/* Shared memory of a block. */
static inline size_t digits_bytes(int n_groups)
{
    return 128 + sizeof(digits_shared) + (size_t)digits_steps(n_groups) * DIGITS_GROUPS * DIGITS_TOKENS * 64 +
           (size_t)DIGITS_UNITS * DIGITS_ROWS * (size_t)n_groups;
}

/* The box of codes_map. */
static inline codes_box digits_box(bool first)
{
    return first ? codes_box{DIGITS_BOX, DIGITS_ROW, 2, 4} : codes_box{DIGITS_ROWS, DIGITS_ROW, 1, 4};
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
