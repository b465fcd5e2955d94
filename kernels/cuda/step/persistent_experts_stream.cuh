/* kernels/cuda/step/persistent_experts_stream.cuh - the stream of weights in the persistent kernel for layers with
 * experts, as persistent_stream.cuh for dense layers. A block knows which experts' weights it needs only after the
 * router's choice. Until then weights of the next layer that do not depend on a choice are prefetched to L2. (Quantised
 * experts, and kernels for one token: persistent_experts_requests.cuh.) */
#ifndef STEP_PERSISTENT_EXPERTS_STREAM_CUH
#define STEP_PERSISTENT_EXPERTS_STREAM_CUH

#include "kernels/cuda/step/persistent_experts_scales.cuh"
#include "kernels/cuda/step/persistent_latent_tables.cuh"
#include "kernels/cuda/step/persistent_stream.cuh"

#define EXPERT_AHEAD     8  /* maximum slots prefetched to L2, as STREAM_AHEAD */
#define EXPERT_UNDER_WAY 36 /* rows of 2 KiB at once, as STREAM_UNDER_WAY: three slots of an expert of 768 columns */

/* The weights of a layer in order of execution, except for OF_LATENT's, which follow OF_QKV's. OF_COMMON: the shared
 * MLP's first product; OF_SECOND: those of the chosen experts and of the shared MLP, tile by tile. */
enum expert_kind { OF_QKV, OF_OUT, OF_ROUTER, OF_COMMON, OF_FIRST, OF_SECOND, OF_HEAD, OF_NOTHING, OF_LATENT };
static_assert(OF_HEAD == EXPERT_STAGES, "the head follows the last layer");

/* One step of one tile: the contents of a slot. */
template <expert_scope SCOPE>
struct expert_cursor {
    static constexpr bool FULL = SCOPE != SCOPE_PLAIN, LATENT = SCOPE == SCOPE_LATENT;
    int layer, kind;
    int tile, step, which; /* which: of the second products, by index */
    struct expert_tiles first;
    const CUtensorMap *map;
    int row, n, up;      /* rows of weights [row, row + n), n even; and as many from `up` on; -1: none */
    int n_steps, pieces; /* pieces: warps with columns, in the steps of a second product */

    /* known: number of layers with a known choice */
    __device__ bool pending(int known) const
    {
        return kind == OF_FIRST && layer >= known;
    }
    __device__ bool depends() const
    {
        return kind == OF_FIRST || kind == OF_SECOND;
    }
    __device__ bool done() const
    {
        return kind == OF_NOTHING;
    }
    /* The number of the chain's product; latents, the router and the shared MLP have none. */
    __device__ static int product_of(int kind)
    {
        if (LATENT && kind == OF_LATENT)
            return 0;
        return kind == OF_HEAD ? CHAIN_HEAD : kind == OF_FIRST ? 2 : kind == OF_SECOND ? 3 : kind;
    }
    __device__ static int after(int kind)
    {
        if (LATENT && (kind == OF_QKV || kind == OF_LATENT))
            return kind == OF_QKV ? OF_LATENT : OF_OUT;
        return !FULL && kind == OF_ROUTER ? OF_FIRST : kind + 1;
    }
    /* The index of the layer's shared MLP in expert_args; < 0: none. */
    __device__ int common(const expert_args &a, const chain_shared &sh) const
    {
        return FULL ? expert_layer_of(a, sh, layer).common : -1;
    }
    __device__ int n_seconds(const expert_args &a, const chain_shared &sh) const
    {
        return expert_choice_of(a, sh)->n + (common(a, sh) >= 0);
    }
    /* OF_COMMON's exists only in layers that have one. */
    __device__ const chain_share &share_of(const expert_args &a, const chain_shared &sh) const
    {
        if constexpr (FULL)
            if (kind == OF_COMMON)
                return expert_choice_of(a, sh)->common[common(a, sh)];
        if constexpr (LATENT)
            if (kind == OF_LATENT)
                return latent_tables_of(a, sh)->share;
        return kind == OF_ROUTER ? expert_choice_of(a, sh)->router : sh.share[product_of(kind)];
    }
    /* Rows [row, row + n) of the maps from `maps` on. */
    __device__ void take(const CUtensorMap *maps, int first_row, int n_rows)
    {
        row = first_row;
        n = n_rows;
        up = -1;
        map = maps + n / 2 - 1;
    }
    /* A tile of a second product. */
    __device__ void enter_second(const expert_args &a, const chain_shared &sh)
    {
        const expert_choice *c = expert_choice_of(a, sh);
        const chain_share &share = sh.share[3];
        int first_row = share.begin + tile * share.tile_rows, n_rows = chain_tile_rows(share, tile);
        if constexpr (FULL) {
            bool is_expert = which < c->n;
            const expert_common &p = a.common[is_expert ? 0 : common(a, sh)];
            n_steps = is_expert ? share.n_steps : p.out_steps;
            pieces = min((is_expert ? a.product[3].cols : p.in.rows) / STEP_COLUMNS, CHAIN_WARPS);
            if (!is_expert) {
                take(a.common_maps + (layer * 2 + 1) * BOX_SIZES, first_row, n_rows);
                return;
            }
        }
        take(a.maps + (layer * CHAIN_PRODUCTS + 3) * BOX_SIZES,
             choice_which(a, c)[which] * a.product[3].rows + first_row, n_rows);
    }
    /* A tile of the experts' products. */
    __device__ void enter_expert(const expert_args &a, const chain_shared &sh)
    {
        const expert_choice *c = expert_choice_of(a, sh);
        const CUtensorMap *maps = a.maps + (layer * CHAIN_PRODUCTS + 2) * BOX_SIZES;
        int ffn = a.product[2].rows;
        if (kind == OF_SECOND) {
            enter_second(a, sh);
        } else {
            int rows = choice_which(a, c)[first.i] * ffn * 2;
            bool turns = expert_in_turns(a);
            take(maps, rows + (turns ? 2 : 1) * first.row, (turns ? 2 : 1) * first.n);
            up = turns ? -1 : row + ffn;
        }
    }
    __device__ void enter(const expert_args &a, const chain_shared &sh)
    {
        if (depends()) {
            enter_expert(a, sh);
            return;
        }
        const chain_share &share = share_of(a, sh);
        const CUtensorMap *maps = a.maps + (layer * CHAIN_PRODUCTS + (kind == OF_HEAD ? 0 : kind)) * BOX_SIZES;
        if (kind == OF_ROUTER)
            maps = a.router_maps + layer * BOX_SIZES;
        else if (FULL && kind == OF_COMMON)
            maps = a.common_maps + layer * 2 * BOX_SIZES;
        else if (LATENT && kind == OF_LATENT)
            maps = a.latents.maps + layer * BOX_SIZES;
        take(maps, share.begin + tile * share.tile_rows, chain_tile_rows(share, tile));
        if constexpr (FULL)
            if (kind == OF_COMMON)
                up = row + a.common[common(a, sh)].in.rows;
    }
    /* Is there something of this kind for the block? */
    __device__ bool begin(const expert_args &a, const chain_shared &sh)
    {
        if (kind == OF_ROUTER && (CHAIN_LONE || (FULL && !expert_layer_of(a, sh, layer).routed)))
            return false; /* CHAIN_LONE: see persistent_experts_route.cuh */
        if (kind == OF_COMMON && common(a, sh) < 0)
            return false;
        n_steps = share_of(a, sh).n_steps;
        if (kind == OF_FIRST) {
            first = expert_choice_of(a, sh)->first;
            return !first.done();
        }
        return share_of(a, sh).n_tiles > 0 && (kind != OF_SECOND || n_seconds(a, sh) > 0);
    }
    /* Moves to the beginning of these weights, or of the next ones that the block needs; or to the first unknown
     * choice. */
    __device__ void open(const expert_args &a, const chain_shared &sh, int of_layer, int of_kind, int known)
    {
        layer = of_layer;
        kind = of_kind;
        tile = step = which = 0;
        for (;;) {
            if (kind == OF_HEAD && layer < a.n_layers) {
                layer++;
                kind = OF_QKV;
            }
            if (layer == a.n_layers)
                kind = kind == OF_QKV ? OF_HEAD : OF_NOTHING;
            if (done() || pending(known))
                return;
            if (begin(a, sh))
                break;
            kind = after(kind);
        }
        enter(a, sh);
    }
    /* Is there another tile of this kind? */
    __device__ bool next_tile(const expert_args &a, const chain_shared &sh)
    {
        if (kind == OF_FIRST) {
            first.next(a);
            return !first.done();
        }
        if (kind == OF_SECOND && ++which < n_seconds(a, sh))
            return true;
        which = 0;
        return ++tile < share_of(a, sh).n_tiles;
    }
    __device__ void next(const expert_args &a, const chain_shared &sh, int known)
    {
        if (++step < n_steps)
            return;
        step = 0;
        if (!next_tile(a, sh))
            open(a, sh, layer, after(kind), known);
        else if (depends())
            enter_expert(a, sh);
        else
            enter(a, sh);
    }
    /* Calls f(into, map, x, y, z) for the slot's boxes of weights. Columns are multiples of STEP_COLUMNS. */
    template <typename F>
    __device__ void boxes(uint32_t into, F f) const
    {
        f(into, map, 0, row, step * CHAIN_WARPS);
        if (up >= 0)
            f(into + RING_SLOT_BYTES / 2, map, 0, up, step * CHAIN_WARPS);
    }
    /* Rows of 2 KiB that the slot reads from memory. */
    __device__ int lines(const expert_args &a) const
    {
        int rows = up >= 0 ? 2 * n : n;
        const chain_product &p = a.product[product_of(kind)];
        int piece = STEP_COLUMNS * p.spans, some = (p.cols + piece - 1) / piece;
        if (FULL && kind == OF_SECOND)
            some = pieces;
        return depends() ? (rows * min(some, CHAIN_WARPS) + CHAIN_WARPS - 1) / CHAIN_WARPS : rows;
    }
};

/* Prefetches the maps of these weights' boxes; for the experts' first product, those of all heights. */
template <chain_form FORM>
__device__ static inline void expert_announce(const expert_args &a, const chain_shared &sh, int layer, int kind)
{
    if (layer == a.n_layers) {
        if (kind == OF_QKV)
            stream_announce<false, expert_dense_form(FORM)>(a, sh, layer * CHAIN_PRODUCTS);
        return;
    }
    const CUtensorMap *maps = a.maps + layer * CHAIN_PRODUCTS * BOX_SIZES;
    if (kind == OF_ROUTER) {
        box_map_prefetch(a.router_maps + layer * BOX_SIZES);
    } else if (kind == OF_COMMON) {
        const CUtensorMap *common = a.common_maps + layer * 2 * BOX_SIZES;
        box_map_prefetch(common + CHAIN_OCTET / 2 - 1);
        box_map_prefetch(common + BOX_SIZES + CHAIN_ROWS / 2 - 1);
    } else if (kind == OF_FIRST) {
        for (int n = 2, turns = expert_in_turns(a) ? 2 : 1; n <= CHAIN_OCTET; n += 2)
            box_map_prefetch(maps + 2 * BOX_SIZES + turns * n / 2 - 1);
    } else if (kind == OF_SECOND) {
        stream_announce<false, FORM_NONE>(a, sh, layer * CHAIN_PRODUCTS + 3);
    } else {
        stream_announce<false, expert_dense_form(FORM)>(a, sh, layer * CHAIN_PRODUCTS + kind);
    }
}

/* Prefetches the next kind's maps as the weights of this kind begin. */
template <chain_form FORM, expert_scope SCOPE>
__device__ static inline void expert_announce_after(const expert_args &a, const chain_shared &sh, int layer, int kind)
{
    const bool FULL = SCOPE != SCOPE_PLAIN, LATENT = SCOPE == SCOPE_LATENT;
    if (LATENT && kind == OF_QKV)
        latent_prefetch_weights(a, sh, layer);
    if (LATENT && kind == OF_OUT)
        latent_announce(a, sh, layer + 1);
    if (kind == OF_QKV) {
        expert_announce<FORM>(a, sh, layer, OF_OUT);
        if (!CHAIN_LONE)
            expert_announce<FORM>(a, sh, layer, OF_ROUTER);
        if (FULL && layer < a.n_layers && expert_layer_of(a, sh, layer).common >= 0)
            expert_announce<FORM>(a, sh, layer, OF_COMMON);
        expert_announce<FORM>(a, sh, layer, OF_FIRST);
    } else if (kind == OF_OUT) {
        expert_announce<FORM>(a, sh, layer, OF_SECOND);
        expert_announce<FORM>(a, sh, layer + 1, OF_QKV);
    }
}

/* The slots prefetched to L2 before there is room for them. */
template <expert_scope SCOPE>
struct expert_lookahead {
    struct expert_cursor<SCOPE> later;
    int n;       /* slots between the next one and `later`, less those of skipped experts */
    int skipped; /* the layer whose experts were skipped, because the choice was unknown; -1: none */

    __device__ void restart(const expert_cursor<SCOPE> &now)
    {
        later = now;
        n = 0;
        skipped = -1;
    }
    /* Prefetches one more slot, if it is time for one. since: the clock at the last one. */
    __device__ void advance(const expert_args &a, const chain_shared &sh, const expert_cursor<SCOPE> &now, int known,
                            uint32_t &since)
    {
        if (n >= EXPERT_AHEAD || (uint32_t)clock64() - since < STREAM_PACE)
            return;
        /* Experts keep the memory busy: until they are requested, at most one slot of the next layer is prefetched. */
        if (now.depends() && !later.depends())
            return;
        if (later.pending(known)) {
            if (skipped >= now.layer)
                return;
            skipped = later.layer;
            later.open(a, sh, skipped + 1, OF_QKV, known);
        }
        if (later.done() || later.pending(known))
            return;
        later.boxes(0, [](uint32_t, const CUtensorMap *map, int x, int y, int z) { box_prefetch(map, x, y, z); });
        later.next(a, sh, known);
        since += STREAM_PACE;
        n++;
    }
    /* The slot of `now` has been requested; moves on to the next one. */
    __device__ void follow(const expert_args &a, const chain_shared &sh, expert_cursor<SCOPE> &now, int known)
    {
        bool left_out = now.depends() && now.layer == skipped;
        now.next(a, sh, known);
        if (n == 0)
            restart(now);
        else if (!left_out)
            n--;
    }
};

/* See stream_weights; for several tokens, experts in 16 bits. */
template <int SLOTS, expert_scope SCOPE>
__device__ static inline void stream_expert_weights(const expert_args &a, const chain_shared &sh)
{
    weight_ring<SLOTS> ring(a, sh);
    expert_cursor<SCOPE> now;
    expert_lookahead<SCOPE> ahead;
    stream_copies copies;
    const expert_choice *c = expert_choice_of(a, sh);
    uint32_t made = shared_address(&c->made), base = shared_address(sh.base);
    int known = 0, announced = OF_NOTHING;
    now.open(a, sh, 0, OF_QKV, known);
    ahead.restart(now);
    while (!now.done()) {
        if (now.kind != announced) {
            announced = now.kind;
            expert_announce_after<FORM_NONE, SCOPE>(a, sh, now.layer, now.kind);
        }
        const bool pending = now.pending(known);
        const int bytes = (now.up >= 0 ? 2 * now.n : now.n) * CHAIN_WARPS * 128;
        const uint32_t barrier = ring.filled();
        if (!pending)
            copies.wait_for_room<EXPERT_UNDER_WAY>(ring, now.lines(a));
        uint32_t since = (uint32_t)clock64();
        auto can_go_on = [&]() {
            if (pending)
                return barrier_ended(made, known & 1);
            if (stream_held<false>(a, sh))
                return false;
            return barrier_ended(ring.emptied(), ring.round ^ 1);
        };
        while (!can_go_on()) /* one wait for everything: a second copy of this code would be fetched in every layer */
            ahead.advance(a, sh, now, known, since);
        if (pending) {
            known++;
            now.open(a, sh, now.layer, OF_FIRST, known);
            if (ahead.n == 0)
                ahead.restart(now);
            continue;
        }
        now.boxes(base + ring.slot * RING_SLOT_BYTES, [=](uint32_t to, const CUtensorMap *map, int x, int y, int z) {
            box_copy(to, map, x, y, z, barrier);
        });
        barrier_expect(barrier, bytes); /* none has ended without this arrival */
        ahead.follow(a, sh, now, known);
        ring.advance();
    }
}

#endif
