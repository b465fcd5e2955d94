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

/* The online softmax of a thread's two rows; scores are unscaled products until they become weights. STEP: the number
 * of keys at a time; attention_same.cuh has a quarter of a step's. */
template <int STEP>
struct prompt_rows {
    int first[2], last[2]; /* positions that they see */
    float slope[2];        /* in units of the scores */
    float best[2], sum[2]; /* sum: over this lane's keys only */

    /* The bias counts from the last key that a row sees, which does not change the softmax, and keeps scores near it
     * exact. */
    __device__ void bias(float (&s)[STEP / 2], int key0) const
    {
        int own = key0 + (int)threadIdx.x % 4 * 2;
        float high[2] = {(float)(last[0] - own), (float)(last[1] - own)};
#pragma unroll
        for (int i = 0; i < STEP / 2; i++)
            s[i] = fmaf(slope[i / 2 % 2], (float)(i / 4 * 8 + i % 2) - high[i / 2 % 2], s[i]);
    }
    /* Masks keys after a row's last one, keys before its first one, and missing blocks. */
    __device__ void mask_later(float (&s)[STEP / 2], int key0) const
    {
        int own = key0 + (int)threadIdx.x % 4 * 2, high[2] = {last[0] - own, last[1] - own};
#pragma unroll
        for (int i = 0; i < STEP / 2; i++)
            s[i] = i / 4 * 8 + i % 2 > high[i / 2 % 2] ? -INFINITY : s[i];
    }
    __device__ void mask_earlier(float (&s)[STEP / 2], int key0) const
    {
        int own = key0 + (int)threadIdx.x % 4 * 2, low[2] = {first[0] - own, first[1] - own};
#pragma unroll
        for (int i = 0; i < STEP / 2; i++)
            s[i] = i / 4 * 8 + i % 2 < low[i / 2 % 2] ? -INFINITY : s[i];
    }
    __device__ void mask_absent(float (&s)[STEP / 2], unsigned present) const
    {
#pragma unroll
        for (int i = 0; i < STEP / 2; i++)
            s[i] = present >> (i / 8) & 1 ? s[i] : -INFINITY;
    }
    /* Initialises row i; head: its query head. */
    template <typename T>
    __device__ void begin(int i, const attention_args<T> &a, attention_range seen, int head)
    {
        first[i] = seen.first;
        last[i] = seen.last;
        slope[i] = a.heads.alibi_slopes ? a.heads.alibi_slopes[head] / a.heads.scale : 0;
        best[i] = -INFINITY;
        sum[i] = 0;
    }
    /* The rows' best scores of these keys. */
    __device__ static void highest(const float (&s)[STEP / 2], float (&top)[2])
    {
        top[0] = top[1] = -INFINITY;
#pragma unroll
        for (int i = 0; i < STEP / 2; i++)
            top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 1));
            top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 2));
        }
    }
    /* top: the best scores of a step. keep: the factor of a row's sums so far; base: of weigh_keys */
    __device__ void raise(const float (&top)[2], float scale, float (&keep)[2], float (&base)[2])
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float all = fmaxf(best[i], top[i]), finite = all == -INFINITY ? 0.0f : all;
            keep[i] = fast_exp2((best[i] - finite) * scale);
            base[i] = finite * scale;
            best[i] = all;
        }
    }
    /* Turns the scores of KEYS keys into weights, and adds these. */
    template <int KEYS>
    __device__ static void weigh_keys(float *s, float scale, const float (&base)[2], float (&part)[2])
    {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            s[i] = fast_exp2(fmaf(s[i], scale, -base[i / 2 % 2]));
            part[i / 2 % 2] = i == 0 || i == 2 ? s[i] : part[i / 2 % 2] + s[i];
        }
    }
    /* part: sums of the weights of each quarter of a step */
    __device__ static float sum_of_step(const float (&part)[4][2], int i)
    {
        return (part[0][i] + part[1][i]) + (part[2][i] + part[3][i]);
    }
    __device__ void add(float2 of_step, float2 keep)
    {
        sum[0] = fmaf(sum[0], keep.x, of_step.x);
        sum[1] = fmaf(sum[1], keep.y, of_step.y);
    }
    /* Turns the scores of a step into weights. */
    __device__ void weigh(float (&s)[STEP / 2], float scale, float (&keep)[2])
    {
        float top[2], base[2], part[4][2];
        highest(s, top);
        raise(top, scale, keep, base);
#pragma unroll
        for (int i = 0; i < 4; i++)
            weigh_keys<STEP / 4>(s + i * (STEP / 8), scale, base, part[i]);
        add(make_float2(sum_of_step(part, 0), sum_of_step(part, 1)), make_float2(keep[0], keep[1]));
    }
    __device__ float all_lanes_sum(int i) const
    {
        float all = sum[i] + __shfl_xor_sync(0xffffffffu, sum[i], 1);
        return all + __shfl_xor_sync(0xffffffffu, all, 2);
    }
    /* The factor of row i's sums of values in the result; all: of its weights. */
    template <typename T>
    __device__ float share(int i, const attention_args<T> &a, int head, float all) const
    {
        all += sink_weight(a, head, last[i], __fmul_rn(best[i], a.heads.scale * ATTENTION_LOG2_E));
        return all > 0 ? 1 / all : 0.0f;
    }
};

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
