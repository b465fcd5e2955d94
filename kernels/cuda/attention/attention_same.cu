/* kernels/cuda/attention/attention_same.cu - launches attention_same.cuh and attention_same_parts.cuh for tokens as
 * qkv_store leaves them, and the former for fresh ones (attention_fresh.cuh), with the same bits. The latter are slower
 * where items are divided, or fill the device twice (H200, Llama-3-8B: 2 % of a step of 4 sequences after 8,000 tokens,
 * and of one of 64). */
#include "kernels/cuda/attention/attention_fresh.cuh"
#include "kernels/cuda/attention/attention_host.cuh"
#include "kernels/cuda/attention/attention_same_parts.cuh"

#include <type_traits>

#define SAME_LEAST_PARTS 4  /* into which the steps of an item are divided, if they are */
#define SAME_PARTS       32 /* at most */
#define SAME_SLOTS       6  /* pieces in each ring, */
#define SAME_FEW_SLOTS   3  /* and where many blocks share a multiprocessor */

/* grid: tokens, items of a token, parts into which items with many steps are divided */
template <typename T, int HD, int SLOTS>
__global__ void __launch_bounds__(SAME_WARPS * 32, same_blocks<T, HD, SLOTS>()) attention_same(attention_args<T> a)
{
    extern __shared__ uint4 shared[];
    same_warp<T, HD, SLOTS, stored_token<T, HD>> w(a, (same_shared<T, HD, SLOTS> *)shared, stored_token<T, HD>());
    bool divided = same_divides(w.n_steps, a.max_parts);
    if (divided)
        w.find_pieces(0);
    else
        w.find_blocks();
    let_next_begin();
    wait_for_previous();
    if (w.m.n_rows <= 0)
        return;
    if (divided)
        w.attend_part();
    else if (blockIdx.z == 0)
        w.attend_whole();
}

/* The keys and values of earlier steps are copied before the preceding kernel is done. Every item has rows (see
 * attention_fresh.cu) and is whole. grid: tokens, items of a token */
template <typename T, int HD>
__global__ void __launch_bounds__(SAME_WARPS * 32, same_blocks<T, HD, SAME_SLOTS>())
    fresh_same(attention_args<T> a, fresh_args<T> f)
{
    extern __shared__ uint4 shared[];
    same_warp<T, HD, SAME_SLOTS, fresh_token<T, HD>> w(a, (same_shared<T, HD, SAME_SLOTS> *)shared,
                                                       fresh_token<T, HD>(f));
    w.find_blocks();
    let_next_begin();
    w.attend_whole();
}

/* Do the items of n tokens fill the device twice? */
template <typename T>
static bool are_many(const struct queue *q, const attention_args<T> &a, int n)
{
    return (size_t)n * items_of(&a.heads) > 2 * (size_t)cuda_state(q)->n_multiprocessors;
}

/* Calls f(halves) for the halves of an item's rows, eight each. */
template <typename F>
static void with_halves(int rows, F f)
{
    if (rows > 8)
        f(std::integral_constant<int, 2>());
    else
        f(std::integral_constant<int, 1>());
}

/* Into how many parts the steps of n_items items are divided, 1: they are not. A part for each multiprocessor leaves
 * room there for the blocks that add values. */
static int same_parts(int n_items, int n_multiprocessors)
{
    int parts = n_multiprocessors / n_items;
    if (parts < SAME_LEAST_PARTS && 2 * n_multiprocessors / n_items >= SAME_LEAST_PARTS)
        parts = SAME_LEAST_PARTS;
    return parts < SAME_LEAST_PARTS ? 1 : parts < SAME_PARTS ? parts : SAME_PARTS;
}

/* Divides the items of n tokens if they may have many steps, and if there is memory for their scores. */
template <typename T, int HD>
static void divide_same(const struct queue *q, attention_args<T> *a, int n)
{
    using layout = same_layout<HD>;
    const struct attention_state *s = (const struct attention_state *)cuda_state(q)->attention;
    size_t n_items = (size_t)n * items_of(&a->heads);
    size_t steps = (size_t)(a->blocks_per_slot + layout::PAGES - 1) / layout::PAGES;
    int most_steps = (a->most_blocks + layout::PAGES - 1) / layout::PAGES;
    a->head_parts = (a->heads.heads_per_kv + DECODE_ROWS - 1) / DECODE_ROWS;
    a->rows_per_item = a->heads.heads_per_kv < DECODE_ROWS ? a->heads.heads_per_kv : DECODE_ROWS;
    size_t scores = n_items * steps * (size_t)(a->rows_per_item > 8 ? 16 : 8) * layout::STEP;
    size_t tops = n_items * steps * DECODE_ROWS * SAME_WARPS;
    bool fits = n_items * (steps + 1) <= MAX_ITEMS && (scores + tops) * sizeof(float) <= PARTIAL_BYTES;
    a->partial = s->partial;
    a->partial_sums = (float2 *)(s->partial + scores);
    a->n_arrived = s->n_arrived;
    a->max_parts = most_steps > SAME_WHOLE && fits ? same_parts((int)n_items, cuda_state(q)->n_multiprocessors) : 1;
}

/* Launches a kernel of scores and of whole items for the first n tokens. more: its further arguments */
template <typename T, int HD, int SLOTS, typename K, typename... M>
static void launch_scores(struct queue *q, const attention_args<T> &a, int n, K kernel, const M &...more)
{
    launch_early(q, cuda_state(q)->launches_early, kernel,
                 dim3((unsigned)n, (unsigned)items_of(&a.heads), (unsigned)a.max_parts), SAME_WARPS * 32,
                 sizeof(same_shared<T, HD, SLOTS>), a, more...);
}

template <typename T, int HD>
void attend_same(struct queue *q, attention_args<T> a, int n)
{
    divide_same<T, HD>(q, &a, n);
    if (are_many(q, a, n))
        launch_scores<T, HD, SAME_FEW_SLOTS>(q, a, n, attention_same<T, HD, SAME_FEW_SLOTS>);
    else
        launch_scores<T, HD, SAME_SLOTS>(q, a, n, attention_same<T, HD, SAME_SLOTS>);
    if (a.max_parts > 1)
        with_halves(a.rows_per_item, [&](auto halves) {
            const int HALVES = decltype(halves)::value;
            launch_early(q, cuda_state(q)->launches_early, attention_same_values<T, HD, HALVES>,
                         dim3((unsigned)n, (unsigned)items_of(&a.heads), HD / 16), SAME_THREADS,
                         sizeof(same_ring<HD, HALVES>), a);
        });
}

template <typename T, int HD>
bool store_and_attend_same(struct queue *q, attention_args<T> a, const fresh_args<T> &f)
{
    const struct attention_state *s = (const struct attention_state *)cuda_state(q)->attention;
    if (a.heads.chunk > 0 || !takes_prompts(&s->prompts, a, HD) || are_many(q, a, a.n_tokens))
        return false;
    divide_same<T, HD>(q, &a, a.n_tokens);
    if (a.max_parts > 1)
        return false;
    launch_scores<T, HD, SAME_SLOTS>(q, a, a.n_tokens, fresh_same<T, HD>, f);
    return true;
}

/* The kernels of divided items share multiprocessors, whose memory the driver must not divide for one of them alone. */
static cudaError_t allow(const void *kernel, size_t bytes)
{
    cudaError_t rc = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return rc != cudaSuccess ? rc
                             : cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                                    cudaSharedmemCarveoutMaxShared);
}

template <typename T, int HD>
static cudaError_t allow_width(void)
{
    cudaError_t rc = cudaSuccess;
    for (int rows : {8, 16})
        with_halves(rows, [&](auto halves) {
            const int HALVES = decltype(halves)::value;
            if (rc == cudaSuccess)
                rc = allow((const void *)attention_same_values<T, HD, HALVES>, sizeof(same_ring<HD, HALVES>));
        });
    if (rc == cudaSuccess)
        rc = allow((const void *)attention_same<T, HD, SAME_SLOTS>, sizeof(same_shared<T, HD, SAME_SLOTS>));
    if (rc == cudaSuccess)
        rc = allow((const void *)attention_same<T, HD, SAME_FEW_SLOTS>, sizeof(same_shared<T, HD, SAME_FEW_SLOTS>));
    if constexpr (HD == 64 || HD == 128)
        if (rc == cudaSuccess)
            rc = allow((const void *)fresh_same<T, HD>, sizeof(same_shared<T, HD, SAME_SLOTS>));
    return rc;
}

template <typename T>
static cudaError_t allow_widths(void)
{
    cudaError_t rc = allow_width<T, 64>();
    rc = rc == cudaSuccess ? allow_width<T, 80>() : rc;
    rc = rc == cudaSuccess ? allow_width<T, 96>() : rc;
    rc = rc == cudaSuccess ? allow_width<T, 128>() : rc;
    return rc == cudaSuccess ? allow_width<T, 256>() : rc;
}

cudaError_t prepare_same_attention(void)
{
    cudaError_t rc = allow_widths<__half>();
    return rc == cudaSuccess ? allow_widths<__nv_bfloat16>() : rc;
}

#define EACH_WIDTH(T)                                                                                          \
    template void attend_same<T, 64>(struct queue * q, attention_args<T> a, int n);                            \
    template void attend_same<T, 80>(struct queue * q, attention_args<T> a, int n);                            \
    template void attend_same<T, 96>(struct queue * q, attention_args<T> a, int n);                            \
    template void attend_same<T, 128>(struct queue * q, attention_args<T> a, int n);                           \
    template void attend_same<T, 256>(struct queue * q, attention_args<T> a, int n);                           \
    template bool store_and_attend_same<T, 64>(struct queue * q, attention_args<T> a, const fresh_args<T> &f); \
    template bool store_and_attend_same<T, 128>(struct queue * q, attention_args<T> a, const fresh_args<T> &f);
EACH_WIDTH(__half)
EACH_WIDTH(__nv_bfloat16)
