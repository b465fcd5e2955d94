/* kernels/cuda/attention/attention_same_parts.cuh - the rest of the attention of divided items, whose scores
 * attention_same.cuh stores step by step. A block adds the values of 16 columns. One warp does nothing but add, step
 * after step in one accumulator, 33 clocks for 16 keys, since each product waits for the one before; other warps bring
 * it the values of a step each, and turn the scores into weights, which depend on the best scores of the steps before.
 *
 * The kernel begins as soon as all blocks of attention_same run, and takes a step when its scores are stored, so most
 * of its products hide behind the reading of keys. */
#ifndef ATTENTION_ATTENTION_SAME_PARTS_CUH
#define ATTENTION_ATTENTION_SAME_PARTS_CUH

#include "kernels/cuda/attention/attention_same.cuh"

#define SAME_BRINGERS 8                          /* warps that bring steps in turn, each to its slot in shared memory */
#define SAME_THREADS  ((SAME_BRINGERS + 1) * 32) /* the last warp adds */

/* Slots of steps. HALVES: eight rows each. "full": a step is there; "empty": the slot may be refilled. */
template <int HD, int HALVES>
struct same_ring {
    using layout = same_layout<HD>;
    using values = same_rows<2>;
    uint4 value[SAME_BRINGERS][layout::STEP * values::PITCH];
    uint2 weight[SAME_BRINGERS][HALVES][layout::PAGES][32]; /* each lane's part of operand A */
    float2 factor[SAME_BRINGERS][HALVES][32]; /* by lanes: sums of a step's weights, factors of the sums before */
    uint64_t full[SAME_BRINGERS], empty[SAME_BRINGERS];

    __device__ void open()
    {
        if (threadIdx.x < SAME_BRINGERS) {
            barrier_open(shared_address(&full[threadIdx.x]), 32 + 1); /* a lane's copies, and the weights */
            barrier_open(shared_address(&empty[threadIdx.x]), 1);
            barriers_opened();
        }
        __syncthreads();
    }
};

/* Arrives when all copies that this thread has started by cp.async are complete. */
__device__ static inline void copies_arrive(uint32_t barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
#endif
}

/* A number that other blocks raise, and what they wrote before. */
__device__ static inline unsigned load_acquired(const unsigned *from)
{
    unsigned x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
    return x;
}

template <typename T, int HD, int HALVES>
struct same_part : same_item<T, HD> {
    using item = same_item<T, HD>;
    using item::m, item::lane, item::n_steps;
    using typename item::layout;
    using ring = same_ring<HD, HALVES>;
    static const int PAGES = layout::PAGES;
    ring *sh;
    int unit0; /* of 16 bytes: the first of this block's columns */

    __device__ same_part(const attention_args<T> &args, ring *shared)
        : item(args, (int)blockIdx.x, (int)blockIdx.y), sh(shared), unit0((int)blockIdx.z * 2)
    {
    }
    __device__ int row_of(int half) const
    {
        return lane / 4 + half * 8;
    }
    __device__ float top_of(int step, int half) const
    {
        if (row_of(half) >= m.n_rows)
            return -INFINITY;
        float4 top = __ldcg((const float4 *)this->tops_of(step, row_of(half)));
        return fmaxf(fmaxf(top.x, top.y), fmaxf(top.z, top.w));
    }
    /* The best score of a row in steps [begin, end). */
    __device__ float best_of(int begin, int end, int half) const
    {
        float best = -INFINITY;
        for (int step = begin + lane % 4; step < end; step += 4)
            best = fmaxf(best, top_of(step, half));
        best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 1));
        return fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 2));
    }
};

/* A warp that brings every SAME_BRINGERS-th step. */
template <typename T, int HD, int HALVES>
struct same_bringer : same_part<T, HD, HALVES> {
    using part = same_part<T, HD, HALVES>;
    using part::a, part::m, part::lane, part::n_steps, part::sh, part::PAGES;
    using typename part::layout;
    using values = typename part::ring::values;
    int slot, stored = 0; /* stored: this many first steps are known to have scores */
    prompt_rows<layout::STEP> rows;

    __device__ same_bringer(const attention_args<T> &args, typename part::ring *shared)
        : part(args, shared), slot((int)threadIdx.x / 32)
    {
        rows.best[0] = rows.best[1] = -INFINITY;
    }
    /* Waits for the scores of all steps up to this one. */
    __device__ void await_scores(int step)
    {
        while (stored <= step) {
            int at = stored + lane;
            bool there = at < n_steps && load_acquired(this->stored_of(at)) == SAME_WARPS;
            unsigned missing = ~__ballot_sync(0xffffffffu, there);
            stored += missing ? __ffs((int)missing) - 1 : 32;
        }
        __syncwarp();
    }
    __device__ void load_scores(float (&s)[PAGES * 4 * HALVES], int step) const
    {
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            const float4 *from = this->scores_of(step, h) + lane;
            bool wanted = this->row_of(h) < m.n_rows;
#pragma unroll
            for (int page = 0; page < PAGES; page++) {
                float4 x = wanted ? __ldcg(from + page * 32) : make_float4(0, 0, 0, 0);
                float *to = s + page * 4 * HALVES + h * 2;
                to[0] = x.x, to[1] = x.y, to[2 * HALVES] = x.z, to[2 * HALVES + 1] = x.w;
            }
        }
    }
    /* Starts to copy values, zeros for those that are not seen. id: of a lane's block of the step */
    __device__ void copy_values(int block0, int id) const
    {
#pragma unroll
        for (int page = 0; page < PAGES; page++) {
            int row = page * KV_BLOCK_TOKENS + lane / 2, of_page = __shfl_sync(0xffffffffu, id, page);
            this->copy_value(sh->value[slot] + values::at(row, lane % 2), block0, row, of_page, this->unit0 + lane % 2);
        }
        copies_arrive(shared_address(&sh->full[slot]));
    }
    /* Stores a step's weights and factors. */
    __device__ void weigh(float (&s)[PAGES * 4 * HALVES], const float (&top)[2])
    {
        const int OF_QUARTER = PAGES / SAME_WARPS * 4 * HALVES;
        float keep[2], base[2], sum[SAME_WARPS][HALVES], scale = a.heads.scale * ATTENTION_LOG2_E;
        rows.raise(top, scale, keep, base);
#pragma unroll
        for (int i = 0; i < SAME_WARPS; i++)
            rows.template weigh_keys<layout::STEP / SAME_WARPS>(s + i * OF_QUARTER, scale, base, sum[i]);
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            sh->factor[slot][h][lane] = make_float2(rows.sum_of_step(sum, h), keep[h]);
#pragma unroll
            for (int page = 0; page < PAGES; page++) {
                const float *w = s + page * 4 * HALVES + h * 2;
                sh->weight[slot][h][page][lane] =
                    make_uint2(tensor_pack<T>(w[0], w[1]), tensor_pack<T>(w[2 * HALVES], w[2 * HALVES + 1]));
            }
        }
    }
    __device__ void bring(int step)
    {
        float s[PAGES * 4 * HALVES], top[2] = {-INFINITY, -INFINITY};
        int block0 = this->first_block(step), id = lane < PAGES ? this->entry_of(block0 + lane) : -1;
        await_scores(step);
        load_scores(s, step);
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            rows.best[h] = fmaxf(rows.best[h], this->best_of(max(0, step - SAME_BRINGERS + 1), step, h));
            top[h] = this->top_of(step, h);
        }
        barrier_wait(shared_address(&sh->empty[slot]), ring_phase<SAME_BRINGERS>(step) ^ 1);
        copy_values(block0, id);
        weigh(s, top);
        __syncwarp();
        if (lane == 0)
            barrier_arrive(shared_address(&sh->full[slot]));
    }
    __device__ void bring_all()
    {
        for (int step = slot; step < n_steps; step += SAME_BRINGERS)
            bring(step);
    }
};

/* The warp that adds. */
template <typename T, int HD, int HALVES>
struct same_adder : same_part<T, HD, HALVES> {
    using part = same_part<T, HD, HALVES>;
    using part::a, part::m, part::lane, part::n_steps, part::sh, part::PAGES;
    using values = typename part::ring::values;
    static const int AHEAD = PAGES / 2; /* pages whose operands are loaded before their turn */
    prompt_rows<KV_BLOCK_TOKENS> rows;
    uint2 weight[HALVES][PAGES];
    uint32_t value[PAGES][4];
    float2 factor[HALVES];
    float out[2][4];

    __device__ same_adder(const attention_args<T> &args, typename part::ring *shared) : part(args, shared), out{}
    {
        for (int i = 0; i < 2; i++)
            rows.begin(i, a, m.seen, m.head0 + (this->row_of(i) < m.n_rows ? this->row_of(i) : 0));
    }
    __device__ void await(int step)
    {
        int slot = ring_place<SAME_BRINGERS>(step);
        barrier_wait(shared_address(&sh->full[slot]), ring_phase<SAME_BRINGERS>(step));
#pragma unroll
        for (int h = 0; h < HALVES; h++)
            factor[h] = sh->factor[slot][h][lane];
    }
    __device__ __forceinline__ void load(int slot, int page)
    {
#pragma unroll
        for (int h = 0; h < HALVES; h++)
            weight[h][page] = sh->weight[slot][h][page][lane];
        tensor_load_transposed(value[page],
                               sh->value[slot] + values::at(page * KV_BLOCK_TOKENS + lane % 16, lane / 16));
    }
    __device__ __forceinline__ void add(int page)
    {
        uint2 low = weight[0][page], high = HALVES > 1 ? weight[HALVES - 1][page] : make_uint2(0, 0);
#pragma unroll
        for (int i = 0; i < 2; i++)
            tensor_mma<T>(out[i], low.x, high.x, low.y, high.y, value[page][2 * i], value[page][2 * i + 1]);
    }
    __device__ void begin_step()
    {
        float2 other = HALVES > 1 ? factor[HALVES - 1] : make_float2(0, 0);
        rows.add(make_float2(factor[0].x, other.x), make_float2(factor[0].y, other.y));
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i / 4][i % 4] *= i % 4 < 2 ? factor[0].y : other.y;
    }
    /* Half a step's operands are loaded while the half before it is multiplied; after the last step, a slot's old
     * ones. */
    __device__ void add_step(int step)
    {
        int slot = ring_place<SAME_BRINGERS>(step), next = ring_place<SAME_BRINGERS>(step + 1);
        begin_step();
#pragma unroll
        for (int page = 0; page < AHEAD; page++) {
            add(page);
            load(slot, page + AHEAD);
        }
        if (step + 1 < n_steps)
            await(step + 1);
#pragma unroll
        for (int page = AHEAD; page < PAGES; page++) {
            add(page);
            load(next, page - AHEAD);
        }
        __syncwarp();
        if (lane == 0)
            barrier_arrive(shared_address(&sh->empty[slot]));
    }
    __device__ void store()
    {
        if (a.heads.sinks != NULL)
#pragma unroll
            for (int h = 0; h < HALVES; h++)
                rows.best[h] = this->best_of(0, n_steps, h);
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            int row = this->row_of(h);
            float sum = rows.all_lanes_sum(h);
            if (row >= m.n_rows)
                continue;
            float share = rows.share(h, a, m.head0 + row, sum);
            T *to = a.out + ((size_t)m.t * a.heads.n_heads + m.head0 + row) * HD + this->unit0 * 8 + lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < 2; j++)
                *(uint32_t *)(to + j * 8) = tensor_pack<T>(out[j][2 * h] * share, out[j][2 * h + 1] * share);
        }
    }
    /* The last block of an item leaves zeros for the next launch. */
    __device__ void leave()
    {
        unsigned n_before = 0;
        __syncwarp();
        if (lane == 0) {
            __threadfence();
            n_before = atomicAdd(&a.n_arrived[m.index], 1u);
        }
        if (__shfl_sync(0xffffffffu, n_before, 0) + 1 < gridDim.z)
            return;
        for (int step = lane; step < n_steps; step += 32)
            *this->stored_of(step) = 0;
        if (lane == 0)
            a.n_arrived[m.index] = 0;
    }
    __device__ void add_all()
    {
        await(0);
#pragma unroll
        for (int page = 0; page < AHEAD; page++)
            load(0, page);
        for (int step = 0; step < n_steps; step++)
            add_step(step);
        store();
        leave();
    }
};

/* grid: tokens, items of a token, HD / 16. It does not wait for the kernel before it until the end: a step's scores are
 * a sign that what they depend on is complete, values in the cache, too. All blocks of that kernel are running when one
 * of this kernel's begins, so waiting for the scores ends. */
template <typename T, int HD, int HALVES>
__global__ void __launch_bounds__(SAME_THREADS, 3 - HALVES) attention_same_values(attention_args<T> a)
{
    extern __shared__ uint4 shared[];
    same_ring<HD, HALVES> *ring = (same_ring<HD, HALVES> *)shared;
    same_part<T, HD, HALVES> part(a, ring);
    let_next_begin();
    if (part.m.n_rows > 0 && same_divides(part.n_steps, a.max_parts)) {
        ring->open();
        if (threadIdx.x / 32 < SAME_BRINGERS)
            same_bringer<T, HD, HALVES>(a, ring).bring_all();
        else
            same_adder<T, HD, HALVES>(a, ring).add_all();
    }
    wait_for_previous();
}

#endif
