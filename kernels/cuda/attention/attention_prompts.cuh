/* kernels/cuda/attention/attention_prompts.cuh - attention of tokens that have neighbours of their own sequence in
 * the batch, on devices whose warpgroups multiply (compute capability 9.0a). The query heads that share a KV head lie
 * in the rows of a tile. A block of the grid takes one tile after the other, those with the most keys first: one warp
 * loads keys and values by the tensor memory accelerator, three copy the next tile's queries, and two warpgroups of 64
 * rows take turns at the tensor cores, so that the softmax of one hides behind the products of the other, and behind
 * its own products with the previous keys. Keys are processed in steps that begin at multiples of STEP from position 0,
 * the last step first. A step without visible keys leaves a row's sums unchanged, bit for bit, so a token's result
 * depends neither on its neighbours nor on how its prompt was cut.
 *
 * SHARED: the tokens of a tile are single ones of sequences that begin with the same blocks (struct prefixes), and the
 * keys are those of these blocks, or of a part of them. The sums are stored for attention_many.cuh, which adds each
 * token's own keys. */
#ifndef ATTENTION_ATTENTION_PROMPTS_CUH
#define ATTENTION_ATTENTION_PROMPTS_CUH

#include "kernels/cuda/attention/attention_prompts_loads.cuh"
#include "kernels/cuda/attention/attention_prompts_softmax.cuh"

/* A multiplying warpgroup. */
template <typename T, int HD, bool SHARED>
struct prompt_worker {
    using layout = prompt_layout<HD>;
    using result = std::conditional_t<SHARED, float, T>;
    static const int STEP = layout::STEP;
    prompt_shared<T, HD> *sh;
    const prompt_args<T> *p;
    int warpgroup, done; /* done: steps so far, of all units */
    float out[HD / 2], s[STEP / 2];
    uint32_t weight[STEP / 4];
    prompt_rows<STEP> rows;

    __device__ __forceinline__ void release(uint64_t *empty)
    {
        if (threadIdx.x % 32 == 0)
            barrier_arrive(shared_address(empty));
    }
    /* Scores of a step. */
    __device__ __forceinline__ void multiply_keys(int tile, int place)
    {
        uint64_t q =
            warpgroup_matrix<layout::SPAN>(shared_address(sh->query[tile]) + warpgroup * 128 * HD, 16, layout::ACROSS);
        uint64_t k = warpgroup_matrix<layout::SPAN>(shared_address(sh->k[place]), 16, layout::ACROSS);
        warpgroup_begin();
        warpgroup_product<T, false>(s, q, k);
#pragma unroll
        for (int i = 1; i < HD / 16; i++)
            warpgroup_product<T, true>(s, q + layout::columns(i) / 16, k + layout::columns(i) / 16);
        warpgroup_commit();
    }
    __device__ __forceinline__ void multiply_values(int place)
    {
        uint64_t v = warpgroup_matrix<layout::SPAN>(shared_address(sh->v[place]), layout::ALONG, layout::ACROSS);
        warpgroup_begin();
#pragma unroll
        for (int i = 0; i < STEP / 16; i++)
            warpgroup_product<T>(out, weight + i * 4, v + i * (layout::PAGE / 16));
        warpgroup_commit();
    }
    __device__ __forceinline__ void softmax(const prompt_unit &u, int step, unsigned present, float (&keep)[2])
    {
        int key0 = (u.last_step - step) * STEP, window = p->a.heads.window;
        if (p->a.heads.alibi_slopes != NULL)
            rows.bias(s, key0);
        if (key0 + STEP - 1 > u.pos0)
            rows.mask_later(s, key0);
        if (window > 0 && key0 <= u.last - window)
            rows.mask_earlier(s, key0);
        if (~present != 0)
            rows.mask_absent(s, present);
        rows.weigh(s, p->a.heads.scale * ATTENTION_LOG2_E, keep);
    }
    __device__ __forceinline__ void pack_weights()
    {
#pragma unroll
        for (int i = 0; i < STEP / 4; i++)
            weight[i] = tensor_pack<T>(s[2 * i], s[2 * i + 1]);
    }
    __device__ __forceinline__ void scale_sums(const float (&keep)[2])
    {
#pragma unroll
        for (int i = 0; i < HD / 2; i++)
            out[i] *= keep[i / 2 % 2];
    }
    /* The keys of the step after the one at `place` or, after the last one, its own values. */
    __device__ __forceinline__ void await_next(bool last, int step, int place)
    {
        int next = done + step + !last;
        uint64_t *full = last ? &sh->v_full[place] : &sh->k_full[ring_place<PROMPT_STAGES>(next)];
        barrier_wait(shared_address(full), ring_phase<PROMPT_STAGES>(next));
    }
    __device__ __forceinline__ void attend(const prompt_unit &u, int tile)
    {
        float keep[2];
        int place = ring_place<PROMPT_STAGES>(done);
        barrier_wait(shared_address(&sh->k_full[place]), ring_phase<PROMPT_STAGES>(done));
        unsigned present = sh->present[place];
        multiply_keys(tile, place);
        warpgroup_wait<0>();
        warpgroup_results(s);
        release(&sh->k_empty[place]);
        softmax(u, 0, present, keep);
        pack_weights();
#pragma unroll
        for (int i = 0; i < HD / 2; i++)
            out[i] = 0;
        await_next(u.n_steps == 1, 0, place);
        for (int step = 1; step < u.n_steps; step++) {
            int v_place = place;
            place = ring_place<PROMPT_STAGES>(done + step);
            present = sh->present[place];
            my_turn();
            multiply_keys(tile, place);
            barrier_wait(shared_address(&sh->v_full[v_place]), ring_phase<PROMPT_STAGES>(done + step - 1));
            multiply_values(v_place);
            your_turn();
            warpgroup_wait<1>();
            warpgroup_results(s);
            release(&sh->k_empty[place]);
            softmax(u, step, present, keep);
            warpgroup_results(s);
            /* Its branches keep the compiler from waiting for the values' products before the softmax. */
            await_next(step + 1 == u.n_steps, step, place);
            warpgroup_wait<0>(); /* by all warps of the warpgroup at the same instruction, so outside of any branch */
            warpgroup_results(out);
            if (__any_sync(0xffffffffu, keep[0] != 1 || keep[1] != 1))
                scale_sums(keep);
            release(&sh->v_empty[v_place]);
            pack_weights();
        }
        release(&sh->query_empty[tile]);
        multiply_values(place);
        warpgroup_wait<0>();
        warpgroup_results(out);
        release(&sh->v_empty[place]);
        done += u.n_steps;
    }
    /* The warpgroups take turns with their products; the second one lets the first begin. */
    __device__ __forceinline__ void my_turn()
    {
        asm volatile("bar.sync %0, 256;" ::"r"(PROMPT_TURN + warpgroup) : "memory");
    }
    __device__ __forceinline__ void your_turn()
    {
        asm volatile("bar.arrive %0, 256;" ::"r"(PROMPT_TURN + 1 - warpgroup) : "memory");
    }
    /* The tile's row for this thread's row i of two. */
    __device__ __forceinline__ int row_of(int i) const
    {
        return warpgroup * 64 + (int)threadIdx.x % 128 / 32 * 16 + (int)threadIdx.x % 32 / 4 + i * 8;
    }
    /* The place of row i; NULL: none. */
    __device__ __forceinline__ result *find_row(const prompt_unit &u, int i)
    {
        const attention_args<T> &a = p->a;
        int token = row_of(i) / p->packed, head = row_of(i) % p->packed;
        if (token >= u.n_tokens || head >= u.n_heads) {
            rows.begin(i, a, {0, -1}, u.head0);
            return NULL;
        }
        size_t row = (size_t)(u.t0 + token) * a.heads.n_heads + u.head0 + head;
        if constexpr (SHARED) {
            rows.begin(i, a, {0, u.last}, u.head0 + head);
            return a.shared + (row * a.shared_parts + u.part) * HD;
        } else {
            rows.begin(i, a, visible(a, u.slot, u.pos0 + token), u.head0 + head);
            return a.out + row * HD;
        }
    }
    /* attention_many.cuh goes on with these sums. */
    __device__ __forceinline__ void leave(float *to, int i, float sum)
    {
#pragma unroll
        for (int j = 0; j < HD / 8; j++)
            *(float2 *)(to + j * 8 + threadIdx.x % 4 * 2) = make_float2(out[j * 4 + 2 * i], out[j * 4 + 2 * i + 1]);
        if (threadIdx.x % 4 == 0)
            p->a.shared_sums[(to - p->a.shared) / HD] =
                make_float2(rows.best[i] * p->a.heads.scale * ATTENTION_LOG2_E, sum);
    }
    __device__ __forceinline__ void store(const prompt_unit &u, result *to, int i)
    {
        float sum = rows.all_lanes_sum(i);
        if (!to)
            return;
        if constexpr (SHARED) {
            leave(to, i, sum);
        } else {
            float share = rows.share(i, p->a, u.head0 + row_of(i) % p->packed, sum);
#pragma unroll
            for (int j = 0; j < HD / 8; j++)
                *(uint32_t *)(to + j * 8 + threadIdx.x % 4 * 2) =
                    tensor_pack<T>(out[j * 4 + 2 * i] * share, out[j * 4 + 2 * i + 1] * share);
        }
    }
    __device__ __forceinline__ void work()
    {
        done = 0;
        if (warpgroup == 1)
            your_turn();
        for (int i = 0;; i++) {
            int tile = ring_place<layout::TILES>(i);
            barrier_wait(shared_address(&sh->query_full[tile]), ring_phase<layout::TILES>(i));
            prompt_unit u = sh->unit[tile];
            __syncwarp(); /* before one lane signals for all that it may be overwritten */
            if (u.n_tokens == 0)
                return;
            result *to[2] = {find_row(u, 0), find_row(u, 1)};
            if (u.n_steps > 0)
                attend(u, tile);
            else { /* a bad tiling */
#pragma unroll
                for (int j = 0; j < HD / 2; j++)
                    out[j] = 0;
                release(&sh->query_empty[tile]);
            }
            store(u, to[0], 0);
            store(u, to[1], 1);
        }
    }
};

template <typename T, int HD>
__device__ static inline void open_barriers(prompt_shared<T, HD> *sh)
{
    for (int i = 0; i < prompt_layout<HD>::TILES; i++) {
        barrier_open(shared_address(&sh->unit_full[i]), 1);
        barrier_open(shared_address(&sh->query_full[i]), PROMPT_LOADERS);
        barrier_open(shared_address(&sh->query_empty[i]), 4 * PROMPT_WARPGROUPS + 1);
    }
    for (int i = 0; i < PROMPT_STAGES; i++) {
        barrier_open(shared_address(&sh->k_full[i]), 1);
        barrier_open(shared_address(&sh->v_full[i]), 1);
        barrier_open(shared_address(&sh->k_empty[i]), 4 * PROMPT_WARPGROUPS);
        barrier_open(shared_address(&sh->v_empty[i]), 4 * PROMPT_WARPGROUPS);
    }
    barriers_opened();
}

/* grid: as many blocks as fit on the device at once */
template <typename T, int HD, bool SHARED>
__global__ void __launch_bounds__(PROMPT_THREADS, 1)
    attention_prompts(const __grid_constant__ prompt_args<T> p, const __grid_constant__ CUtensorMap k_map,
                      const __grid_constant__ CUtensorMap v_map)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ uint4 shared[];
    uint32_t off = (PROMPT_ALIGN - shared_address(shared) % PROMPT_ALIGN) % PROMPT_ALIGN;
    prompt_shared<T, HD> *sh = (prompt_shared<T, HD> *)((unsigned char *)shared + off);
    int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        open_barriers<T, HD>(sh);
        box_map_prefetch(&k_map);
        box_map_prefetch(&v_map);
    }
    __syncthreads();
    wait_for_previous();
    if (warpgroup == 0) {
        give_registers<56>();
        if (threadIdx.x < 32) {
            prompt_bringer<T, HD> bringer = {sh, &p, &k_map, &v_map};
            bringer.work();
        } else {
            bring_queries<T, HD, SHARED>(sh, p, (int)threadIdx.x - 32);
        }
    } else {
        take_registers<224>();
        prompt_worker<T, HD, SHARED> worker;
        worker.sh = sh;
        worker.p = &p;
        worker.warpgroup = warpgroup - 1;
        worker.work();
    }
#endif
}

#endif
