/* kernels/cuda/products/fours_few.cuh - as coded_few.cuh, the products of experts with weights in E2M1 for runs of up
 * to 8 tokens, whose codes and scales go through shared memory: each warp has a ring of steps of its own, so that many
 * copies are under way whatever the compiler does with registers, and waits for no other warp.
 *
 * Where an expert has one or two tokens, the products' eight columns are these, four times each: the columns of x that
 * one lane of a quad multiplies, and zeros. So the groups of the quad, of which each lane has its own, are added apart,
 * and scales multiply sums instead of codes, whatever they are. */
#ifndef PRODUCTS_FOURS_FEW_CUH
#define PRODUCTS_FOURS_FEW_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/products/coded_few.cuh"

#define FOURS_SLOTS 4  /* of a warp's ring */
#define FOURS_SLOT  64 /* units of 16 bytes: a step's codes of 16 rows */
#define FOURS_APART 2  /* so many tokens are added apart */

/* Bytes of the scales of a unit's rows, and how many units' a warp has room for, a power of two: of the one that it
 * works on and those whose steps are copied, or begin with the step after the last of these. */
__host__ __device__ static inline int fours_scale_bytes(int n_groups)
{
    return (FEW_ROWS / 2 * n_groups + 30) / 16 * 32;
}
__host__ __device__ static inline int fours_scale_buffers(int n_steps)
{
    return n_steps == 1 ? 8 : n_steps < FOURS_SLOTS ? 4 : 2;
}

template <typename T, bool FIRST>
struct fours_few_work : few_work<T, CODES_E2M1, FIRST, 8> {
    using base = few_work<T, CODES_E2M1, FIRST, 8>;
    using unit = typename base::unit;
    using piece = typename base::piece;
    using sums = float[1][4];
    using base::a, base::w, base::sh, base::x, base::lane, base::n_steps, base::n_tiles, base::X;
    static const int GROUPS = FEW_COLS / 32;

    uint4 *ring;  /* this warp's, this lane's first unit: [FOURS_SLOTS][2 rows][lane] */
    char *scales; /* this warp's, of the units on their way */
    int in_last;  /* the last step has columns of this lane */

    /* The warp's next copies: steps of the units that it works on later. */
    struct stream {
        const char *from[2]; /* this lane's codes */
        int left;            /* steps of the unit; at most 0: there are no more units */
        int next;            /* the unit after it */
        int turn;            /* of the unit whose scales are copied next */
    };

    __device__ fours_few_work(const expert_product<T> &args, const coded &weights, few_shared *shared, int n_runs)
        : base(args, weights, shared), in_last((n_steps - 1) * 4 + lane % 4 < (int)(weights.pitch / 16))
    {
        const int warp = (int)threadIdx.x / 32;
        uint4 *rings = x + (size_t)n_runs * n_steps * X * FEW_UNITS;
        ring = rings + warp * FOURS_SLOTS * FOURS_SLOT + lane;
        scales = (char *)(rings + FEW_WARPS * FOURS_SLOTS * FOURS_SLOT) +
                 warp * fours_scale_buffers(n_steps) * fours_scale_bytes(w.n_groups);
    }

    /* ---- copies ---- */

    /* Gates and the rows that they multiply lie apart, as do their scales. */
    __device__ bool in_halves() const
    {
        return FIRST && a.kind != ACTIVATION_SWIGLU;
    }
    /* The first scale of the unit's rows, or of one half of them. */
    __device__ size_t first_scale(const unit &u, int half) const
    {
        int expert = sh->run[u.slot].expert, of_tile = FIRST && in_halves() ? FEW_ROWS / 2 : FEW_ROWS;
        int row = expert * (FIRST ? 2 : 1) * a.rows + u.tile * of_tile + half * a.rows;
        return (size_t)row * w.n_groups;
    }
    __device__ char *scale_buffer(int turn) const
    {
        return scales + (turn & (fours_scale_buffers(n_steps) - 1)) * fours_scale_bytes(w.n_groups);
    }
    /* By the warp: the pieces of 16 bytes that hold them. */
    __device__ void copy_scales(const unit &u, char *to) const
    {
        const int halves = in_halves() ? 2 : 1;
        const size_t all = (size_t)a.n_held * (FIRST ? 2 : 1) * a.rows * w.n_groups;
        for (int half = 0; half < halves; half++, to += fours_scale_bytes(w.n_groups) / 2) {
            size_t first = first_scale(u, half), begin = first / 16 * 16, end = first + FEW_ROWS / halves * w.n_groups;
            int n = (int)((min(end, all) - begin + 15) / 16);
            for (int i = lane; i < n; i += 32)
                async_copy(shared_address(to + i * 16), w.scales + begin + i * 16);
        }
    }
    /* The place in shared memory of the scales of this lane's row h. */
    __device__ int place_of_scales(const unit &u, const char *buffer, int h) const
    {
        const int half = in_halves() ? h : 0;
        const size_t first = first_scale(u, half);
        const size_t row = (size_t)this->weight_row(sh->run[u.slot].expert, u.tile, h) * w.n_groups;
        const char *place = buffer + half * (fours_scale_bytes(w.n_groups) / 2) + first % 16 + (row - first);
        return (int)(place - (const char *)sh);
    }
    __device__ void open_unit(stream &f) const
    {
        const unit u = this->unit_at(f.next);
        f.next += FEW_WARPS;
        f.left = u.any ? n_steps : 0;
        f.from[0] = f.from[1] = (const char *)w.codes;
        if (!u.any)
            return;
        const auto at = this->find_place(u);
#pragma unroll
        for (int h = 0; h < 2; h++)
            f.from[h] += ((size_t)at.codes[h] + lane % 4) * 16;
        copy_scales(u, scale_buffer(f.turn++));
    }
    /* Copies a step's codes to this place in the ring; columns behind the row's end are zeros. */
    __device__ void copy(stream &f, int place) const
    {
        const bool wanted = f.left > (in_last ? 0 : 1);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            async_copy(ring + place + h * 32, f.from[h], wanted);
            f.from[h] += FEW_COLS / 2;
        }
        async_commit();
        if (--f.left == 0)
            open_unit(f);
    }
    /* The first steps of this warp's first unit. */
    __device__ void copy_first(stream &f) const
    {
        f.turn = 0;
        f.next = (int)threadIdx.x / 32;
        open_unit(f);
        for (int slot = 0; slot < FOURS_SLOTS - 1; slot++)
            copy(f, slot * FOURS_SLOT);
    }

    /* ---- products ---- */

    /* sum += the step's products, of groups apart; scale: of the sums' rows and columns. */
    __device__ void add_apart(float (&sum)[4], const piece &p, const uint4 *from, const float (&scale)[4]) const
    {
        float part[4] = {};
#pragma unroll
        for (int q = 0; q < 4; q++) {
            uint32_t r[2][4];
            const uint4 b = from[q * 32];
            this->widen(r[0], p.codes[0][0], q);
            this->widen(r[1], p.codes[1][0], q);
            tensor_mma<__half>(part, r[0][0], r[1][0], r[0][1], r[1][1], b.x, b.y);
            tensor_mma<__half>(part, r[0][2], r[1][2], r[0][3], r[1][3], b.z, b.w);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[i] = fmaf(part[i], scale[i], sum[i]);
    }
    /* The sums of both tokens, which the columns of each have apart, as those of columns 0 and 1. */
    __device__ static void join_groups(float (&sum)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            float all = (sum[i] + sum[i + 1]) * base::SMALL_GAIN;
            sum[i] = all + __shfl_xor_sync(0xffffffffu, all, 1);
            sum[i + 1] = __shfl_xor_sync(0xffffffffu, sum[i], 2);
        }
    }
    /* Calls add(piece without scales, x, group of the step's first column) for each step. */
    template <typename F>
    __device__ __forceinline__ void each_step(stream &f, int &at, int &spare, const uint4 *from, F add) const
    {
#pragma unroll 2
        for (int s = 0; s < n_steps; s++, from += X * FEW_UNITS) {
            copy(f, spare);
            async_wait<FOURS_SLOTS - 1>();
            __syncwarp(); /* scales are copied by all lanes */
            piece p;
#pragma unroll
            for (int h = 0; h < 2; h++)
                p.codes[h][0] = ring[at + h * 32];
            spare = at;
            at = (at + FOURS_SLOT) & (FOURS_SLOTS * FOURS_SLOT - 1);
            add(p, from);
        }
    }
    __device__ const uint8_t *scale_at(int place, int last) const
    {
        return (const uint8_t *)sh + min(place, last);
    }
    /* turn: the unit's number among those of this warp; at: the next slot, spare: the one before it, which is free. */
    __device__ void work_apart(stream &f, int &at, int &spare, int turn, const unit &u, const expert_run &run) const
    {
        const uint4 *from = x + (size_t)u.slot * n_steps * X * FEW_UNITS + lane;
        int place[2], last[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            place[h] = place_of_scales(u, scale_buffer(turn), h);
            last[h] = place[h] + w.n_groups - 1;
            place[h] += w.form.first / 32 + lane % 2 * 2;
        }
        sums sum = {};
        each_step(f, at, spare, from, [&](const piece &p, const uint4 *of_step) {
            float scale[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t code = *scale_at(place[i / 2] + i % 2, last[i / 2]);
                scale[i] = __uint_as_float(max(code << 23, 0x00400000u));
            }
            place[0] += GROUPS, place[1] += GROUPS;
            add_apart(sum[0], p, of_step, scale);
        });
        join_groups(sum[0]);
        this->template store_tile<1>(sum, run, u.tile, u.slot);
    }
    __device__ void work_together(stream &f, int &at, int &spare, int turn, const unit &u, const expert_run &run) const
    {
        const uint4 *from = x + (size_t)u.slot * n_steps * X * FEW_UNITS + lane;
        int place[2], last[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            place[h] = place_of_scales(u, scale_buffer(turn), h);
            last[h] = place[h] + w.n_groups - 1;
            place[h] += w.form.first / 32 + lane % 4;
        }
        uint32_t most = 0;
        sums sum = {};
        each_step(f, at, spare, from, [&](piece &p, const uint4 *of_step) {
#pragma unroll
            for (int h = 0; h < 2; h++, most = max(most, p.scale[h - 1] - 104)) {
                p.scale[h] = *scale_at(place[h], last[h]);
                place[h] += GROUPS;
            }
            this->template add<1>(sum, p, of_step);
        });
        if (__any_sync(0xffffffffu, most > 24)) { /* see few_work::in_range */
            memset(&sum, 0, sizeof sum);
            this->template add_groups<1>(sum, this->find_place(u), from);
        }
        this->template store_tile<1>(sum, run, u.tile, u.slot);
    }

    /* ---- units ---- */

    __device__ __forceinline__ void work_units(stream &f) const
    {
        int i = (int)threadIdx.x / 32, at = 0, spare = (FOURS_SLOTS - 1) * FOURS_SLOT, turn = 0;
        for (unit u = this->unit_at(i); u.any; i += FEW_WARPS, turn++, u = this->unit_at(i)) {
            const expert_run &mine = sh->run[u.slot];
            if (mine.n_tokens <= FOURS_APART)
                work_apart(f, at, spare, turn, u, mine);
            else
                work_together(f, at, spare, turn, u, mine);
        }
    }
    /* As few_work::run. */
    __device__ void run(int n_slots) const
    {
        if (FIRST)
            after_previous();
        count_runs<8, FEW_THREADS>(&sh->counts, a.r.begin, a.n_held);
        int units = sh->counts.before[a.n_held] * n_tiles;
        int end = (int)((int64_t)units * ((int)blockIdx.x + 1) / (int)gridDim.x);
        bool waits = !FIRST;
        for (int i = (int)((int64_t)units * (int)blockIdx.x / (int)gridDim.x); i < end;) {
            i += this->show_runs(i, end, n_slots);
            stream ahead;
            copy_first(ahead);
            if (waits)
                after_previous();
            waits = false;
            for (int slot = 0; slot < 2 && sh->run[slot].n > 0; slot++)
                this->bring_x(sh->run[slot], slot, sh->run[slot].n_tokens <= FOURS_APART);
            __syncthreads();
            work_units(ahead);
            __syncthreads(); /* x is no longer needed */
        }
        if (waits)
            after_previous();
    }
};

/* Shared memory of the block's warps. */
static inline size_t fours_ring_bytes(int n_steps, int n_groups)
{
    size_t scales = (size_t)fours_scale_buffers(n_steps) * (size_t)fours_scale_bytes(n_groups);
    return FEW_WARPS * (FOURS_SLOTS * FOURS_SLOT * sizeof(uint4) + scales);
}

/* grid: one block per multiprocessor. n_slots: runs whose x fits */
template <typename T, bool FIRST>
__global__ void __launch_bounds__(FEW_THREADS, 1)
    fours_few(const __grid_constant__ expert_product<T> a, const __grid_constant__ coded w, int n_slots)
{
    extern __shared__ uint4 shared[];
    fours_few_work<T, FIRST>(a, w, (few_shared *)shared, n_slots).run(n_slots);
}

#endif
