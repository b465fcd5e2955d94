/* kernels/cuda/step/persistent_experts_requests.cuh - the stream of weights in the persistent kernel for layers with
 * quantised experts, and in kernels for one token also with experts in 16 bits; persistent_experts_stream.cuh for
 * others. All of a layer's experts are requested at one place between the dense weights. The thread that requests
 * weights keeps little: values for which it has no register would be loaded between two requests. The dense weights
 * after a layer's experts are prefetched to L2 by a thread of another warp. Slots of the ring are of variable size if
 * experts are quantised. */
#ifndef STEP_PERSISTENT_EXPERTS_REQUESTS_CUH
#define STEP_PERSISTENT_EXPERTS_REQUESTS_CUH

#include "kernels/cuda/step/persistent_experts_stream.cuh"

/* One step of one tile of a product that needs no choice; or, between two of them, the place of all of a layer's
 * experts. */
struct dense_cursor {
    int layer = -1, kind = OF_FIRST; /* begins before the first layer, as after experts: call leave */
    int tile = 0, step = 0;

    __device__ bool done() const
    {
        return kind == OF_NOTHING;
    }
    __device__ bool at_experts() const
    {
        return kind == OF_FIRST;
    }
    /* The number of the chain's product in a layer; the router has none. */
    __device__ int index() const
    {
        return kind == OF_HEAD ? CHAIN_HEAD : kind;
    }
    __device__ const chain_share &share(const expert_args &a, const chain_shared &sh) const
    {
        return kind == OF_ROUTER ? expert_choice_of(a, sh)->router : sh.share[index()];
    }
    __device__ static int after(int kind)
    {
        if (kind == OF_OUT && !CHAIN_LONE) /* CHAIN_LONE: see persistent_experts_route.cuh */
            return OF_ROUTER;
        return kind == OF_OUT || kind == OF_ROUTER ? OF_FIRST : kind + 1;
    }
    /* Moves to the beginning of the next product of which the block has a share, or to experts. */
    __device__ void leave(const expert_args &a, const chain_shared &sh)
    {
        tile = step = 0;
        do
            if (at_experts())
                kind = ++layer < a.n_layers ? OF_QKV : OF_HEAD;
            else
                kind = after(kind);
        while (!done() && !at_experts() && share(a, sh).n_tiles == 0);
    }
    __device__ void next(const expert_args &a, const chain_shared &sh)
    {
        const chain_share &s = share(a, sh);
        if (++step < s.n_steps)
            return;
        step = 0;
        if (++tile == s.n_tiles)
            leave(a, sh);
    }
    /* The same, past experts. */
    __device__ void next_dense(const expert_args &a, const chain_shared &sh)
    {
        next(a, sh);
        if (at_experts())
            leave(a, sh);
    }
};

/* The contents of a slot with dense weights. They are known before there is room for them, as in stream_boxes. */
struct dense_slot {
    const CUtensorMap *map;
    int row, n, step; /* rows of weights [row, row + n), n even */
    int product;      /* counted through all layers */
    bool grouped;     /* they are codes with scales of groups */

    __device__ dense_slot(const expert_args &a, const chain_shared &sh, const dense_cursor &c)
    {
        const chain_share &share = c.share(a, sh);
        const bool router = c.kind == OF_ROUTER;
        row = share.begin + c.tile * share.tile_rows;
        n = chain_tile_rows(share, c.tile);
        step = c.step;
        product = c.layer * CHAIN_PRODUCTS + (c.kind == OF_HEAD ? 0 : c.kind);
        map = (router ? a.router_maps + c.layer * BOX_SIZES : a.maps + product * BOX_SIZES) + n / 2 - 1;
        grouped = !router && a.group_maps != nullptr && a.product[c.index()].spans > 1;
    }
    /* Makes the compiler compute them here. */
    __device__ void settle() const
    {
        asm volatile("" ::"l"(map), "r"(row), "r"(n), "r"(step));
    }
    /* Calls f(into, map, x, y, z) for the boxes. groups: the place of the scales, of products with DENSE codes */
    template <chain_form DENSE, typename F>
    __device__ void boxes(const expert_args &a, uint32_t into, const group_place &groups, F f) const
    {
        f(into, map, 0, row, step * CHAIN_WARPS);
        if constexpr (DENSE != FORM_NONE)
            if (grouped) /* neither queries nor outputs nor the head are gated */
                group_boxes<DENSE>(a, a.product[1], product, step, row, groups, f);
    }
    template <chain_form DENSE>
    __device__ int bytes(const expert_args &a) const
    {
        int beside = DENSE != FORM_NONE && grouped ? group_bytes(DENSE, true, a.group_zeros) : 0;
        return n * CHAIN_WARPS * 128 + beside;
    }
};

/* The number of dense slots requested, times 16, plus how many of the next ones may be prefetched now. */
__device__ static inline volatile int *dense_requested(const expert_args &a, const chain_shared &sh)
{
    return sh.at<volatile int>(a.at.hold) + 1;
}
static_assert(EXPERT_AHEAD < 16, "see dense_requested");

/* Prefetches dense slots to L2 while the thread that requests them waits. Called by one thread of another warp. */
template <chain_form FORM>
__device__ static inline void dense_ahead(const expert_args &a, const chain_shared &sh)
{
    dense_cursor later;
    int n = 0, seen = 0; /* n: slots before `later` */
    uint32_t since = (uint32_t)clock64();
    later.leave(a, sh);
    if (later.at_experts())
        later.leave(a, sh);
    while (!later.done()) {
        const int now = *dense_requested(a, sh), ahead = n - now / 16;
        if (now != seen) {
            seen = now;
            since = (uint32_t)clock64();
        }
        if (ahead < 0) {
            later.next_dense(a, sh);
            n++;
        } else if (ahead < now % 16 && (uint32_t)clock64() - since >= STREAM_PACE) {
            dense_slot(a, sh, later)
                .boxes<expert_dense_form(FORM)>(
                    a, 0, group_place(),
                    [](uint32_t, const CUtensorMap *map, int x, int y, int z) { box_prefetch(map, x, y, z); });
            later.next_dense(a, sh);
            n++;
            since += STREAM_PACE;
        } else {
            __nanosleep(50);
        }
    }
}

/* The free part of a ring with slots of variable size, one after the other. */
template <int SLOTS>
struct ring_space {
    int at = 0, used = 0, n = 0; /* its beginning; bytes of the slots that may be in use, their number */

    /* Waits for room for `bytes`, aligned to 1024. */
    __device__ void await(const weight_ring<SLOTS> &ring, int bytes, int all)
    {
        for (;;) {
            if (n == 0)
                at = used = 0;
            if (n < SLOTS && used + bytes + (at + bytes > all ? all - at : 0) <= all)
                return;
            const bool wrapped = ring.slot < n;
            const int oldest = wrapped ? ring.slot + SLOTS - n : ring.slot - n;
            barrier_wait(ring.emptied_of(oldest), ring.round ^ wrapped);
            used -= (int)shared_word(ring.size_of(oldest));
            n--;
        }
    }
    /* Takes its beginning for the ring's next slot. Call await before. */
    __device__ int take(const weight_ring<SLOTS> &ring, int bytes, int all)
    {
        bool wraps = at + bytes > all;
        int skipped = wraps ? all - at : 0, place = wraps ? 0 : at;
        shared_keep(ring.place_of(ring.slot), (uint32_t)place);
        shared_keep(ring.size_of(ring.slot), (uint32_t)(bytes + skipped));
        used += bytes + skipped;
        at = place + bytes;
        n++;
        return place;
    }
};

/* Streams weights through the ring. */
template <int SLOTS>
struct expert_requests {
    static constexpr bool PACKED = weight_ring<SLOTS>::PACKED; /* experts are quantised */
    const expert_args &a;
    const uint32_t base;
    weight_ring<SLOTS> ring;
    ring_space<SLOTS> space;
    stream_copies copies;
    int n_dense = 0; /* slots requested */

    __device__ expert_requests(const expert_args &of, const chain_shared &sh)
        : a(of), base(shared_address(sh.base)), ring(of, sh)
    {
    }
    /* Waits for a free slot of `bytes`. */
    __device__ void await(int bytes)
    {
        if constexpr (PACKED)
            space.await(ring, bytes, a.codes.ring);
        else
            barrier_wait(ring.emptied(), ring.round ^ 1);
    }
    /* Takes it, and returns its address. Call await before. */
    __device__ uint32_t take(int bytes)
    {
        if constexpr (PACKED)
            return base + space.take(ring, bytes, a.codes.ring);
        else
            return base + ring.slot * RING_SLOT_BYTES;
    }
    /* Waits until a slot may be requested. lines: rows of 2 KiB that it reads from memory. Returns its address. */
    __device__ uint32_t enter(int bytes, int lines)
    {
        copies.wait_for_room<EXPERT_UNDER_WAY>(ring, lines);
        await(bytes);
        return take(bytes);
    }
    /* All of the slot has been requested. */
    __device__ void leave(uint32_t bytes)
    {
        barrier_expect(ring.filled(), (int)bytes); /* none has ended without this arrival */
        ring.advance();
    }
    /* See dense_requested. */
    __device__ void tell(const chain_shared &sh, int may_prefetch) const
    {
        *dense_requested(a, sh) = n_dense * 16 + may_prefetch;
    }
    template <chain_form DENSE>
    __device__ void dense(const chain_shared &sh, const dense_cursor &now)
    {
        const dense_slot slot(a, sh, now);
        const int bytes = slot.n * CHAIN_WARPS * 128;
        const uint32_t barrier = ring.filled();
        slot.settle();
        copies.wait_for_room<EXPERT_UNDER_WAY>(ring, slot.n);
        tell(sh, EXPERT_AHEAD);
        await(bytes);
        while (stream_held<false>(a, sh))
            ;
        uint32_t into = take(bytes);
        slot.boxes<DENSE>(
            a, into, group_place_of<DENSE>(a, sh, SLOTS, ring.slot),
            [=](uint32_t to, const CUtensorMap *map, int x, int y, int z) { box_copy(to, map, x, y, z, barrier); });
        leave(slot.bytes<DENSE>(a));
        n_dense++;
        tell(sh, 0);
    }
    /* Rows of 2 KiB that `rows` rows of 16-bit weights of a product's step are. */
    __device__ int plain_lines(int product, int rows) const
    {
        int some = min((a.product[product].cols + STEP_COLUMNS - 1) / STEP_COLUMNS, CHAIN_WARPS);
        return (rows * some + CHAIN_WARPS - 1) / CHAIN_WARPS;
    }
    /* As ask_first and ask_second, of 16-bit weights. */
    __device__ void plain_first(const CUtensorMap *map, int n_steps, int row, int n, int up)
    {
        const int all = up >= 0 ? 2 * n : n, lines = plain_lines(2, all);
        for (int step = 0; step < n_steps; step++) {
            const uint32_t barrier = ring.filled(), into = enter(0, lines);
            box_copy(into, map, 0, row, step * CHAIN_WARPS, barrier);
            if (up >= 0)
                box_copy(into + RING_SLOT_BYTES / 2, map, 0, up, step * CHAIN_WARPS, barrier);
            leave((uint32_t)(all * CHAIN_WARPS * 128));
        }
    }
    __device__ void plain_second(const CUtensorMap *maps, int expert, int step, int from, int n)
    {
        const uint32_t barrier = ring.filled();
        int row = expert * a.product[3].rows + from;
        const uint32_t into = enter(0, plain_lines(3, n));
        box_copy(into, maps + n / 2, 0, row, step * CHAIN_WARPS, barrier);
        leave((uint32_t)(n * CHAIN_WARPS * 128));
    }
    /* All steps of a tile of the first product, of codes: n rows from `row` on, and as many ups from `up` on; < 0:
     * there are none. scales: of the matrix */
    __device__ void ask_first(const CUtensorMap *map, const char *scales, int n_steps, int row, int n, int up)
    {
        const int pieces = a.codes.pieces[0], pitch = a.codes.pitch[0], all = up >= 0 ? 2 * n : n;
        const coded_slot slot(n, all - n, up >= 0, pieces, pitch);
        const scale_rows first(row, n, pitch), second(up, n, pitch);
        for (int step = 0; step < n_steps; step++) {
            const uint32_t barrier = ring.filled();
            const uint32_t into = enter(slot.bytes, (all * pieces + CHAIN_WARPS - 1) / CHAIN_WARPS);
            box_copy(into, map, 0, row, step * CHAIN_WARPS, barrier);
            if (up >= 0)
                box_copy(into + slot.second, map, 0, up, step * CHAIN_WARPS, barrier);
            bulk_copy(into + slot.scales, scales + first.from, first.bytes, barrier);
            if (up >= 0)
                bulk_copy(into + slot.up_scales, scales + second.from, second.bytes, barrier);
            leave((uint32_t)(all * pieces * 128) + first.bytes + (up >= 0 ? second.bytes : 0));
        }
    }
    /* From the layer's choice on, for which it waits. */
    __device__ void first(const chain_shared &sh, const expert_choice *c, int layer)
    {
        const CUtensorMap *maps = a.maps + (layer * CHAIN_PRODUCTS + 2) * BOX_SIZES - 1;
        const char *scales = expert_layer_of(a, sh, layer).scales[0];
        const int ffn = a.product[2].rows, turns = expert_in_turns(a) ? 2 : 1, n_steps = sh.share[2].n_steps;
        barrier_wait(shared_address(&c->made), layer & 1);
        tell(sh, 0);
        for (expert_tiles at = c->first; !at.done(); at.next(a)) {
            int row = choice_which(a, c)[at.i] * ffn * 2 + turns * at.row, n = turns * at.n;
            if constexpr (PACKED)
                ask_first(maps + n / 2, scales, n_steps, row, n, turns == 2 ? -1 : row + ffn);
            else
                plain_first(maps + n / 2, n_steps, row, n, turns == 2 ? -1 : row + ffn);
        }
    }
    /* A slot with codes of `some` experts, those of `which`: n and `more` rows from row `from` on. */
    __device__ void ask_second(const CUtensorMap *maps, const char *scales, const int32_t *which, int some, int step,
                               int from, int n, int more)
    {
        const int pieces = a.codes.pieces[1], pitch = a.codes.pitch[1], rows = a.product[3].rows;
        const coded_slot slot(n, more, false, pieces, pitch);
        const uint32_t barrier = ring.filled();
        uint32_t bytes = (uint32_t)(some * (n + more) * pieces * 128);
        int row = which[0] * rows + from;
        uint32_t into = enter(some * slot.bytes, (some * (n + more) * pieces + CHAIN_WARPS - 1) / CHAIN_WARPS);
#pragma unroll 1
        for (int k = 1;; k++, into += slot.bytes) {
            box_copy(into, maps + n / 2, 0, row, step * CHAIN_WARPS, barrier);
            if (more > 0)
                box_copy(into + slot.second, maps + more / 2, 0, row + n, step * CHAIN_WARPS, barrier);
            const scale_rows of(row, n + more, pitch);
            bulk_copy(into + slot.scales, scales + of.from, of.bytes, barrier);
            bytes += of.bytes;
            if (k == some)
                break;
            row = which[k] * rows + from;
        }
        leave(bytes);
    }
    __device__ void second(const chain_shared &sh, const expert_choice *c, int layer)
    {
        const CUtensorMap *maps = a.maps + (layer * CHAIN_PRODUCTS + 3) * BOX_SIZES - 1;
        const char *scales = expert_layer_of(a, sh, layer).scales[1];
        const chain_share &share = sh.share[3];
        const int tiles = PACKED ? a.codes.tiles : 1, teams = PACKED ? a.codes.teams : 1;
        for (int tile = 0; tile < share.n_tiles; tile += tiles) {
            int n = chain_tile_rows(share, tile), from = share.begin + tile * share.tile_rows;
            int more = tiles > 1 && tile + 1 < share.n_tiles ? chain_tile_rows(share, tile + 1) : 0;
            for (int i = 0; i < c->n; i += teams)
                for (int step = 0; step < share.n_steps; step++)
                    if constexpr (PACKED)
                        ask_second(maps, scales, choice_which(a, c) + i, min(teams, c->n - i), step, from, n, more);
                    else
                        plain_second(maps, choice_which(a, c)[i], step, from, n);
        }
    }
};

/* See stream_weights. */
template <int SLOTS, chain_form FORM>
__device__ static inline void stream_expert_layers(const expert_args &a, const chain_shared &sh)
{
    expert_requests<SLOTS> requests(a, sh);
    dense_cursor now;
    const expert_choice *c = expert_choice_of(a, sh);
    for (now.leave(a, sh); !now.done();) {
        if (now.tile + now.step == 0)
            expert_announce_after<FORM, SCOPE_PLAIN>(a, sh, now.layer, now.kind);
        if (now.at_experts()) {
            requests.tell(sh, 1); /* more would delay the experts' weights */
            requests.first(sh, c, now.layer);
            requests.second(sh, c, now.layer);
            now.leave(a, sh);
        } else {
            requests.template dense<expert_dense_form(FORM)>(sh, now);
            now.next(a, sh);
        }
    }
    requests.tell(sh, 0);
}

#endif
