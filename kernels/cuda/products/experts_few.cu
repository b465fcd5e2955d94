/* kernels/cuda/products/experts_few.cu - selects the products of quantised experts that coded_few.cuh and fours_few.cuh
 * compute, and launches them. */
#include "kernels/cuda/products/codes_map.cuh"
#include "kernels/cuda/products/fours_digits.cuh"
#include "kernels/cuda/products/fours_few.cuh"
#include "kernels/cuda/warpgroup_host.cuh"

#define SHARED_BYTES (227 * 1024)
#define MOST_MEAN    32 /* tokens of an expert */

/* Calls f(kernel) for one product and length of runs. */
template <typename T, bool FIRST, int NT, typename F>
static void with_codes(enum codes codes, F f)
{
    if (codes == CODES_E4M3)
        f(coded_few<T, CODES_E4M3, FIRST, NT>);
    else
        f(coded_few<T, CODES_E2M1, FIRST, NT>);
}

template <typename T, bool FIRST, typename F>
static void with_length(enum codes codes, int tokens, F f)
{
    if (tokens <= 8)
        with_codes<T, FIRST, 8>(codes, f);
    else if (tokens <= 16)
        with_codes<T, FIRST, 16>(codes, f);
    else
        with_codes<T, FIRST, 32>(codes, f);
}

template <typename T, bool FIRST>
static void prepare(struct queue *q)
{
    for (int tokens = 8; tokens <= FEW_TOKENS; tokens *= 2)
        for (enum codes codes : {CODES_E4M3, CODES_E2M1})
            with_length<T, FIRST>(codes, tokens, [&](auto kernel) {
                CUDA_TRY(q, cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 SHARED_BYTES));
            });
}

template <typename T, bool FIRST>
static void prepare_fours(struct queue *q)
{
    CUDA_TRY(q, cudaFuncSetAttribute((const void *)fours_few<T, FIRST>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     SHARED_BYTES));
}

static void prepare_digits(struct queue *q)
{
    for (auto kernel : {fours_digits<true>, fours_digits<false>})
        CUDA_TRY(q,
                 cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES));
}

void prepare_few_experts(struct queue *q)
{
    prepare_digits(q);
    prepare_fours<__half, true>(q), prepare_fours<__half, false>(q);
    prepare_fours<__nv_bfloat16, true>(q), prepare_fours<__nv_bfloat16, false>(q);
    prepare<__half, true>(q), prepare<__half, false>(q);
    prepare<__nv_bfloat16, true>(q), prepare<__nv_bfloat16, false>(q);
}

/* A scale covers a lane's 32 columns, or the 128 of a step. */
static bool takes_form(const struct weight *w)
{
    const struct code_form *f = &w->form;
    int columns = f->codes == CODES_E2M1 ? 32 : FEW_COLS;
    if ((f->codes != CODES_E2M1 || f->scale != SCALE_E8M0) && (f->codes != CODES_E4M3 || f->scale != SCALE_F32))
        return false;
    if ((uint64_t)w->rows * (uint64_t)code_groups(f, w->cols) > UINT32_MAX)
        return false;
    return code_groups(f, w->cols) == 1 ||
           (f->group % columns == 0 && f->first % columns == 0 && (f->group & (f->group - 1)) == 0);
}

/* Maximum tokens of a run: few experts have more. */
static int length_of(int n_tokens, int mean)
{
    return n_tokens <= 8 || mean <= 4 ? 8 : mean <= 12 ? 16 : FEW_TOKENS;
}

/* E2M1 in short runs with a ring, where that and the x of a run fit. */
template <typename T>
static bool launch_fours(struct queue *q, const expert_product<T> &a, const struct weight *w, bool first, int length,
                         size_t run)
{
    const struct code_form *f = &w->form;
    int steps = (a.cols + FEW_COLS - 1) / FEW_COLS, groups = code_groups(f, w->cols);
    size_t rest = sizeof(few_shared) + fours_ring_bytes(steps, groups);
    if (f->codes != CODES_E2M1 || (f->group != 32 && groups > 1) || length > 8 || rest + run > SHARED_BYTES)
        return false;
    int runs = rest + FEW_RUNS * run <= SHARED_BYTES ? FEW_RUNS : 1;
    launch(q, first ? fours_few<T, true> : fours_few<T, false>, dim3((unsigned)cuda_state(q)->n_multiprocessors),
           dim3(FEW_THREADS), rest + (size_t)runs * run, a, coded_rows(w, 0), runs);
    return true;
}

/* Tokens of an expert on average up to which fours_digits.cuh is the fastest. More of them need a pass over x for each
 * run, which small matrices are too short for (H200, a step before and with it, us: gpt-oss-20b, rows of 2,880, 32
 * tokens 4,686; 4,429, 64 6,004; 5,575, 80 6,388; 6,480; Qwen3-30B-A3B, rows of 768 and 2,048, 64 tokens 7,683;
 * 8,516). */
static int most_of_digits(int rows)
{
    return rows > 2048 ? 8 : 2;
}

/* E2M1 beside bfloat16 in short runs, by warpgroups: where the scales of a tile begin at multiples of 16 bytes. */
template <typename T>
static bool launch_digits(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                          const struct weight *w, bool first)
{
    if constexpr (std::is_same<T, __nv_bfloat16>::value) {
        const struct code_form *f = &w->form;
        const int groups = code_groups(f, w->cols);
        if (encode == nullptr || f->codes != CODES_E2M1 || f->group != 32 || f->first != 0 ||
            (a.n_tokens > DIGITS_TOKENS && a.n_tokens * a.n_chosen > most_of_digits(a.rows) * a.n_experts) ||
            a.rows % (first ? DIGITS_BOX : DIGITS_ROWS) != 0 || (first && !has_gate_formula(a.kind)) ||
            groups > DIGITS_MOST_GROUPS || digits_bytes(groups) > SHARED_BYTES)
            return false;
        const coded codes = coded_rows(w, 0);
        /* Between the router and the first product nothing writes x but weigh_input, for one chosen expert, and the
         * reordering of columns. */
        const bool early = first && a.n_chosen > 1 && w->order == NULL;
        launch(q, first ? fours_digits<true> : fours_digits<false>, dim3((unsigned)cuda_state(q)->n_multiprocessors),
               dim3(DIGITS_THREADS), digits_bytes(groups), a, codes,
               codes_map(q, encode, a, codes, a.n_held, first, digits_box(first), CU_TENSOR_MAP_SWIZZLE_NONE), early);
        return true;
    }
    return false;
}

template <typename T>
bool few_experts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<T> &a,
                 const struct weight *w, bool first)
{
    int mean = a.n_tokens * a.n_chosen / a.n_experts, length = length_of(a.n_tokens, mean);
    size_t steps = (size_t)(a.cols + FEW_COLS - 1) / FEW_COLS, run = steps * (size_t)length * FEW_COLS * sizeof(T);
    if (!takes_form(w) || mean > MOST_MEAN || sizeof(few_shared) + run > SHARED_BYTES)
        return false;
    if (launch_digits(q, encode, a, w, first) || launch_fours(q, a, w, first, length, run))
        return true;
    int runs = sizeof(few_shared) + FEW_RUNS * run <= SHARED_BYTES ? FEW_RUNS : 1;
    auto start = [&](auto kernel) {
        launch(q, kernel, dim3((unsigned)cuda_state(q)->n_multiprocessors), dim3(FEW_THREADS),
               sizeof(few_shared) + (size_t)runs * run, a, coded_rows(w, 0), runs);
    };
    if (first)
        with_length<T, true>(w->form.codes, length, start);
    else
        with_length<T, false>(w->form.codes, length, start);
    return true;
}

template bool few_experts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode, const expert_product<__half> &a,
                          const struct weight *w, bool first);
template bool few_experts(struct queue *q, PFN_cuTensorMapEncodeTiled_v12000 encode,
                          const expert_product<__nv_bfloat16> &a, const struct weight *w, bool first);
