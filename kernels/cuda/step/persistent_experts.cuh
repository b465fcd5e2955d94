/* kernels/cuda/step/persistent_experts.cuh - the persistent kernel for models with a mixture of experts, otherwise as
 * the narrow one (persistent_kernel.cuh). The router is a product like others, whose logits go to all blocks; each
 * makes the choice (persistent_choice.cuh). Results of the first product are numbered through the chosen experts, in
 * order, and distributed over the blocks; in the second one a block has the same rows of every chosen expert, and sums
 * up their outputs: one matrix whose columns are those of all of them. So an expert's weights are read once, however
 * many tokens have it. */
#ifndef STEP_PERSISTENT_EXPERTS_CUH
#define STEP_PERSISTENT_EXPERTS_CUH

#include "kernels/cuda/step/persistent_experts_first.cuh"
#include "kernels/cuda/step/persistent_experts_requests.cuh"
#include "kernels/cuda/step/persistent_experts_route.cuh"
#include "kernels/cuda/step/persistent_experts_second.cuh"
#include "kernels/cuda/step/persistent_latent.cuh"

/* As in the wide kernel: the loading thread needs more registers than the narrow one's. */
#define EXPERT_STREAM_REGISTERS 64
#define EXPERT_CHAIN_REGISTERS  104
static_assert(CHAIN_THREADS * EXPERT_CHAIN_REGISTERS + STREAM_THREADS * EXPERT_STREAM_REGISTERS <=
                  (CHAIN_THREADS + STREAM_THREADS) * BLOCK_REGISTERS,
              "a warp that requests more registers than are free waits for ever");

/* The experts' input and choice for one token. */
template <typename T, chain_form FORM, norm_kind NORM>
__device__ static inline void expert_open_lone(const expert_args &a, const chain_shared &sh, const chain_layer &layer,
                                               const expert_layer &more, uint32_t epoch)
{
    const chain_product &p = a.product[2];
    const T bias = route_bias<T>(a, more);
    if constexpr (FORM != FORM_NONE) {
        const recoded_units<T, FORM> units(a, sh);
        input_normed_any<T, NORM>(a, sh, units, a.x[p.x], epoch, layer.norm[p.norm], layer.norm_bias[p.norm]);
        units.store_rest();
    } else {
        chain_input<T, FORM_NONE, NORM>(a, sh, p, expert_choice_of(a, sh)->router, layer, epoch);
    }
    route_await_logits(a, sh, expert_choice_of(a, sh), to_float(bias));
    expert_choose_lone<FORM>(a, sh);
    expert_keep_biases<T>(a, sh, layer.bias[3]);
}

/* The MLP of one layer. */
template <typename T, int SLOTS, chain_form FORM, bool FULL, norm_kind NORM>
__device__ __forceinline__ static void expert_step(weight_ring<SLOTS> &ring, const expert_args &a,
                                                   const chain_shared &sh, const chain_layer &layer,
                                                   const expert_layer &more, chain_count &count, uint32_t epoch)
{
    bool routed = !FULL || more.routed;
    if constexpr (CHAIN_LONE) {
        expert_open_lone<T, FORM, NORM>(a, sh, layer, more, epoch);
    } else {
        chain_input<T, FORM_NONE, NORM>(a, sh, a.product[2], expert_choice_of(a, sh)->router, layer, epoch);
        if (routed)
            expert_router<T>(ring, a, sh, more, count, epoch);
        else if (threadIdx.x == 0)
            expert_choice_of(a, sh)->make_none();
        if constexpr (FORM != FORM_NONE)
            expert_recode<T, FORM>(a, sh);
        if (FULL && more.gate != nullptr)
            expert_weigh_common<T>(a, sh, more.gate);
        if (FULL && more.common >= 0) /* while the logits are in flight */
            expert_common_first<T>(ring, a, sh, more.common, count, epoch);
        if (routed) {
            expert_choose<FULL, FORM>(a, sh, more, epoch);
            expert_keep_biases<T>(a, sh, layer.bias[3]);
        }
    }
    if (routed) {
        if (expert_choice_of(a, sh)->first.done()) /* else a tile's barrier says that everybody has read what the next
                                                      input replaces */
            chain_sync();
        expert_first_any<T, SLOTS, FORM>(ring, a, sh, layer, count, epoch);
        if (expert_handed<FORM, FULL>(a) && threadIdx.x == 0) /* after a barrier */
            barrier_arrive(shared_address(&expert_choice_of(a, sh)->firsts));
    }
    expert_second<T, SLOTS, FORM, FULL>(ring, a, sh, layer, more, count, epoch);
    count.layers++;
}

/* The product for the latents, like that for the queries, from the same input. */
template <typename T, int SLOTS>
__device__ static inline void latent_step(weight_ring<SLOTS> &ring, const expert_args &a, const chain_shared &sh,
                                          chain_count &count, uint32_t epoch)
{
    const chain_share share = latent_tables_of(a, sh)->share;
    for (int tile = 0; tile < share.n_tiles; tile++, count.tiles++) {
        float *partial = expert_partial(a, sh, count);
        int t = expert_turn(count.tiles % CHAIN_WARPS), pair = threadIdx.x % FINISH_LANES,
            part = threadIdx.x % 32 / FINISH_LANES;
        int row = share.begin + tile * share.tile_rows + pair * 2;
        chain_tile<T>(ring, a, sh, share.n_steps, chain_tile_rows(share, tile), false, partial);
        chain_sync();
        if (t >= a.n_tokens)
            continue;
        float2 s = expert_sums(a, partial, t, pair, part);
        if (part == 0 && row < share.end)
            word_publish(a.latents.words + (t * LATENT_CACHED + row) / 2, word_pair<T>(s.x, s.y, epoch));
    }
}

/* By all threads of the block, before they meet. */
template <chain_form FORM, bool LATENT>
__device__ static inline void expert_open(const expert_args &a, const chain_shared &sh)
{
    expert_choice *c = expert_choice_of(a, sh);
    chain_open_tables(a, sh);
    for (int i = threadIdx.x; i < a.n_layers; i += CHAIN_THREADS + STREAM_THREADS)
        sh.at<expert_layer>(a.more_at)[i] = a.more[i];
    if (LATENT)
        latent_open_tables(a, sh);
    if (threadIdx.x == 0) {
        barrier_open(shared_address(&c->made), 1);
        if constexpr (CHAIN_LONE && FORM != FORM_NONE)
            for (int i = 0; i < 2; i++) {
                barrier_open(shared_address(&c->told[i]), expert_busy<FORM>(a.product[2].cols));
                barrier_open(shared_address(&c->read[i]), 1);
            }
        barrier_open(shared_address(&c->firsts), 1);
        barriers_opened();
        for (uint32_t &taken : c->taken)
            taken = 0;
        c->n = -1;
        for (uint32_t &handed : c->handed)
            handed = 0;
        c->router = chain_make_share(a.router, (int)blockIdx.x, (int)gridDim.x);
        for (int i = 0; i < COMMON_MLPS; i++)
            c->common[i] = chain_make_share(a.common[i].in, (int)blockIdx.x, (int)gridDim.x);
    }
}

/* The stream of weights. Called by all threads of the loading warps. */
template <int SLOTS, chain_form FORM, expert_scope SCOPE>
__device__ __forceinline__ static void expert_stream(const expert_args &a, const chain_shared &sh)
{
    const int thread = (int)threadIdx.x - CHAIN_THREADS;
    if constexpr (CHAIN_LONE || FORM != FORM_NONE) {
        if (thread == 0)
            stream_expert_layers<SLOTS, FORM>(a, sh);
        else if (thread == STREAM_THREADS - 32) /* the warps between them: see expert_hand_on */
            dense_ahead<FORM>(a, sh);
    } else if (thread == 0) {
        stream_expert_weights<SLOTS, SCOPE>(a, sh);
    }
}

/* grid: one block a multiprocessor, all resident. SLOTS: of the ring. FORM: of the experts' weights; all but
 * SCOPE_PLAIN are for 16-bit ones only. HD: see chain_attention; NORM: chain_input's OTHER; LONE: CHAIN_LONE */
template <typename T, int SLOTS, chain_form FORM, expert_scope SCOPE, int HD, norm_kind NORM, int LONE>
__global__ void __launch_bounds__(CHAIN_THREADS + STREAM_THREADS, 1)
    persistent_experts_kernel(const __grid_constant__ expert_args a)
{
    constexpr bool FULL = SCOPE != SCOPE_PLAIN, LATENT = SCOPE == SCOPE_LATENT;
    extern __shared__ __align__(1024) char shared[];
    const chain_shared sh = {shared, (chain_share *)(shared + a.at.shares)};
    weight_ring<SLOTS> ring(a, sh);
    chain_count count = {};
    if (threadIdx.x == 0) {
        ring.open();
        *sh.at<int>(a.at.hold) = 0;
        if constexpr (CHAIN_LONE || FORM != FORM_NONE)
            *dense_requested(a, sh) = 0;
    }
    expert_open<FORM, LATENT>(a, sh);
    __syncthreads();
    if (threadIdx.x >= CHAIN_THREADS) {
        give_registers<EXPERT_STREAM_REGISTERS>();
        expert_stream<SLOTS, FORM, SCOPE>(a, sh);
        if constexpr (CHAIN_LONE && FORM == FORM_E4M3)
            if (threadIdx.x >= CHAIN_THREADS + 32)
                expert_hand_on<T, FORM>(a, sh);
        if constexpr (expert_plain<FORM, FULL>())
            if (threadIdx.x >= CHAIN_THREADS + 32 && expert_handed<FORM, FULL>(a))
                expert_hand_in<T>(a, sh);
        return;
    }
    take_registers<EXPERT_CHAIN_REGISTERS>();
    wait_for_previous();
    uint32_t step = a.step[blockIdx.x], epoch = step * (uint32_t)(a.n_layers + 1);
    if constexpr (CHAIN_LONE) {
        route_open(a, sh);
        expert_clear_pairs(a, expert_choice_of(a, sh));
    }
    chain_open_step(a, sh);
    chain_embed<T, false>(a, sh, epoch);
    for (int product = 0; product <= a.n_layers * CHAIN_PRODUCTS; product++) {
        int k = chain_index(a, product);
        const chain_layer &layer = sh.at<chain_layer>(a.at.layers)[product / CHAIN_PRODUCTS];
        epoch += product % CHAIN_PRODUCTS == 0;
        if (k == CHAIN_HEAD && a.n_ranks == 1) /* else NCCL may gather the logits */
            let_next_begin();
        const expert_layer &more = expert_layer_of(a, sh, product / CHAIN_PRODUCTS); /* of the head: none */
        if constexpr (CHAIN_LONE) {
            if (k == 0)
                route_fetch(a, sh, layer.norm[a.product[2].norm], product / CHAIN_PRODUCTS);
            else if (k == 1)
                route_arrive();
        }
        if (k == a.attention_before) {
            if constexpr (LATENT)
                latent_attention<T>(a, sh, layer, latent_layers(a, sh)[product / CHAIN_PRODUCTS], epoch);
            else
                chain_attention<T, false, true, ATTEND_NUMBERS, HD>(a, sh, layer, epoch, more.sinks);
        }
        if (k == 2)
            expert_step<T, SLOTS, FORM, FULL, NORM>(ring, a, sh, layer, more, count, epoch);
        else if (k != 3)
            chain_step<T, SLOTS, expert_dense_form(FORM), NORM>(ring, a, sh, product, k, layer, count, epoch);
        if constexpr (CHAIN_LONE)
            if (k == 1)
                route_add<T>(a, sh, count);
        if constexpr (LATENT)
            if (k == 0)
                latent_step<T>(ring, a, sh, count, epoch);
    }
    if (threadIdx.x == 0)
        a.step[blockIdx.x] = step + 1;
}

#endif
