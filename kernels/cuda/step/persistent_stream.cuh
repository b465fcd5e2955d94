/* kernels/cuda/step/persistent_stream.cuh - the stream of weights in the persistent kernel: one warp of a block only
 * requests weights, filling a ring in shared memory ahead of the other warps, through all products of all layers
 * without a pause, even while they wait for activations. One thread issues the copies to the tensor memory accelerator,
 * one large box per step (two in a gated product, one per warp if the columns are no multiple of 64): when every warp
 * issued its own, issuing took longer than the transfers. Few copies are in flight at once: the words that blocks wait
 * for queue behind all weights requested before them, so no more weights are requested than keep the memory busy. While
 * the ring is full, or copies are held back (chain_sum_ranks), the memory would idle: then another thread prefetches a
 * few of the next slots to L2, one after the other, without notice of their arrival; their copies are later served from
 * there. */
#ifndef STEP_PERSISTENT_STREAM_CUH
#define STEP_PERSISTENT_STREAM_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/step/persistent_groups.cuh"
#include "kernels/cuda/step/persistent_keys.cuh"

#define STREAM_UNDER_WAY 32   /* rows of 2 KiB at once: two full slots of 32 KiB, 8 MiB of a whole H200 */
#define WIDE_UNDER_WAY   64   /* the same of a wide step */
#define STREAM_AHEAD     6    /* slots prefetched to L2 beyond a full ring, 25 MiB on a whole H200 */
#define WIDE_AHEAD       3    /* the same of a wide step */
#define STREAM_PACE      1750 /* clocks between two of them: the memory's time for one slot of every block */

#define PACKED_SLOTS 8 /* of a ring with slots of variable size, see ring_space */

/* A slot of the ring holds a step's weights: up to CHAIN_ROWS rows of CHAIN_WARPS times STEP_COLUMNS columns, as one
 * box, [CHAIN_WARPS][rows][STEP_COLUMNS]; of a gated product gate's first, up's from the middle on. (Slots of a wide
 * step: persistent_wide.cuh.) The 16-byte units of its 128-byte rows are swizzled by the row's index in 1024 bytes. */
template <int SLOTS>
struct weight_ring {
    static constexpr bool PACKED = SLOTS == PACKED_SLOTS;
    uint32_t full;   /* barriers [2][SLOTS]: the weights have arrived; all warps have read them */
    int slot, round; /* the next one; odd and even rounds */

    __device__ weight_ring(const chain_args &a, const chain_shared &sh)
        : full(shared_address(sh.base + a.at.barriers)), slot(0), round(0)
    {
    }
    /* The next slot's barriers: its weights have arrived; all warps have read its previous contents. */
    __device__ uint32_t filled() const
    {
        return full + slot * 8;
    }
    __device__ uint32_t emptied() const
    {
        return emptied_of(slot);
    }
    __device__ uint32_t emptied_of(int i) const
    {
        return full + (SLOTS + i) * 8;
    }
    /* The barrier of the next slot's activations, in a wide step. */
    __device__ uint32_t arrived() const
    {
        return full + (2 * SLOTS + slot) * 8;
    }
    /* PACKED: the offset of a slot's weights, and the bytes that it takes of the ring: words after the barriers. */
    __device__ uint32_t place_of(int i) const
    {
        return full + 2 * SLOTS * 8 + i * 4;
    }
    __device__ uint32_t size_of(int i) const
    {
        return place_of(SLOTS + i);
    }
    /* Waits for the next slot's weights. */
    __device__ const char *weights(const chain_shared &sh) const
    {
        return sh.base + (PACKED ? (int)shared_word(place_of(slot)) : slot * RING_SLOT_BYTES);
    }
    /* Called by one thread, before all others begin. */
    __device__ void open() const
    {
        for (int i = 0; i < SLOTS; i++) {
            barrier_open(full + i * 8, 1);
            barrier_open(full + (SLOTS + i) * 8, CHAIN_WARPS);
        }
        barriers_opened();
    }
    /* Has the copy requested `back` copies ago, at most SLOTS, arrived? */
    __device__ void wait_arrived(int back) const
    {
        bool wrapped = slot < back;
        barrier_wait(full + (wrapped ? slot + SLOTS - back : slot - back) * 8, round ^ wrapped);
    }
    __device__ __forceinline__ void advance()
    {
        if (++slot == SLOTS) {
            slot = 0;
            round ^= 1;
        }
    }
};

/* The copies not yet seen to have arrived. */
struct stream_copies {
    unsigned long long rows_of = 0; /* one byte each, the latest lowest */
    int n = 0, rows = 0;

    template <int MOST, int SLOTS>
    __device__ void wait_for_room(const weight_ring<SLOTS> &ring, int more)
    {
        static_assert(SLOTS <= 8, "a byte each");
#pragma unroll 1
        while (n == SLOTS || (n > 0 && rows + more > MOST)) {
            ring.wait_arrived(n--);
            rows -= (int)(rows_of >> n * 8 & 255);
        }
        rows_of = rows_of << 8 | (unsigned)more;
        rows += more;
        n++;
    }
};

/* One step of one tile: the contents of a slot. KEYS: or keys or values before the product that follows attention, see
 * persistent_kernel. */
template <int KEYS>
struct stream_cursor {
    int product, tile, step; /* tile < 0: -tile slots of keys and values come before the product's first one */
    int k, row, n;           /* which product of the layer; rows of weights [row, row + n), n even */

    /* Moves to the beginning of that product, or of the next one of which this block has a share. */
    __device__ void open(const chain_args &a, const chain_shared &sh, int first)
    {
        product = first;
        k = chain_index(a, product);
        while (sh.share[k].n_tiles == 0 && !done(a)) {
            product++;
            k = done(a) ? 0 : chain_index(a, product);
        }
        tile = step = 0;
        if (KEYS > 0 && !done(a) && k == a.attention_before)
            tile = -key_slots<KEYS>(a, sh, product / CHAIN_PRODUCTS);
        if (!has_keys())
            enter(sh);
    }
    __device__ bool has_keys() const
    {
        return KEYS > 0 && tile < 0;
    }
    __device__ bool done(const chain_args &a) const
    {
        return product > a.n_layers * CHAIN_PRODUCTS;
    }
    __device__ void enter(const chain_shared &sh)
    {
        row = sh.share[k].begin + tile * sh.share[k].tile_rows;
        n = chain_tile_rows(sh.share[k], tile);
    }
    __device__ void next(const chain_args &a, const chain_shared &sh)
    {
        if (has_keys()) {
            if (++tile == 0)
                enter(sh);
            return;
        }
        if (++step < sh.share[k].n_steps)
            return;
        step = 0;
        if (++tile < sh.share[k].n_tiles)
            enter(sh);
        else
            open(a, sh, product + 1);
    }
};

/* The columns of a step; the narrow kernel's are known to the compiler. */
template <bool WIDE>
__device__ static inline int stream_pieces(const chain_product &p)
{
    return WIDE ? p.pieces : CHAIN_WARPS;
}

/* The map for boxes of n rows of a matrix. product: counted through all layers; p: what it is. */
template <bool WIDE>
__device__ static inline const CUtensorMap *stream_map(const chain_args &a, int product, const chain_product &p, int n)
{
    if (!WIDE)
        return a.maps + product * BOX_SIZES + n / 2 - 1;
    int height = n == p.last_rows ? 1 : 2;
    return a.maps + product * WIDE_BOXES + (n == p.tile_rows ? 0 : height);
}

/* The boxes of a slot, of n rows each. They are known before there is room for them: each clock between the arrival of
 * a copy and the next request is lost. */
struct stream_boxes {
    const CUtensorMap *map;
    int row, up; /* first row; that of a gated product's second half, -1: there is none */
    int n, z;    /* z: the step's first piece */
    bool whole;  /* one box has all pieces; else, if columns are no multiple of STEP_COLUMNS, a box each warp's */

    template <bool WIDE, int KEYS>
    __device__ static stream_boxes of(const chain_args &a, const stream_cursor<KEYS> &c)
    {
        const chain_product &p = a.product[c.k];
        return {stream_map<WIDE>(a, c.product, p, c.n), c.row,
                p.gated ? p.rows + c.row : -1,          c.n,
                c.step * stream_pieces<WIDE>(p),        WIDE || p.spans > 1 || p.cols % STEP_COLUMNS == 0};
    }
    /* Makes the compiler compute them here, and where they go. */
    __device__ void settle(uint32_t into) const
    {
        asm volatile("" ::"l"(map), "r"(row), "r"(up), "r"(n), "r"(z), "r"(into));
    }
    /* Calls f(into, map, x, y, z) for the box or boxes of n rows from row `first` on. */
    template <typename F>
    __device__ void each(uint32_t into, int first, F f) const
    {
        if (whole)
            f(into, map, 0, first, z);
#pragma unroll 1
        for (int v = whole ? CHAIN_WARPS : 0; v < CHAIN_WARPS; v++)
            f(into + v * n * 128, map, (z + v) * STEP_COLUMNS, first, 0);
    }
};

/* The same for the whole contents of a slot; groups: address of the group scales. */
template <bool WIDE, chain_form FORM, int KEYS, typename F>
__device__ static inline void stream_slot(const chain_args &a, const stream_cursor<KEYS> &c, const stream_boxes &b,
                                          uint32_t into, const group_place &groups, F f)
{
    b.each(into, b.row, f);
    if (b.up >= 0)
        b.each(into + (WIDE ? b.n * a.product[c.k].pieces * 128 : RING_SLOT_BYTES / 2), b.up, f);
    if constexpr (FORM != FORM_NONE)
        if (a.product[c.k].spans > 1)
            group_boxes<FORM>(a, a.product[c.k], c.product, c.step, b.row, groups, f);
}

/* Prefetches the maps of a product's first and last tile, and of the keys and values before it. */
template <bool WIDE, chain_form FORM, int KEYS = 0>
__device__ static inline void stream_announce(const chain_args &a, const chain_shared &sh, int product)
{
    int k = chain_index(a, product);
    const chain_share &share = sh.share[k];
    if (share.n_tiles == 0)
        return;
    box_map_prefetch(stream_map<WIDE>(a, product, a.product[k], chain_tile_rows(share, 0)));
    box_map_prefetch(stream_map<WIDE>(a, product, a.product[k], chain_tile_rows(share, share.n_tiles - 1)));
    if (FORM != FORM_NONE && a.group_maps != nullptr && a.product[k].spans > 1)
        box_map_prefetch(a.group_maps + product * 2);
    for (int i = 0; KEYS > 0 && a.key_maps != nullptr && k == a.attention_before && i < 2; i++)
        box_map_prefetch(a.key_maps + product / CHAIN_PRODUCTS * 2 + i);
}

/* Does the narrow kernel hold back copies now (chain_sum_ranks)? */
template <bool WIDE>
__device__ static inline bool stream_held(const chain_args &a, const chain_shared &sh)
{
    return !WIDE && *sh.at<volatile int>(a.at.hold) != 0;
}

/* The number of slots requested when the thread that requests them last began to wait for a free one. */
__device__ static inline volatile int *stream_requested(const chain_args &a, const chain_shared &sh)
{
    return sh.at<volatile int>(a.at.hold) + 1;
}

/* A slot's lines of 128 bytes. */
template <bool WIDE, int KEYS>
__device__ static inline int stream_lines(const chain_args &a, const chain_shared &sh, const stream_cursor<KEYS> &c)
{
    if constexpr (KEYS > 0)
        if (c.has_keys())
            return key_bytes<KEYS>(a, sh, c.product / CHAIN_PRODUCTS, -c.tile) / 128;
    return (a.product[c.k].gated ? 2 : 1) * c.n * stream_pieces<WIDE>(a.product[c.k]);
}

/* Loads all of this block's weights, slot by slot as slots become free and few copies are in flight. KEYS: and its keys
 * and values. Called by one thread. */
template <int SLOTS, bool WIDE, chain_form FORM, int KEYS = 0>
__device__ static inline void stream_weights(const chain_args &a, const chain_shared &sh)
{
    weight_ring<SLOTS> ring(a, sh);
    stream_cursor<KEYS> now;
    stream_copies copies;
    int n = 0;
    for (now.open(a, sh, 0); !now.done(a); now.next(a, sh), n++) {
        const stream_boxes boxes = stream_boxes::of<WIDE>(a, now);
        const int lines = stream_lines<WIDE>(a, sh, now);
        const bool grouped =
            FORM != FORM_NONE && a.group_maps != nullptr && a.product[now.k].spans > 1 && !now.has_keys();
        const int bytes = lines * 128 + (grouped ? group_bytes(FORM, true, a.group_zeros) : 0);
        const uint32_t barrier = ring.filled(), into = shared_address(sh.base) + ring.slot * RING_SLOT_BYTES;
        if (now.tile + now.step == 0 && now.product < a.n_layers * CHAIN_PRODUCTS)
            stream_announce<WIDE, FORM, KEYS>(a, sh, now.product + 1);
        boxes.settle(into);
        copies.wait_for_room<WIDE ? WIDE_UNDER_WAY : STREAM_UNDER_WAY>(ring, (lines + CHAIN_WARPS - 1) / CHAIN_WARPS);
        *stream_requested(a, sh) = n;
        while (stream_held<WIDE>(a, sh) || !barrier_ended(ring.emptied(), ring.round ^ 1))
            ;
        if (now.has_keys()) {
            key_request<KEYS>(a, sh, now.product / CHAIN_PRODUCTS, -now.tile, ring.slot);
            if (WIDE) /* no activations will */
                barrier_arrive(ring.arrived());
        } else {
            stream_slot<WIDE, FORM>(
                a, now, boxes, into, group_place_of<FORM>(a, sh, SLOTS, ring.slot),
                [=](uint32_t to, const CUtensorMap *map, int x, int y, int z) { box_copy(to, map, x, y, z, barrier); });
        }
        barrier_expect(barrier, bytes); /* no copy's end completes the barrier before this arrival */
        ring.advance();
    }
    *stream_requested(a, sh) = n;
    if (KEYS > 0)
        key_request_end(a, sh);
}

/* Prefetches the next slots to L2 while the thread that requests them waits for a free one. Called by one thread of
 * another warp. */
template <int SLOTS, bool WIDE, chain_form FORM, int KEYS = 0>
__device__ static inline void stream_ahead(const chain_args &a, const chain_shared &sh)
{
    weight_ring<SLOTS> ring(a, sh); /* at the slot that is waited for */
    stream_cursor<KEYS> later;
    int requested = 0, n = 0; /* n: slots before `later` */
    uint32_t since = (uint32_t)clock64();
    later.open(a, sh, 0);
    while (!later.done(a)) {
        if (requested < *stream_requested(a, sh)) {
            requested++;
            ring.advance();
            if (n < requested) {
                later.next(a, sh);
                n++;
            }
            since = (uint32_t)clock64();
        } else if (n - requested < (WIDE ? WIDE_AHEAD : STREAM_AHEAD) && (uint32_t)clock64() - since >= STREAM_PACE &&
                   (stream_held<WIDE>(a, sh) || !barrier_ended(ring.emptied(), ring.round ^ 1))) {
            if (later.has_keys())
                key_prefetch<KEYS>(a, sh, later.product / CHAIN_PRODUCTS, -later.tile);
            else
                stream_slot<WIDE, FORM>(
                    a, later, stream_boxes::of<WIDE>(a, later), 0, group_place(),
                    [](uint32_t, const CUtensorMap *map, int x, int y, int z) { box_prefetch(map, x, y, z); });
            since += STREAM_PACE;
            later.next(a, sh);
            n++;
        } else {
            __nanosleep(20);
        }
    }
}

/* The offset of row r of a warp's n in a slot, or in its half: bytes to the lane's unit. Arbitrary for rows that were
 * not loaded. */
__device__ static inline int weight_at(int n, int r)
{
    int row = (int)threadIdx.x / 32 * n + r, part = threadIdx.x % 4;
    return row * 128 + (part ^ row % 8) * 16;
}

/* The one of 8 rows that the lanes of a quad read: simultaneous reads must hit different banks. */
__device__ static inline int weight_row(int quad)
{
    return quad / 2 + quad % 2 * 4;
}

/* A lane's sums of one token, both kinds, to its tile's. */
__device__ static inline void chain_keep(float *to, const float (&first)[2][4], const float (&second)[2][4])
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            to[r * CHAIN_OCTET + weight_row(lane % 4 * 2 + i)] = first[r][i] + second[r][i + 2];
}

/* One tile's products over this warp's columns, for up to 8 tokens: to the warp's part of `partial`. n: rows of weights
 * in the tile, of each half where it is gated.
 *
 * The middle pairs of a lane's 8 columns are swapped (input_units::store), so its four registers are an operand without
 * shuffles: columns 0 to 3 in the upper rows, 4 to 7 in the lower. `first`, the product with the weights' columns 0 to
 * 3, is valid in its upper rows, `second`, with 4 to 7, in its lower ones. The other halves are not used. */
template <typename T, int SLOTS>
__device__ __forceinline__ static void chain_tile(weight_ring<SLOTS> &ring, const chain_args &a, const chain_shared &sh,
                                                  int n_steps, int n, bool gated, float *partial)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = lane / 4, row = weight_row(t);
    float first[2][4] = {}, second[2][4] = {};
    bool mine = t < a.n_tokens; /* other lanes' rows of the result are unused */
    const T *input = sh.at<T>(a.at.input) + chain_input_at(warp, n_steps, 0, a.n_tokens, mine ? t : 0) + lane % 4 * 8;
    uint4 x[2] = {}; /* zeros for unused rows: multiplying other values would cost power, and so speed */
    int at[2] = {weight_at(n, row), gated ? RING_SLOT_BYTES / 2 + weight_at(n, row) : weight_at(n, row + 8)};
    for (int step = 0; step < n_steps; step++) {
        uint4 w[2][2];
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (mine)
                x[i] = *(const uint4 *)(input + i * a.n_tokens * 32);
        barrier_wait(ring.filled(), ring.round);
        const char *weights = ring.weights(sh);
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                w[r][i] = *(const uint4 *)(weights + (at[r] ^ i * 64)); /* the second 4 parts */
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                tensor_mma<T>(first[r], x[i].x, x[i].y, x[i].z, x[i].w, w[r][i].x, w[r][i].y);
                tensor_mma<T>(second[r], x[i].x, x[i].y, x[i].z, x[i].w, w[r][i].z, w[r][i].w);
            }
        __syncwarp();
        if (lane == 0)
            barrier_arrive(ring.emptied());
        ring.advance();
        input += 2 * a.n_tokens * 32;
    }
    if (mine)
        chain_keep(partial + (warp * a.n_tokens + t) * CHAIN_ROWS, first, second);
}

#endif
