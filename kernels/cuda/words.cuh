/* kernels/cuda/words.cuh - values that carry their own flag: words of 8 bytes, half value, half epoch, written and read
 * whole. A reader polls a word until it has the awaited epoch, so no ordering is needed: neither fences nor barriers
 * between the blocks of a kernel, nor between the devices of a host. */
#ifndef KERNELS_CUDA_WORDS_CUH
#define KERNELS_CUDA_WORDS_CUH

#include "kernels/cuda/tensor.cuh"

#define WORD_PAUSE 120u /* clocks between two loads of the same words of other devices, at least */
#define WORD_RANKS 4    /* ranks whose words are loaded twice at a time: registers set the limit */

/* The number of reads of a word after which a kernel gives up, and the host memory that is examined when a launch has
 * failed (memory.cu). If a peer is gone, or after a bug of ours, the launch fails, and with it the job, instead of
 * hanging. */
static __constant__ struct {
    struct cuda_vain *vain;
    uint32_t for_others, for_own;
} word_patience;

/* Two numbers of type T. */
template <typename T>
__device__ static inline unsigned long long word_pair(float low, float high, uint32_t epoch)
{
    return (unsigned long long)epoch << 32 | tensor_pack<T>(low, high);
}

__device__ static inline unsigned long long word_float(float x, uint32_t epoch)
{
    return (unsigned long long)epoch << 32 | __float_as_uint(x);
}

__device__ static inline float word_value(unsigned long long word)
{
    return __uint_as_float((uint32_t)word);
}

/* For readers on this device. */
__device__ static inline void word_publish(unsigned long long *to, unsigned long long word)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

/* Two neighbouring words at a multiple of 16 bytes, for readers on this device or, `system`, on others. */
template <bool system>
__device__ static inline void word_publish2(unsigned long long *to, unsigned long long a, unsigned long long b)
{
    if (system)
        asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(a), "l"(b) : "memory");
    else
        asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(a), "l"(b) : "memory");
}

template <bool system>
__device__ static inline ulonglong2 word_load2(const unsigned long long *from)
{
    ulonglong2 v;
    if (system)
        asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(from) : "memory");
    else
        asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(from) : "memory");
    return v;
}

__device__ static inline bool word_is_stale(const ulonglong2 &v, uint32_t epoch)
{
    return (uint32_t)(v.x >> 32) != epoch || (uint32_t)(v.y >> 32) != epoch;
}

/* Traps: `from` did not arrive; one word for each item of the report to the host: see cuda_vain. */
template <bool system>
__device__ static inline void word_give_up(uint32_t from, uint32_t epoch)
{
    struct cuda_vain *vain = word_patience.vain;
    word_publish2<true>(system ? vain->for_others : vain->for_own, epoch, (unsigned long long)from << 32 | blockIdx.x);
    __threadfence_system();
    __trap();
    __builtin_unreachable(); /* the compiler assumes that a trap returns, and keeps registers for that */
}

/* Waits for v[i] = the two words at at(i) of this device; all loads are in flight at once. Zeros where not wanted(i).
 * one: NULL, or two words that all lanes await. Until they arrive no others are read again: so many futile reads would
 * slow down the awaited writes. */
template <int N, typename WANTED, typename AT>
__device__ static inline void word_await(ulonglong2 (&v)[N], WANTED wanted, AT at, uint32_t epoch,
                                         const unsigned long long *one = nullptr)
{
    const unsigned long long none = (unsigned long long)epoch << 32;
    const unsigned patience = word_patience.for_own;
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = wanted(i) ? word_load2<false>(at(i)) : make_ulonglong2(none, none);
    unsigned rounds = 0;
    while (one != nullptr && word_is_stale(word_load2<false>(one), epoch))
        if (++rounds == patience)
            word_give_up<false>(0, epoch);
    for (bool again = true; again;) {
        again = false;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (word_is_stale(v[i], epoch)) {
                again = true;
                v[i] = word_load2<false>(at(i));
            }
        if (++rounds == patience)
            word_give_up<false>(0, epoch);
    }
}

/* The same for words that other devices write, v[r] rank r's. Few threads wait for them, and all others for those few;
 * a load takes 700 to 1900 clocks while weights are in flight. So two loads of each are in flight, staggered: a word
 * that just misses one is seen by the next. */
template <int N, typename WANTED, typename AT>
__device__ static inline void word_await_ranks(ulonglong2 (&v)[N], WANTED wanted, AT at, uint32_t epoch)
{
    const int LOADS = N <= WORD_RANKS ? 2 : 1;
    const unsigned long long none = (unsigned long long)epoch << 32;
    ulonglong2 load[LOADS][N];
    uint32_t since = (uint32_t)clock64() - WORD_PAUSE;
    unsigned rounds = 0;
    auto begin = [&](ulonglong2(&to)[N]) {
        while ((uint32_t)clock64() - since < WORD_PAUSE)
            ;
        since = (uint32_t)clock64();
#pragma unroll
        for (int r = 0; r < N; r++)
            to[r] = wanted(r) ? word_load2<true>(at(r)) : make_ulonglong2(none, none);
    };
#pragma unroll
    for (int l = 0; l < LOADS; l++)
        begin(load[l]);
    for (;;) {
#pragma unroll
        for (int l = 0; l < LOADS; l++) {
            bool stale = false;
#pragma unroll
            for (int r = 0; r < N; r++)
                stale |= word_is_stale(load[l][r], epoch);
            if (!stale) {
#pragma unroll
                for (int r = 0; r < N; r++)
                    v[r] = load[l][r];
                return;
            }
            begin(load[l]);
        }
        if (++rounds == word_patience.for_others) {
            unsigned late = 0;
            for (int r = 0; r < N; r++)
                late = word_is_stale(load[0][r], epoch) ? r : late;
            word_give_up<true>(late, epoch);
        }
    }
}

#endif
