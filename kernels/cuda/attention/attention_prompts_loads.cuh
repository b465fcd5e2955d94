/* kernels/cuda/attention/attention_prompts_loads.cuh - what a block of attention_prompts.cuh computes next, and the
 * warpgroup that brings it to shared memory: one warp keys and values, three the queries of the next tile. SHARED: see
 * there. */
#ifndef ATTENTION_ATTENTION_PROMPTS_LOADS_CUH
#define ATTENTION_ATTENTION_PROMPTS_LOADS_CUH

#include "kernels/cuda/attention/attention_prompts_tiling.cuh"
#include "kernels/cuda/attention/attention_tile.cuh"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/warpgroup.cuh"

#define PROMPT_WARPGROUPS 2                        /* multiplying warpgroups */
#define PROMPT_ROWS       (64 * PROMPT_WARPGROUPS) /* of a tile */
#define PROMPT_THREADS    (128 * (PROMPT_WARPGROUPS + 1))
#define PROMPT_LOADERS    96 /* threads that copy queries */
#define PROMPT_STAGES     2
#define PROMPT_TURN       1 /* named barrier of the first multiplying warpgroup, followed by the others' */

template <typename T>
struct prompt_args {
    attention_args<T> a;
    prompt_tiles *tiles;
    int packed, parts; /* query heads per tile, tiles per KV head */
};

/* A tile and the heads of it: row r is token r / packed, head r % packed. SHARED: t0 is an index in prefixes.member,
 * pos0 the last key's position. */
struct prompt_unit {
    int t0, n_tokens, head0, n_heads, kv, slot, pos0;
    int part;               /* range of the shared keys */
    int first, last;        /* last position that any row sees */
    int last_step, n_steps; /* of keys */
};

/* The layout of shared memory. Rows of queries, keys and values are stored eight by eight: SPAN bytes of each of
 * eight rows, then their next SPAN bytes; a core-matrix layout with along = 8 SPAN and across = 16 HD bytes. */
template <int HD>
struct prompt_layout {
    static const int SPAN = HD % 64 == 0 ? 128 : HD % 32 == 0 ? 64 : 32;
    static const int STEP = HD <= 128 ? 128 : 64, PAGES = STEP / KV_BLOCK_TOKENS; /* keys, blocks of the cache */
    static const int PAGE = KV_BLOCK_TOKENS * HD * 2, ALONG = 8 * SPAN, ACROSS = 16 * HD, TILES = HD <= 128 ? 2 : 1;

    /* The byte offset of element `column` of a row. */
    __device__ static int at(int row, int column)
    {
        int byte = column * 2;
        int offset = row / 8 * ACROSS + byte / SPAN * ALONG + row % 8 * SPAN + byte % SPAN;
        return offset ^ (offset >> 7 & (SPAN / 16 - 1)) << 4;
    }
    /* The offset of the matrix with columns [16 i, 16 i + 16). */
    __device__ static int columns(int i)
    {
        return 32 * i / SPAN * ALONG + 32 * i % SPAN;
    }
};

/* "full": a copy has arrived; "empty": the slot may be refilled. */
template <typename T, int HD>
struct prompt_shared {
    using layout = prompt_layout<HD>;
    unsigned char query[layout::TILES][PROMPT_ROWS * HD * 2];
    unsigned char k[PROMPT_STAGES][layout::STEP * HD * 2], v[PROMPT_STAGES][layout::STEP * HD * 2];
    prompt_unit unit[layout::TILES];
    unsigned present[PROMPT_STAGES]; /* for k: a bit per existing block */
    uint64_t unit_full[layout::TILES], query_full[layout::TILES], query_empty[layout::TILES];
    uint64_t k_full[PROMPT_STAGES], k_empty[PROMPT_STAGES], v_full[PROMPT_STAGES], v_empty[PROMPT_STAGES];
};
#define PROMPT_ALIGN 1024 /* alignment of prompt_shared, since the swizzle depends on addresses */

/* A position in a ring of N slots: the slot, and the phase of its barriers. */
template <int N>
__device__ static inline int ring_place(int i)
{
    return i % N;
}
template <int N>
__device__ static inline int ring_phase(int i)
{
    return i / N & 1;
}

/* Part `part` of the query heads of a KV head; false: none, since a rank may have only some. */
template <typename T>
__device__ static inline bool take_heads(prompt_unit *u, const prompt_args<T> &p, int kv, int part)
{
    const struct heads &h = p.a.heads;
    int begin = (h.first_kv_head + kv) * h.heads_per_kv - h.first_head;
    int end = min(begin + h.heads_per_kv, h.n_heads);
    u->kv = kv;
    u->head0 = max(begin, 0) + part * p.packed;
    u->n_heads = min(p.packed, end - u->head0);
    return u->n_heads > 0;
}

/* Unit number x: all tiles of kv_heads KV heads, one after the other, then those of the next KV heads. false: heads
 * that do not exist. */
template <typename T, int HD>
__device__ static inline bool find_unit(prompt_unit *u, const prompt_args<T> &p, unsigned x)
{
    const attention_args<T> &a = p.a;
    unsigned per_tile = (unsigned)(p.tiles->kv_heads * p.parts), per_turn = per_tile * (unsigned)p.tiles->n_tiles;
    int which = (int)(x % per_tile), part = which % p.parts;
    prompt_tile tile = p.tiles->tile[x % per_turn / per_tile];
    u->t0 = tile.t0;
    u->n_tokens = tile.n_tokens;
    int kv = (int)(x / per_turn) * p.tiles->kv_heads + which / p.parts;
    if (kv >= a.heads.n_kv_heads)
        return false;
    u->slot = a.slot[tile.t0];
    u->pos0 = a.pos[tile.t0];
    u->last = -1;
    for (int t = tile.n_tokens - 1; t >= 0 && u->last < 0;
         t--) /* that sees any key: the last one, unless the tiling is invalid */
        u->last = visible(a, u->slot, u->pos0 + t).last;
    u->first = visible(a, u->slot, u->pos0).first;
    u->last_step = u->last / prompt_layout<HD>::STEP;
    u->n_steps = u->last < 0 ? 0 : u->last_step - u->first / prompt_layout<HD>::STEP + 1;
    return take_heads(u, p, kv, part);
}

/* SHARED. Unit number x: for each prefix in turn, for each part of its keys, all tiles. n_tokens 0: there are fewer
 * units. */
template <typename T, int HD>
__device__ static inline bool find_shared_unit(prompt_unit *u, const prompt_args<T> &p, int x)
{
    const attention_args<T> &a = p.a;
    const int STEP = prompt_layout<HD>::STEP, tile = PROMPT_ROWS / p.packed;
    u->n_tokens = 0;
    for (int i = 0; i < a.prefixes->n_prefixes; i++) {
        struct shared_prefix prefix = a.prefixes->prefix[i];
        int n_tiles = (prefix.n_members + tile - 1) / tile,
            n_parts = parts_of_prefix<STEP>(prefix.n_blocks, a.shared_parts);
        int n_units = n_tiles * n_parts * a.heads.n_kv_heads * p.parts, which = x / n_tiles / n_parts;
        if (x >= n_units) {
            x -= n_units;
            continue;
        }
        u->t0 = prefix.first + x % n_tiles * tile;
        u->n_tokens = min(tile, prefix.first + prefix.n_members - u->t0);
        u->slot = a.slot[a.prefixes->member[prefix.first]];
        u->part = x / n_tiles % n_parts;
        int length = steps_of_part<STEP>(prefix.n_blocks, a.shared_parts) * STEP;
        u->first = u->part * length;
        u->last = u->pos0 = min(u->first + length, prefix.n_blocks * KV_BLOCK_TOKENS) - 1;
        u->last_step = u->last / STEP;
        u->n_steps = u->last_step - u->first / STEP + 1;
        return take_heads(u, p, which / p.parts, which % p.parts);
    }
    return true;
}

/* SHARED. All units take equally long, so they are assigned statically: *next and every gridDim.x-th after it. */
template <typename T, int HD>
__device__ static inline prompt_unit take_shared_unit(const prompt_args<T> &p, int *next)
{
    prompt_unit u = {};
    for (bool there = false; !there; *next += (int)gridDim.x)
        there = find_shared_unit<T, HD>(&u, p, *next);
    return u;
}

/* The token of row `token` of a tile that begins with t0. */
template <bool SHARED, typename T>
__device__ static inline int tile_token(const prompt_args<T> &p, int t0, int token)
{
    return SHARED ? p.a.prefixes->member[t0 + token] : t0 + token;
}

/* The next unit for this block; n_tokens 0: none. */
template <typename T, int HD>
__device__ static inline prompt_unit take_unit(const prompt_args<T> &p)
{
    int n_turns = (p.a.heads.n_kv_heads + p.tiles->kv_heads - 1) / p.tiles->kv_heads;
    unsigned n_units = (unsigned)(p.tiles->n_tiles * n_turns * p.tiles->kv_heads * p.parts);
    prompt_unit u = {};
    for (;;) {
        unsigned x = atomicAdd(&p.tiles->n_taken, 1u);
        if (x >= n_units) {
            u.n_tokens = 0;
            return u;
        }
        if (find_unit<T, HD>(&u, p, x))
            return u;
    }
}

/* Three warps: take units and copy their queries, with zeros in missing rows. */
template <typename T, int HD, bool SHARED>
__device__ static inline void bring_queries(prompt_shared<T, HD> *sh, const prompt_args<T> &p, int thread)
{
    using layout = prompt_layout<HD>;
    const int PIECES = HD / 8;
    int next = (int)blockIdx.x;
    for (int i = 0;; i++) {
        int place = ring_place<layout::TILES>(i), phase = ring_phase<layout::TILES>(i);
        if (thread == 0) {
            prompt_unit taken = SHARED ? take_shared_unit<T, HD>(p, &next) : take_unit<T, HD>(p);
            barrier_wait(shared_address(&sh->query_empty[place]), phase ^ 1);
            sh->unit[place] = taken;
            barrier_arrive(shared_address(&sh->unit_full[place]));
        }
        __syncwarp();
        barrier_wait(shared_address(&sh->unit_full[place]), phase);
        int t0 = sh->unit[place].t0, head0 = sh->unit[place].head0;
        int n_tokens = sh->unit[place].n_tokens, n_heads = sh->unit[place].n_heads;
        for (int piece = thread; piece < PROMPT_ROWS * PIECES && n_tokens > 0; piece += PROMPT_LOADERS) {
            int row = piece / PIECES, column = piece % PIECES * 8, token = row / p.packed, head = row % p.packed;
            bool wanted = token < n_tokens && head < n_heads;
            const T *from =
                query_row(p.a, tile_token<SHARED>(p, t0, wanted ? token : 0), head0 + (wanted ? head : 0)) + column;
            async_copy(sh->query[place] + layout::at(row, column), from, wanted);
        }
        async_commit();
        async_wait<0>();
        products_see_stores();
        barrier_arrive(shared_address(&sh->query_full[place]));
        if (n_tokens == 0)
            return;
    }
}

/* The box of page `page`, zeros for -1. */
__device__ static inline void page_copy(uint32_t into, const CUtensorMap *map, int page, uint32_t barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %2, %2, %2, %3}], [%4];" ::"r"(into),
                 "l"(map), "r"(0), "r"(page), "r"(barrier)
                 : "memory");
#endif
}

/* A warp copies rows [0, n) of a page and clears the others. to: of the step, the page's first row is row0. */
template <typename T, int HD>
__device__ static inline void copy_part_of_page(unsigned char *to, int row0, const T *from, int n)
{
#pragma unroll 4
    for (int piece = (int)threadIdx.x % 32; piece < KV_BLOCK_TOKENS * HD / 8; piece += 32) {
        int row = piece / (HD / 8), column = piece % (HD / 8) * 8;
        uint4 x = row < n ? *(const uint4 *)(from + row * HD + column) : make_uint4(0, 0, 0, 0);
        *(uint4 *)(to + prompt_layout<HD>::at(row0 + row, column)) = x;
    }
    products_see_stores();
}

/* The warp that loads keys and values, one lane per page of a step. */
template <typename T, int HD>
struct prompt_bringer {
    using layout = prompt_layout<HD>;
    prompt_shared<T, HD> *sh;
    const prompt_args<T> *p;
    const CUtensorMap *k_map, *v_map;
    prompt_unit u;
    int lane, done; /* done: steps so far, of all units */

    /* The lane's block of a step: its number in the cache; -1: not needed; -2: it does not exist. */
    __device__ int block_of(int step) const
    {
        int block = (u.last_step - step) * layout::PAGES + lane, pos = block * KV_BLOCK_TOKENS;
        if (step >= u.n_steps || lane >= layout::PAGES || pos > u.last || pos + KV_BLOCK_TOKENS <= u.first)
            return -1;
        int id = p->a.block_table[(ptrdiff_t)u.slot * p->a.blocks_per_slot + block];
        return id < 0 ? -2 : id;
    }
    /* Loads all pages of a step except number `without`; zeros for missing ones. id: the lane's block */
    __device__ void copy_pages(unsigned char *to, const CUtensorMap *map, int id, int without, uint32_t full) const
    {
        if (lane == 0)
            barrier_expect(full, (layout::PAGES - (without >= 0)) * layout::PAGE);
        __syncwarp();
        if (lane < layout::PAGES && lane != without)
            page_copy(shared_address(to + lane * layout::PAGE), map, id < 0 ? -1 : id * p->a.heads.n_kv_heads + u.kv,
                      full);
    }
    __device__ void bring_keys(int step, int id) const
    {
        int place = ring_place<PROMPT_STAGES>(done + step), phase = ring_phase<PROMPT_STAGES>(done + step);
        unsigned present = ~__ballot_sync(0xffffffffu, id == -2);
        barrier_wait(shared_address(&sh->k_empty[place]), phase ^ 1);
        if (lane == 0)
            sh->present[place] = present;
        copy_pages(sh->k[place], k_map, id, -1, shared_address(&sh->k_full[place]));
    }
    /* Loads only the visible rows of the last block: unwritten memory must not enter a product. */
    __device__ void bring_values(int step, int id) const
    {
        int place = ring_place<PROMPT_STAGES>(done + step), phase = ring_phase<PROMPT_STAGES>(done + step);
        int n_rows = u.last % KV_BLOCK_TOKENS + 1, ragged = -1;
        barrier_wait(shared_address(&sh->v_empty[place]), phase ^ 1);
        if (step == 0 && n_rows < KV_BLOCK_TOKENS) {
            ragged = u.last / KV_BLOCK_TOKENS % layout::PAGES;
            int own = __shfl_sync(0xffffffffu, id, ragged);
            size_t page = (size_t)max(own, 0) * p->a.heads.n_kv_heads + u.kv;
            copy_part_of_page<T, HD>(sh->v[place], ragged * KV_BLOCK_TOKENS, p->a.v_cache + page * KV_BLOCK_TOKENS * HD,
                                     own < 0 ? 0 : n_rows);
            __syncwarp();
        }
        copy_pages(sh->v[place], v_map, id, ragged, shared_address(&sh->v_full[place]));
    }
    /* Keys are loaded one step ahead of values, the block table one step ahead of keys. */
    __device__ void bring_unit()
    {
        int before = -1, id = block_of(0);
        for (int step = 0; step <= u.n_steps; step++) {
            int next = block_of(step + 1);
            if (step < u.n_steps)
                bring_keys(step, id);
            if (step > 0)
                bring_values(step - 1, before);
            before = id;
            id = next;
        }
        done += u.n_steps;
    }
    __device__ void work()
    {
        lane = (int)threadIdx.x % 32;
        done = 0;
        for (int i = 0;; i++) {
            int tile = ring_place<layout::TILES>(i);
            barrier_wait(shared_address(&sh->unit_full[tile]), ring_phase<layout::TILES>(i));
            u = sh->unit[tile];
            __syncwarp();
            if (lane == 0)
                barrier_arrive(shared_address(&sh->query_empty[tile]));
            if (u.n_tokens == 0)
                return;
            bring_unit();
        }
    }
};

#endif
