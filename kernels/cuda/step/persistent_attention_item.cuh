/* kernels/cuda/step/persistent_attention_item.cuh - the work items of the persistent kernel's attention: an item is one
 * token and one KV head with some of the query heads that read it; a long sequence's keys are split into parts, one
 * block each. And an item's scratch in shared memory. */
#ifndef STEP_PERSISTENT_ATTENTION_ITEM_CUH
#define STEP_PERSISTENT_ATTENTION_ITEM_CUH

#include "kernels/cuda/step/persistent_results.cuh"

#define ATTEND_KEYS  8                 /* of an octet */
#define ATTEND_HEADS 8                 /* maximum query heads of an item: rows of the tensor cores' result */
#define PART_OCTETS  CHAIN_WARPS       /* the most of a part, where there are enough parts */
#define MIN_OCTETS   (2 * CHAIN_WARPS) /* of a divided sequence: fewer do not pay for the exchange between parts */

/* Maximum query heads of an item for this head size: registers set the limit. */
__host__ __device__ constexpr int attend_heads(int head_dim)
{
    return head_dim > 128 ? 2 : head_dim > 64 ? 4 : ATTEND_HEADS;
}

/* Items per KV head. */
__host__ __device__ static inline int attend_head_parts(int heads_per_kv, int head_dim)
{
    return (heads_per_kv + attend_heads(head_dim) - 1) / attend_heads(head_dim);
}

/* Maximum parts of an item. */
__host__ __device__ static inline int attend_parts(int n_items, int n_blocks)
{
    int parts = n_items > 0 ? n_blocks / n_items : 1;
    return parts < 1 ? 1 : parts < CHAIN_PARTS ? parts : CHAIN_PARTS;
}

/* Scratch in shared memory; HD: head_dim. */
template <int HD>
struct attend_scratch {
    static const int PITCH = HD + 32; /* padding: rows read together lie in different banks */
    float vector[ATTEND_HEADS + 2][HD];
    uint16_t query[ATTEND_HEADS][PITCH];    /* 16-bit elements */
    float2 sums[CHAIN_WARPS][ATTEND_HEADS]; /* best score, sum of weights */
    float out[CHAIN_WARPS][attend_heads(HD)][HD];
    float sink[ATTEND_HEADS];   /* times log2 e; -INFINITY: none */
    float factor[ATTEND_HEADS]; /* scale of the query, where keys are quantised */
};

/* Bytes of the scratch. */
static inline int attend_scratch_bytes(int head_dim)
{
    return head_dim == 64    ? (int)sizeof(attend_scratch<64>)
           : head_dim == 128 ? (int)sizeof(attend_scratch<128>)
                             : (int)sizeof(attend_scratch<256>);
}

/* The token, heads and part of item i, the same in all layers of a step. It takes many divisions, so a block keeps its
 * first. */
struct attend_target {
    int t, kv, head0, n_rows; /* query heads [head0, head0 + n_rows) */
    int part, slot, pos;

    __device__ void locate(const chain_args &a, const chain_shared &sh, int i, int max_parts)
    {
        const int *tokens = sh.at<int>(a.at.tokens);
        int head_parts = attend_head_parts(a.heads_per_kv, a.head_dim), heads = attend_heads(a.head_dim);
        part = i % max_parts;
        i /= max_parts;
        t = i / head_parts / a.n_kv_heads;
        kv = i / head_parts % a.n_kv_heads;
        int from = (a.first_kv_head + kv) * a.heads_per_kv - a.first_head;
        head0 = max(from, 0) + i % head_parts * heads;
        n_rows = min(head0 + heads, min(from + a.heads_per_kv, a.n_heads)) - head0;
        slot = tokens[a.n_tokens + t];
        pos = tokens[2 * a.n_tokens + t];
    }
};

/* The shares of a step's attention, in shared memory. */
struct attend_shares {
    int n, max_parts;    /* items times parts; parts of each */
    attend_target first; /* this block's, if it has any */

    __device__ void make(const chain_args &a, const chain_shared &sh)
    {
        int n_items = a.n_tokens * a.n_kv_heads * attend_head_parts(a.heads_per_kv, a.head_dim);
        max_parts = attend_parts(n_items, (int)gridDim.x);
        n = n_items * max_parts;
        if ((int)blockIdx.x < n)
            first.locate(a, sh, (int)blockIdx.x, max_parts);
    }
};

/* An item's part: octets [begin, end) of its keys. */
struct attend_item : attend_target {
    int index, n_parts; /* index of the part among all, and so of its words */
    int first, last;    /* visible positions; last < first: none */
    int begin, end;
    const int32_t *table;

    /* false: there is nothing to do */
    __device__ bool open(const chain_args &a, const chain_layer &layer, int i, int max_parts)
    {
        index = i;
        bool valid = slot >= 0 && pos >= 0 && pos / KV_BLOCK_TOKENS < a.blocks_per_slot;
        first = layer.window > 0 && pos >= layer.window ? pos - layer.window + 1 : 0;
        last = valid ? pos : -1;
        table = a.block_table + (layer.window > 0 ? a.windowed_table : 0) + (ptrdiff_t)slot * a.blocks_per_slot;
        begin = valid ? first / ATTEND_KEYS : 0;
        end = valid ? last / ATTEND_KEYS + 1 : 0;
        int n = end - begin;
        n_parts = 1;
        if (n > MIN_OCTETS) {
            n_parts = min(max_parts, (n + PART_OCTETS - 1) / PART_OCTETS);
            int length = (n + n_parts - 1) / n_parts;
            begin += part * length;
            end = min(begin + length, end);
        }
        return part < n_parts && n_rows > 0;
    }
    /* The same again of this block's first item. */
    __device__ void reopen(const chain_args &a, const chain_shared &sh, const chain_layer &layer)
    {
        const attend_shares &shares = *sh.at<attend_shares>(a.at.attend);
        *(attend_target *)this = shares.first;
        open(a, layer, (int)blockIdx.x, shares.max_parts);
    }
    /* Are all keys of an octet, or of several, that begin with key0 visible? */
    __device__ bool sees(int key0, int octets = 1) const
    {
        return key0 >= first && key0 + octets * ATTEND_KEYS - 1 <= last;
    }
    /* The block of the cache that has an octet of this warp; -1: none. Lane i knows that of the warp's octet i. */
    __device__ int octet_block(int i) const
    {
        int octet = begin + threadIdx.x / 32 + i * CHAIN_WARPS;
        return octet < end ? table[octet / (KV_BLOCK_TOKENS / ATTEND_KEYS)] : -1;
    }
    /* Elements from the cache's start to the octet's first key. */
    __device__ size_t octet_at(const chain_args &a, int block, int octet) const
    {
        return (((size_t)block * a.n_kv_heads + kv) * KV_BLOCK_TOKENS +
                octet % (KV_BLOCK_TOKENS / ATTEND_KEYS) * ATTEND_KEYS) *
               a.head_dim;
    }
};

#endif
