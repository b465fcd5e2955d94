/* kernels/cuda/step/persistent_lone.cuh - what kernels with CHAIN_LONE or CHAIN_ONE know about the numbers of tokens
 * and ranks. Only persistent_chain.cuh includes this. */
#ifndef STEP_PERSISTENT_LONE_CUH
#define STEP_PERSISTENT_LONE_CUH

/* The host sets the member that has no name of its own here. */
#define CHAIN_TOKENS                   \
    static constexpr int n_tokens = 1; \
    int n_tokens_given

#if CHAIN_LONE == 1
#define CHAIN_NUMBER                  \
    static constexpr int n_ranks = 1; \
    int n_ranks_given
#elif CHAIN_LONE == 2
/* Every reader learns that there is a sum over the ranks, of few. */
struct several_ranks {
    int given;
    __device__ operator int() const
    {
        __builtin_assume(given >= 2 && given <= LONE_RANKS);
        return given;
    }
};
#define CHAIN_NUMBER struct several_ranks n_ranks
#else
#define CHAIN_NUMBER int n_ranks
#endif

#endif
