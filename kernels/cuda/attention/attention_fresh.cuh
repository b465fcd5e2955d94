/* kernels/cuda/attention/attention_fresh.cuh - a token as the product with Q, K and V leaves it: attention rotates its
 * queries and its key in registers, stores key and value in the cache, and puts them into the copy of their block. Its
 * heads are rotated whole, half-split, and have no norms. The roundings are those of qkv_store.cu. */
#ifndef ATTENTION_ATTENTION_FRESH_CUH
#define ATTENTION_ATTENTION_FRESH_CUH

#include "kernels/cuda/attention/attention_ring.cuh"
#include "kernels/cuda/rotation.cuh"

/* The angles and the cache, which it changes. */
template <typename T>
struct fresh_args {
    const float *cos_sin; /* [n_tokens, head_dim] */
    T *k_cache, *v_cache;
};

/* Rotates two elements of the first half of a head, and those of the second half that belong to them. */
template <typename T>
__device__ static inline void rotate_two(uint32_t &low, uint32_t &high, float2 cosine, float2 sine)
{
    float2 a = tensor_unpack<T>(low), b = tensor_unpack<T>(high);
    rotate_pair(a.x, b.x, cosine.x, sine.x);
    rotate_pair(a.y, b.y, cosine.y, sine.y);
    low = tensor_pack<T>(a.x, a.y);
    high = tensor_pack<T>(b.x, b.y);
}

/* The counterpart of stored_token. */
template <typename T, int HD>
struct fresh_token {
    static const bool FRESH = true;
    static const int TWOS = HD / 4, LANES = TWOS < 32 ? TWOS : 32, PER = TWOS / LANES;
    const fresh_args<T> f;
    uint32_t k[PER][2], v[PER][2]; /* two elements of each half */

    __device__ explicit fresh_token(const fresh_args<T> &args) : f(args) {}
    __device__ void rotate_query(attention_query<T, HD> &query, const float *angles) const
    {
        const float *mine = angles + threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < HD / 32; i++) {
            uint4 &low = query.kept[i], &high = query.kept[i + HD / 32];
            float2 cosine = *(const float2 *)(mine + i * 16), sine = *(const float2 *)(mine + HD / 2 + i * 16);
            rotate_two<T>(low.x, high.x, cosine, sine);
            rotate_two<T>(low.y, high.y, cosine, sine);
            cosine = *(const float2 *)(mine + i * 16 + 8), sine = *(const float2 *)(mine + HD / 2 + i * 16 + 8);
            rotate_two<T>(low.z, high.z, cosine, sine);
            rotate_two<T>(low.w, high.w, cosine, sine);
        }
    }
    /* Calls f(which, column in the first half) for this lane's parts of a head. */
    template <typename F>
    __device__ static void each(F f)
    {
        int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (lane < LANES)
                f(i, (lane + i * LANES) * 2);
    }
    __device__ static void load_two(uint32_t (&to)[2], const T *head, int column)
    {
        to[0] = *(const uint32_t *)(head + column);
        to[1] = *(const uint32_t *)(head + HD / 2 + column);
    }
    __device__ static void store_two(T *head, int column, const uint32_t (&of)[2])
    {
        *(uint32_t *)(head + column) = of[0];
        *(uint32_t *)(head + HD / 2 + column) = of[1];
    }
    /* Rotates the query. own: this warp has the block of the token's key, so it takes key and value, too. */
    __device__ void load(attention_query<T, HD> &query, const attention_args<T> &a, const decode_item &m, bool own)
    {
        const float *angles = f.cos_sin + (size_t)m.t * HD;
        if (own) {
            const T *key = query_row(a, m.t, a.heads.n_heads + m.kv), *value = key + a.heads.n_kv_heads * HD;
            each([&](int i, int column) { load_two(k[i], key, column), load_two(v[i], value, column); });
        }
        rotate_query(query, angles);
        if (!own)
            return;
        each([&](int i, int column) {
            rotate_two<T>(k[i][0], k[i][1], *(const float2 *)(angles + column),
                          *(const float2 *)(angles + HD / 2 + column));
        });
        int row = m.seen.last % KV_BLOCK_TOKENS, id = m.table[m.seen.last / KV_BLOCK_TOKENS];
        if (id < 0)
            return;
        size_t at = (((size_t)id * a.heads.n_kv_heads + m.kv) * KV_BLOCK_TOKENS + row) * HD;
        each([&](int i, int column) {
            store_two(f.k_cache + at, column, k[i]);
            store_two(f.v_cache + at, column, v[i]);
        });
    }
    /* Puts the key into the copy of its block, whose units of 16 bytes lie as ROWS says. */
    template <typename ROWS>
    __device__ void put_key(uint4 *block, int row) const
    {
        each([&](int i, int column) {
            *((uint32_t *)(block + ROWS::at(row, column / 8)) + column % 8 / 2) = k[i][0];
            *((uint32_t *)(block + ROWS::at(row, (HD / 2 + column) / 8)) + column % 8 / 2) = k[i][1];
        });
    }
    /* Puts key and value into the copy of their block. */
    __device__ void put(T *k_block, T *v_block, int row) const
    {
        const int PITCH = attention_tile<HD>::pitch;
        each([&](int i, int column) {
            store_two(k_block + row * PITCH, column, k[i]);
            store_two(v_block + row * PITCH, column, v[i]);
        });
    }
};

#endif
