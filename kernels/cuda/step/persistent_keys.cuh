/* kernels/cuda/step/persistent_keys.cuh - keys and values in the stream of weights: a block that has a part of one
 * sequence's keys gets them through its ring, between the weights of the product before attention and those of the one
 * after it. So they are on their way before the queries are known, and memory is read without a pause. A slot has the
 * keys of 16 octets, the next one their values: an octet a warp; of codes those of 32, two a warp, a block of the
 * cache. The token's own key and value are not yet known then: see key_patch. */
#ifndef STEP_PERSISTENT_KEYS_CUH
#define STEP_PERSISTENT_KEYS_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/step/persistent_attention_item.cuh"

#define KEY_PIECE (KV_BLOCK_TOKENS * 128) /* bytes: 128 of each row of a block of the cache */
#define KEY_HEAD  128                     /* largest head whose octets fit into a slot; the only one of codes */

/* A warp's octets of a slot, if an element has so many bytes. */
__device__ constexpr int key_octets(int bytes)
{
    return bytes == 1 ? 2 : 1;
}

/* Blocks of the cache in a slot. */
__device__ constexpr int key_blocks(int bytes)
{
    return CHAIN_WARPS * key_octets(bytes) * ATTEND_KEYS / KV_BLOCK_TOKENS;
}

/* A word of shared memory that another thread wrote before the last awaited barrier. */
__device__ static inline uint32_t shared_word(uint32_t address)
{
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}

__device__ static inline void shared_keep(uint32_t address, uint32_t x)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

/* The same for words that tell of other writes of the thread, or of those that it has seen. */
__device__ static inline uint32_t shared_acquire(uint32_t address)
{
    uint32_t x;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}

__device__ static inline void shared_release(uint32_t address, uint32_t x)
{
    asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

/* The octets of this block's part in a layer, from an even one on; end <= begin: none are in the ring. */
struct key_span {
    int begin, end;

    __device__ bool any() const
    {
        return end > begin;
    }
    /* The blocks of the cache that have them. */
    __device__ int blocks() const
    {
        return (end - begin + 1) / 2;
    }
    /* KEYS: bytes of an element */
    template <int KEYS>
    __device__ int slots() const
    {
        return any() ? (blocks() + key_blocks(KEYS) - 1) / key_blocks(KEYS) * 2 : 0;
    }
    /* The blocks of a slot. */
    template <int KEYS>
    __device__ int blocks(int slot) const
    {
        return min(key_blocks(KEYS), blocks() - slot / 2 * key_blocks(KEYS));
    }
};

/* Slots' copies that the thread which requests weights leaves to others, since they have too many boxes for one thread.
 * A request is layer (32 bits), slot of the layer, slot of the ring (16 bits each). Never more than KEY_REQUESTS are
 * open: the ring is too short. */
#define KEY_REQUESTS 8
enum { KEYS_NONE = 1, KEYS_SOME };
struct key_requests {
    int known; /* not 0 as soon as spans are: KEYS_NONE or KEYS_SOME */
    int n;     /* requests so far; a last one of all bits tells the end */
    unsigned long long request[KEY_REQUESTS];
};

__device__ static inline key_requests *key_requests_of(const chain_args &a, const chain_shared &sh)
{
    return sh.at<key_requests>(a.at.keys);
}

/* [n_layers]: each layer's. */
__device__ static inline key_span *key_spans(const chain_args &a, const chain_shared &sh)
{
    return (key_span *)(key_requests_of(a, sh) + 1);
}

/* Called by one thread before all others begin. */
__device__ static inline void key_open(const chain_args &a, const chain_shared &sh)
{
    key_requests_of(a, sh)->known = key_requests_of(a, sh)->n = 0;
}

/* Called by the threads that chain_sync synchronises, when the step's tokens are known. Only sequences that are divided
 * get keys through the ring; WIDE: and others that are as long. */
template <bool WIDE = false>
__device__ static inline void key_make_spans(const chain_args &a, const chain_shared &sh)
{
    const attend_shares &shares = *sh.at<attend_shares>(a.at.attend);
    const chain_layer *layers = sh.at<chain_layer>(a.at.layers);
    bool has_one = (int)blockIdx.x < shares.n && shares.n <= (int)gridDim.x && a.key_maps != nullptr &&
                   sh.share[a.attention_before].n_tiles > 0;
    bool any = false;
    for (int l = threadIdx.x; l < a.n_layers; l += CHAIN_THREADS) {
        attend_item m;
        *(attend_target *)&m = shares.first;
        bool mine = has_one && m.open(a, layers[l], (int)blockIdx.x, shares.max_parts) &&
                    (m.n_parts > 1 || (WIDE && m.end - m.begin > MIN_OCTETS));
        key_spans(a, sh)[l] = mine ? key_span{m.begin / 2 * 2, m.end} : key_span{0, 0};
        any = any || mine;
    }
    any = chain_any(any);
    if (threadIdx.x == 0)
        shared_release(shared_address(&key_requests_of(a, sh)->known), any ? KEYS_SOME : KEYS_NONE);
}

/* Waits until the spans are known; are there any? */
__device__ static inline bool key_await_spans(const chain_args &a, const chain_shared &sh)
{
    uint32_t known = 0;
    while ((known = shared_acquire(shared_address(&key_requests_of(a, sh)->known))) == 0)
        __nanosleep(20);
    return known == KEYS_SOME;
}

/* This block's slots of keys and values in a layer. Called by the thread that requests weights. */
template <int KEYS>
__device__ static inline int key_slots(const chain_args &a, const chain_shared &sh, int layer)
{
    if (layer == 0)
        (void)key_await_spans(a, sh);
    return key_spans(a, sh)[layer].slots<KEYS>();
}

/* Bytes of a slot; `left`: slots of the layer from it on. */
template <int KEYS>
__device__ static inline int key_bytes(const chain_args &a, const chain_shared &sh, int layer, int left)
{
    const key_span span = key_spans(a, sh)[layer];
    return span.blocks<KEYS>(span.slots<KEYS>() - left) * KV_BLOCK_TOKENS * a.head_dim * KEYS;
}

__device__ static inline void key_hand_over(const chain_args &a, const chain_shared &sh, unsigned long long request)
{
    key_requests *r = key_requests_of(a, sh);
    int n = r->n;
    r->request[n % KEY_REQUESTS] = request;
    shared_release(shared_address(&r->n), (uint32_t)n + 1);
}

/* Requests the copies to a slot of the ring. left: see key_bytes */
template <int KEYS>
__device__ static inline void key_request(const chain_args &a, const chain_shared &sh, int layer, int left, int into)
{
    int slot = key_spans(a, sh)[layer].slots<KEYS>() - left;
    key_hand_over(a, sh, (unsigned long long)layer << 32 | (unsigned)slot << 16 | (unsigned)into);
}

__device__ static inline void key_request_end(const chain_args &a, const chain_shared &sh)
{
    key_hand_over(a, sh, ~0ull);
}

/* The row of a layer's map where block i of this block's part begins, a box of [pieces][KV_BLOCK_TOKENS][128 bytes]; of
 * some other block if there is none: nobody looks at its keys. */
__device__ static inline int key_row(const chain_args &a, const chain_shared &sh, int layer, int i)
{
    const attend_target &target = sh.at<attend_shares>(a.at.attend)->first;
    const key_span span = key_spans(a, sh)[layer];
    const bool windowed = sh.at<chain_layer>(a.at.layers)[layer].window > 0;
    const int32_t *table =
        a.block_table + (windowed ? a.windowed_table : 0) + (ptrdiff_t)target.slot * a.blocks_per_slot;
    const int block = i < span.blocks() ? table[span.begin / 2 + i] : -1;
    return (max(block, 0) * a.n_kv_heads + target.kv) * KV_BLOCK_TOKENS;
}

/* Prefetches a slot's keys or values to L2. left: see key_bytes */
template <int KEYS>
__device__ static inline void key_prefetch(const chain_args &a, const chain_shared &sh, int layer, int left)
{
    const int AT_ONCE = 8; /* rows that are known before their boxes are requested */
    const key_span span = key_spans(a, sh)[layer];
    const int slot = span.slots<KEYS>() - left, n = span.blocks<KEYS>(slot);
    const CUtensorMap *map = a.key_maps + layer * 2 + slot % 2;
    wait_for_previous(); /* steps before this one have stored them */
#pragma unroll 1
    for (int first = 0; first < n; first += AT_ONCE) {
        int row[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            row[i] = key_row(a, sh, layer, slot / 2 * key_blocks(KEYS) + first + i);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i < n)
                box_prefetch(map, 0, row[i], 0);
    }
}

/* Waits for the request after `done` others. All bits: there is none. */
__device__ static inline unsigned long long key_next_request(const key_requests *r, int done)
{
    while ((int)shared_acquire(shared_address(&r->n)) <= done)
        __nanosleep(20);
    return r->request[done % KEY_REQUESTS];
}

/* Copies every COPIERS-th block of each request, from block `which` on. Called by a warp that has nothing else to do;
 * its lanes know the rows of 32 blocks. */
template <int KEYS, int COPIERS>
__device__ static inline void key_copy(const chain_args &a, const chain_shared &sh, int which)
{
    static_assert(32 % key_blocks(KEYS) == 0, "a slot's rows are known together");
    const key_requests *r = key_requests_of(a, sh);
    const int bytes = KV_BLOCK_TOKENS * a.head_dim * KEYS, lane = threadIdx.x % 32;
    const uint32_t filled = shared_address(sh.base + a.at.barriers), ring = shared_address(sh.base);
    if (!key_await_spans(a, sh))
        return;
    wait_for_previous(); /* steps before this one have stored keys and values */
    int row = 0;
#pragma unroll 1
    for (int done = 0;; done++) {
        const unsigned long long request = key_next_request(r, done);
        if (request == ~0ull)
            return;
        const int layer = (int)(request >> 32), slot = (int)(request >> 16 & 65535);
        const uint32_t into = (uint32_t)request & 65535;
        const int first = slot / 2 * key_blocks(KEYS), n = key_spans(a, sh)[layer].blocks<KEYS>(slot);
        if (slot % 2 == 0 && first % 32 == 0)
            row = key_row(a, sh, layer, first + lane);
        const CUtensorMap *map = a.key_maps + layer * 2 + slot % 2;
#pragma unroll 1
        for (int i = which; i < n; i += COPIERS) {
            const int y = __shfl_sync(0xffffffffu, row, first % 32 + i);
            if (lane == 0)
                box_copy(ring + into * RING_SLOT_BYTES + i * bytes, map, 0, y, 0, filled + into * 8);
        }
    }
}

/* The place of this warp's octets in a slot that begins at `base`. BYTES: of a head; KEYS: of an element */
template <int BYTES, int KEYS>
__device__ static inline char *key_place(char *base)
{
    const int octet = threadIdx.x / 32 * key_octets(KEYS);
    return base + octet / 2 * (BYTES / 128 * KEY_PIECE) + octet % 2 * (ATTEND_KEYS * 128);
}

/* Puts the token's own key or value into its row of the warp's octets, instead of what was in the cache before. */
template <int BYTES>
__device__ static inline void key_patch(char *octets, int row, const void *own)
{
    int unit = threadIdx.x % 32;
    if (unit < BYTES / 16)
        *(uint4 *)(octets + unit / 8 * KEY_PIECE + row * 128 + (unit % 8 ^ row % 8) * 16) = ((const uint4 *)own)[unit];
    shared_before_copies();
    __syncwarp();
}

#endif
