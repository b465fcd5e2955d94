/* kernels/cuda/step/persistent_lone_sum.cuh - the sum over the ranks in kernels for one token on several ranks. Only
 * persistent_results.cuh includes this, in place of the sum for all other kernels. */
#ifndef STEP_PERSISTENT_LONE_SUM_CUH
#define STEP_PERSISTENT_LONE_SUM_CUH

/* Waits for two words of one rank, if they are wanted, as word_await_ranks waits for those of all. */
__device__ static inline ulonglong2 word_await_rank(const unsigned long long *from, bool wanted, int rank,
                                                    uint32_t epoch)
{
    const unsigned long long none = (unsigned long long)epoch << 32;
    ulonglong2 load[2];
    uint32_t since = (uint32_t)clock64() - WORD_PAUSE;
    unsigned rounds = 0;
    auto begin = [&](ulonglong2 &to) {
        while ((uint32_t)clock64() - since < WORD_PAUSE)
            ;
        since = (uint32_t)clock64();
        to = wanted ? word_load2<true>(from) : make_ulonglong2(none, none);
    };
    begin(load[0]);
    begin(load[1]);
    for (;;) {
#pragma unroll
        for (int l = 0; l < 2; l++) {
            if (!word_is_stale(load[l], epoch))
                return load[l];
            begin(load[l]);
        }
        if (++rounds == word_patience.for_others)
            word_give_up<true>(rank, epoch);
    }
}

/* As chain_reduce_ranks, but LONE_RANKS lanes share a pair of rows: each waits for one rank's words, and they exchange
 * them. One lane that waits for all takes more instructions and registers. */
template <typename T, bool WIDE>
__device__ static inline float chain_reduce(const chain_args &a, const chain_shared &sh, int x, bool embedding,
                                            uint32_t epoch)
{
    const chain_share &share = sh.share[CHAIN_PRODUCTS - 1];
    const int pairs = (share.end - share.begin) / 2, i = (int)threadIdx.x / LONE_RANKS, rank = threadIdx.x % LONE_RANKS,
              row = share.begin + min(i, pairs - 1) * 2;
    if ((int)threadIdx.x / 32 * 32 / LONE_RANKS >= pairs) /* the warp has none */
        return 0;
    const unsigned long long *from = a.sum[a.rank] + chain_sum_at(a, chain_sum_place(a, x, epoch), rank, 0, row);
    const float *residual = sh.at<float>(a.at.residual) + row - share.begin;
    const float before[2] = {residual[0], residual[1]};
    const ulonglong2 v = word_await_rank(from, rank < a.n_ranks && i < pairs, rank, epoch);
    float s0 = 0, s1 = 0;
#pragma unroll
    for (int r = 0; r < LONE_RANKS; r++) { /* ranks that do not exist add 0 */
        s0 += __shfl_sync(0xffffffffu, word_value(v.x), r, LONE_RANKS);
        s1 += __shfl_sync(0xffffffffu, word_value(v.y), r, LONE_RANKS);
    }
    if (rank > 0 || i >= pairs)
        return 0;
    if (embedding)
        return chain_embedded<T, WIDE>(a, sh, 0, row, s0, s1, epoch);
    return chain_set_x<T, WIDE>(a, sh, x, 0, row, before[0] + rounded<T>(s0), before[1] + rounded<T>(s1), epoch);
}

#endif
