/* kernels/cuda/attention/attention_ring.cuh - one warp's part of the keys of an item, a token and up to 16 query heads
 * that read the same KV head: every WARPS-th block of the cache, copied to a ring in shared memory. */
#ifndef ATTENTION_ATTENTION_RING_CUH
#define ATTENTION_ATTENTION_RING_CUH

#include "kernels/cuda/attention/attention_tile.cuh"

#define RING_SLOTS 2 /* blocks: if warps fill the device, more of them are better than more slots */

/* Keys and values of RING_SLOTS blocks of the cache. */
template <typename T, int HD>
struct attention_ring {
    static const int BLOCK = KV_BLOCK_TOKENS * attention_tile<HD>::pitch;
    T k[RING_SLOTS][BLOCK], v[RING_SLOTS][BLOCK];
};

/* An item and the blocks [begin, end) of its sequence that a block of the grid reads. */
struct decode_item {
    int t, kv, head0, n_rows; /* query heads [head0, head0 + n_rows) */
    int index, part, n_parts;
    int begin, end;
    attention_range seen;
    const int32_t *table;
};

/* The copies of a warp's blocks of an item to its ring, in order. */
template <typename T, int HD, typename C, int WARPS>
struct ring_copies {
    attention_ring<T, HD> *ring;
    const attention_args<T, C> &a;
    const decode_item &m;
    int first, n = 0, ids = -1; /* the warp's first block; blocks asked for; a lane's entry of the table */
    unsigned there = 0;         /* a bit for every slot whose block exists */

    __device__ ring_copies(attention_ring<T, HD> *to, const attention_args<T, C> &args, const decode_item &item)
        : ring(to), a(args), m(item), first(item.begin + (int)threadIdx.x / 32)
    {
    }
    __device__ int block(int i) const
    {
        return first + i * WARPS;
    }
    /* Starts to copy the next block, if there is one. */
    __device__ void fetch()
    {
        const int b = block(n), slot = n % RING_SLOTS, pos = b * KV_BLOCK_TOKENS;
        if (b < m.end) {
            if (n % 32 == 0) {
                const int mine = block(n + (int)threadIdx.x % 32);
                ids = mine < m.end ? m.table[mine] : -1;
            }
            int id = __shfl_sync(0xffffffffu, ids, n % 32);
            copy_block<T, HD>(ring->k[slot], a.k_cache, a, id, m.kv, pos, m.seen);
            copy_block<T, HD>(ring->v[slot], a.v_cache, a, id, m.kv, pos, m.seen);
            there = (there & ~(1u << slot)) | (unsigned)(id >= 0) << slot;
        }
        async_commit();
        n++;
    }
};

/* A token whose query is ready in qkv and whose key and value are in the cache, as qkv_store leaves them. */
template <typename T, int HD>
struct stored_token {
    static const bool FRESH = false; /* see attention_fresh.cuh */
    template <typename C>
    __device__ void load(attention_query<T, HD> &, const attention_args<T, C> &, const decode_item &, bool)
    {
    }
    __device__ void put(T *, T *, int) const {}
};

/* The queries of this lane's rows. */
template <typename T, int HD, typename C>
__device__ static inline void load_query(attention_query<T, HD> &query, const attention_args<T, C> &a,
                                         const decode_item &m)
{
    int row = threadIdx.x % 32 / 4;
    query.load(row < m.n_rows ? query_row(a, m.t, m.head0 + row) : NULL,
               row + 8 < m.n_rows ? query_row(a, m.t, m.head0 + row + 8) : NULL, a.heads.head_dim);
}

/* Initialises a warp's sums over an item, the keys that its rows see, and their biases. */
template <typename T, int HD, typename C>
__device__ static inline void begin_sums(attention_sums<T, HD> &sums, const attention_args<T, C> &a,
                                         const decode_item &m)
{
    int row = threadIdx.x % 32 / 4;
    sums.clear();
    sums.cap = a.heads.cap * ATTENTION_LOG2_E;
    for (int i = 0; i < 2; i++) {
        sums.first[i] = m.seen.first;
        sums.last[i] = m.seen.last;
        sums.slope[i] = a.heads.alibi_slopes && row + i * 8 < m.n_rows
                            ? a.heads.alibi_slopes[m.head0 + row + i * 8] * ATTENTION_LOG2_E
                            : 0.0f;
    }
}

/* Adds up this warp's keys of [begin, end). The first blocks of a fresh token are copied before the preceding kernel is
 * done: earlier steps have filled them, except the token's own row, which put() adds to the copy. ready() loads the
 * queries. */
template <int WARPS, typename T, int HD, typename C, typename TOKEN, typename F>
__device__ static inline void attend_blocks(attention_ring<T, HD> *ring, attention_sums<T, HD> &sums,
                                            attention_query<T, HD> &query, const attention_args<T, C> &a,
                                            const decode_item &m, TOKEN &token, F ready)
{
    ring_copies<T, HD, C, WARPS> copies(ring, a, m);
    for (int i = 0; i < RING_SLOTS; i++)
        copies.fetch();
    const int last = m.seen.last / KV_BLOCK_TOKENS; /* block, the token's own */
    bool own = TOKEN::FRESH && last < m.end && last >= copies.first && (last - copies.first) % WARPS == 0;
    if (TOKEN::FRESH)
        wait_for_previous();
    ready();
    token.load(query, a, m, own);
    begin_sums(sums, a, m);
    for (int i = 0; copies.block(i) < m.end; i++) {
        const int slot = i % RING_SLOTS, key0 = copies.block(i) * KV_BLOCK_TOKENS;
        async_wait<RING_SLOTS - 1>();
        __syncwarp();
        if (own && copies.block(i) == last) {
            token.put(ring->k[slot], ring->v[slot], m.seen.last % KV_BLOCK_TOKENS);
            __syncwarp();
        }
        bool whole = key0 >= m.seen.first && key0 + KV_BLOCK_TOKENS - 1 <= m.seen.last;
        if (copies.there >> slot & 1)
            sums.template attend<1>(query, ring->k[slot], ring->v[slot], key0, !whole, 1,
                                    key_scale(a, m.kv) * ATTENTION_LOG2_E);
        __syncwarp(); /* the slot may be refilled */
        copies.fetch();
    }
    async_wait<0>();
    sums.finish(value_scale(a, m.kv));
}

#endif
