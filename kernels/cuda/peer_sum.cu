/* kernels/cuda/peer_sum.cu - sums over the ranks, and the ranks' columns side by side, by memory that GPUs share (peer.cuh): what
 * kernels/peer.h says.
 *
 * Small sums take one step: everybody writes its part to everybody, and adds. Large ones take two, and move 2 (n - 1) / n of
 * the bytes instead of n - 1: a stretch of the sum is made by each rank, which writes it to the others. */
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/peer.cuh"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES \
    ((size_t)4 << 20) /* of a sum; in two steps it takes twice as many, and some for what is not divided evenly */
#define THREADS 512

/* Looks at a part: some 6 minutes, longer than the default deadline of a step, which says more (rank/watch.h). */
#define PATIENCE 1000000000u

/* What cuda_peer_open makes. */
struct peer {
    struct peer_args args;
    size_t one_step_bytes; /* up to which a sum takes one step */
};

/* The sum of n vectors of elements, in their order. */
template <typename T, int R>
__device__ static inline uint4 add_parts(const uint4 (&v)[R], int n)
{
    const int N = 16 / sizeof(T);
    float sum[N];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const vec<T, N> part = *(const vec<T, N> *)&v[r];
#pragma unroll
        for (int i = 0; i < N; i++)
            if (r < n)
                sum[i] = r == 0 ? to_float(part.e[i]) : sum[i] + to_float(part.e[i]);
    }
    vec<T, N> out;
#pragma unroll
    for (int i = 0; i < N; i++)
        out.e[i] = from_float<T>(sum[i]);
    return *(const uint4 *)&out;
}

/* The i-th 16 bytes of n elements; behind the last one come zeros. */
template <typename T>
__device__ static inline uint4 vector_load(const T *data, size_t i, size_t n)
{
    const int N = 16 / sizeof(T);
    if ((i + 1) * N <= n)
        return ((const uint4 *)data)[i];
    vec<T, N> v;
    for (int k = 0; k < N; k++)
        v.e[k] = i * N + k < n ? data[i * N + k] : from_float<T>(0);
    return *(const uint4 *)&v;
}

template <typename T>
__device__ static inline void vector_store(T *data, size_t i, size_t n, const uint4 &x)
{
    const int N = 16 / sizeof(T);
    if ((i + 1) * N <= n) {
        ((uint4 *)data)[i] = x;
        return;
    }
    const vec<T, N> v = *(const vec<T, N> *)&x;
    for (int k = 0; k < N; k++)
        if (i * N + k < n)
            data[i * N + k] = v.e[k];
}

/* The sum of everybody's vector, this rank's being `own`; that of rank r arrives at from + r * pitch. */
template <typename T, int R>
__device__ static inline uint4 sum_of_all(const peer_args &a, size_t from, size_t pitch, const uint4 &own)
{
    uint4 v[R];
#pragma unroll
    for (int r = 0; r < R; r++)
        v[r] = own;
    uint4 *mine = a.region[a.rank] + from;
    peer_await(v, [&](int r) { return r < a.n_ranks && r != a.rank ? mine + r * pitch : nullptr; });
    return add_parts<T, R>(v, a.n_ranks);
}

/* In one step. R: at least n_ranks. */
template <typename T, int R>
__global__ void __launch_bounds__(THREADS) sum_kernel(peer_args a, T *data, size_t n)
{
    after_previous();
    const size_t n_vectors = (n + 16 / sizeof(T) - 1) / (16 / sizeof(T)), stride = (size_t)gridDim.x * blockDim.x;
    const size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x, half = peer_begin(a);
    for (size_t i = first; i < n_vectors; i += stride)
        peer_send_to_all<R>(a, half + a.rank * n_vectors + i, vector_load(data, i, n));
    for (size_t i = first; i < n_vectors; i += stride)
        vector_store(data, i, n, sum_of_all<T, R>(a, half + i, n_vectors, vector_load(data, i, n)));
    peer_end(a, half);
}

/* In two steps: stretch r of the vectors is rank r's to add. In a half lie the parts of this rank's stretch, [n_ranks][longest
 * stretch], and then the whole sum. */
template <typename T, int R>
__global__ void __launch_bounds__(THREADS) stretch_sum_kernel(peer_args a, T *data, size_t n)
{
    after_previous();
    const size_t n_vectors = (n + 16 / sizeof(T) - 1) / (16 / sizeof(T)), stride = (size_t)gridDim.x * blockDim.x;
    const size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x, half = peer_begin(a);
    const size_t longest = (n_vectors + a.n_ranks - 1) / a.n_ranks, whole = half + a.n_ranks * longest;
    auto begin = [&](int r) { return n_vectors * r / a.n_ranks; };
    for (size_t i = first; i < longest; i += stride)
#pragma unroll
        for (int r = 0; r < R; r++)
            if (r < a.n_ranks && r != a.rank && begin(r) + i < begin(r + 1))
                peer_send(a.region[r] + half + a.rank * longest + i, vector_load(data, begin(r) + i, n));
    for (size_t i = first; begin(a.rank) + i < begin(a.rank + 1); i += stride) {
        size_t at = begin(a.rank) + i;
        uint4 sum = sum_of_all<T, R>(a, half + i, longest, vector_load(data, at, n));
        peer_send_to_all<R>(a, whole + at, sum);
        vector_store(data, at, n, sum);
    }
    for (size_t i = first; i < longest; i += stride) {
        auto theirs = [&](int r) { return r < a.n_ranks && r != a.rank && begin(r) + i < begin(r + 1); };
        uint4 v[R] = {};
        peer_await(v, [&](int r) { return theirs(r) ? a.region[a.rank] + whole + begin(r) + i : nullptr; });
#pragma unroll
        for (int r = 0; r < R; r++)
            if (theirs(r))
                vector_store(data, begin(r) + i, n, v[r]);
    }
    peer_end(a, half);
}

/* One block a token: the sum of its row in one step, and its norm. */
template <typename T, int R>
__global__ void __launch_bounds__(1024) sum_norm_kernel(peer_args a, T *out, T *x, const T *partial, norm_args norm)
{
    after_previous();
    const int N = 16 / sizeof(T);
    using V = vec<T, N>;
    const size_t row = (size_t)blockIdx.x * norm.dim, n_vectors = (size_t)gridDim.x * norm.dim / N;
    const size_t half = peer_begin(a);
    for (int c = threadIdx.x * N; c < norm.dim; c += blockDim.x * N)
        peer_send_to_all<R>(a, half + a.rank * n_vectors + (row + c) / N, *(const uint4 *)(partial + row + c));
    norm_row<T, N>(norm, out + row, x + row, [&](int c) {
        V v = *(const V *)(x + row + c);
        uint4 sum = sum_of_all<T, R>(a, half + (row + c) / N, n_vectors, *(const uint4 *)(partial + row + c));
        v = vec_add(v, *(const V *)&sum);
        *(V *)(x + row + c) = v;
        return v;
    });
    peer_end(a, half);
}

/* Where the ranks' columns begin, and their number. */
struct column_begins {
    int at[PEER_MAX_RANKS + 1];
};

/* Element e of rank r's [n_rows, its columns] becomes one of out, [n_rows, all columns]; N of them at a time, of one row. */
template <typename T, int N>
__device__ static inline void columns_store(T *out, const column_begins &begin, int r, int n_ranks, size_t e, size_t n,
                                            const uint4 &x)
{
    const vec<T, 16 / sizeof(T)> v = *(const vec<T, 16 / sizeof(T)> *)&x;
    const unsigned width = begin.at[r + 1] - begin.at[r];
#pragma unroll
    for (int k = 0; k < 16 / (int)sizeof(T); k += N)
        if (e + k < n) {
            size_t row = (e + k) / width, at = row * begin.at[n_ranks] + begin.at[r] + (e + k) % width;
            if (N == 1)
                out[at] = v.e[k];
            else
                *(uint4 *)(out + at) = x;
        }
}

/* The ranks' columns side by side: in [n_rows, this rank's], out [n_rows, all]. In a half lie the ranks' parts, [n_ranks][vectors
 * of the longest]. N: elements that are stored together. */
template <typename T, int N, int R>
__global__ void __launch_bounds__(THREADS)
    gather_kernel(peer_args a, T *out, const T *in, column_begins begin, int n_rows, size_t longest)
{
    after_previous();
    const size_t stride = (size_t)gridDim.x * blockDim.x, first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    const size_t half = peer_begin(a);
    auto count = [&](int r) { return (size_t)n_rows * (begin.at[r + 1] - begin.at[r]); };
    auto has = [&](int r, size_t i) { return r < a.n_ranks && i * (16 / sizeof(T)) < count(r); };
    for (size_t i = first; has(a.rank, i); i += stride)
        peer_send_to_all<R>(a, half + a.rank * longest + i, vector_load(in, i, count(a.rank)));
    for (size_t i = first; i < longest; i += stride) {
        uint4 v[R] = {};
        uint4 *mine = a.region[a.rank] + half + i;
        peer_await(v, [&](int r) { return r != a.rank && has(r, i) ? mine + r * longest : nullptr; });
#pragma unroll
        for (int r = 0; r < R; r++)
            if (has(r, i))
                columns_store<T, N>(out, begin, r, a.n_ranks, i * (16 / sizeof(T)), count(r),
                                    r == a.rank ? no_holes(vector_load(in, i, count(r))) : v[r]);
    }
    peer_end(a, half);
}

/* f(T(), the number of ranks as a constant, at least theirs) */
template <typename F>
static void with_ranks(struct queue *q, int n_ranks, F f)
{
    with_type(q->act, [&](auto t) {
        if (n_ranks <= 2)
            f(t, std::integral_constant<int, 2>());
        else if (n_ranks <= 4)
            f(t, std::integral_constant<int, 4>());
        else
            f(t, std::integral_constant<int, PEER_MAX_RANKS>());
    });
}

void cuda_peer_patience(struct queue *q, uint32_t looks)
{
    const decltype(peer_patience) patience = {cuda_state(q)->vain, looks};
    CUDA_TRY(q, cudaMemcpyToSymbol(peer_patience, &patience, sizeof patience));
}

static int tune_threads, tune_blocks = PEER_MAX_BLOCKS, tune_one = -1;

extern "C" void cuda_peer_tune(int threads, int blocks, int one)
{
    tune_threads = threads;
    tune_blocks = blocks;
    tune_one = one;
}

const char *cuda_peer_refusal(struct queue *q, int n_ranks)
{
    if (n_ranks > PEER_MAX_RANKS)
        return "more than 8 ranks";
    return cuda_state(q)->n_multiprocessors < PEER_MAX_BLOCKS ? "a GPU of fewer than 64 multiprocessors" : nullptr;
}

void *cuda_peer_open(struct queue *q, int rank, int n_ranks)
{
    struct peer *p = (struct peer *)err_calloc(&q->err, 1, sizeof *p, "sums over peer memory");
    if (p == nullptr)
        return nullptr;
    struct peer_args *a = &p->args;
    a->rank = rank;
    a->n_ranks = n_ranks;
    a->region[rank] = (uint4 *)cuda_alloc(q, 2 * PEER_HALF_BYTES);
    a->turn = (uint32_t *)cuda_alloc(q, PEER_MAX_BLOCKS * sizeof *a->turn);
    const char *v = getenv("PEER_PATIENCE");
    cuda_peer_patience(q, v ? (uint32_t)atoi(v) : PATIENCE);
    p->one_step_bytes = n_ranks <= 2 ? MOST_BYTES : n_ranks <= 4 ? 512 << 10 : 256 << 10;
    v = getenv("PEER_ONE");
    if (v)
        p->one_step_bytes = (size_t)atoi(v) << 10;
    if (a->region[rank] != nullptr && a->turn != nullptr) {
        CUDA_TRY(q, cudaMemsetAsync(a->region[rank], 0xff, 2 * PEER_HALF_BYTES, cuda_stream(q)));
        return p;
    }
    cuda_peer_close(q, p);
    return nullptr;
}

void *cuda_peer_memory(void *opened)
{
    const struct peer_args *a = &((struct peer *)opened)->args;
    return a->region[a->rank];
}

void cuda_peer_attach(void *opened, void *const *memory)
{
    struct peer_args *a = &((struct peer *)opened)->args;
    for (int r = 0; r < a->n_ranks; r++)
        a->region[r] = (uint4 *)memory[r];
}

void cuda_peer_close(struct queue *q, void *opened)
{
    struct peer *p = (struct peer *)opened;
    if (p == nullptr)
        return;
    cuda_free(q, p->args.region[p->args.rank]);
    cuda_free(q, p->args.turn);
    free(p);
}

bool cuda_peer_takes_sum(const struct queue *q, const void *opened, size_t n)
{
    (void)opened;
    return n * dtype_bytes(q->act) <= MOST_BYTES;
}

void cuda_peer_sum(struct queue *q, void *opened, void *data, size_t n)
{
    nvtx_range range("peer sum");
    const struct peer *p = (const struct peer *)opened;
    size_t bytes = n * dtype_bytes(q->act), vectors = (bytes + 15) / 16;
    bool one_step = bytes <= (tune_one >= 0 ? (size_t)tune_one << 10 : p->one_step_bytes);
    size_t work = one_step ? vectors : (vectors + p->args.n_ranks - 1) / p->args.n_ranks;
    int threads = work <= PEER_MAX_BLOCKS * 128 ? 128 : work <= PEER_MAX_BLOCKS * 256 ? 256 : THREADS;
    if (tune_threads)
        threads = tune_threads;
    unsigned blocks = blocks_for(work, threads);
    if (blocks > (unsigned)tune_blocks)
        blocks = tune_blocks;
    with_ranks(q, p->args.n_ranks, [&](auto t, auto r) {
        using T = decltype(t);
        launch(q, one_step ? sum_kernel<T, r> : stretch_sum_kernel<T, r>,
               dim3(blocks < PEER_MAX_BLOCKS ? blocks : PEER_MAX_BLOCKS), dim3((unsigned)threads), 0, p->args,
               (T *)data, n);
    });
}

bool cuda_peer_takes_sum_norm(const struct queue *q, const void *opened, int n_tokens, int dim)
{
    const struct peer *p = (const struct peer *)opened;
    size_t row_bytes = (size_t)dim * dtype_bytes(q->act);
    return n_tokens <= PEER_MAX_BLOCKS && row_bytes % 16 == 0 && n_tokens * row_bytes <= p->one_step_bytes;
}

void cuda_peer_sum_norm(struct queue *q, void *opened, void *out, void *x, const void *partial, enum norm_kind kind,
                        const struct weight *w, const struct weight *b, int n_tokens, int dim, float eps)
{
    nvtx_range range("peer sum, norm");
    const struct peer *p = (const struct peer *)opened;
    const struct norm_args a = norm_make(kind, w, b, dim, eps);
    with_ranks(q, p->args.n_ranks, [&](auto t, auto r) {
        using T = decltype(t);
        launch(q, sum_norm_kernel<T, r>, dim3((unsigned)n_tokens), norm_threads(dim, 16 / sizeof(T)),
               norm_shared_bytes(a), p->args, (T *)out, (T *)x, (const T *)partial, a);
    });
}

/* Vectors of the largest of the ranks' parts; 0: one has nothing. */
static size_t longest_part(const struct queue *q, const int *begin, int n_ranks, int n_rows)
{
    int widest = 0;
    for (int r = 0; r < n_ranks; r++) {
        if (begin[r + 1] <= begin[r])
            return 0;
        widest = begin[r + 1] - begin[r] > widest ? begin[r + 1] - begin[r] : widest;
    }
    return ((size_t)n_rows * (size_t)widest * dtype_bytes(q->act) + 15) / 16;
}

/* Nobody waits for a rank that has nothing, which the turns of the memory's halves do not allow. */
bool cuda_peer_takes_columns(const struct queue *q, const void *opened, const int *begin, int n_rows)
{
    const struct peer *p = (const struct peer *)opened;
    size_t longest = longest_part(q, begin, p->args.n_ranks, n_rows);
    return longest > 0 && p->args.n_ranks * longest * 16 <= PEER_HALF_BYTES;
}

void cuda_peer_gather_columns(struct queue *q, void *opened, void *out, const void *in, const int *begin, int n_rows)
{
    nvtx_range range("peer gather");
    const struct peer *p = (const struct peer *)opened;
    const size_t n_ranks = p->args.n_ranks, longest = longest_part(q, begin, (int)n_ranks, n_rows);
    struct column_begins begins = {};
    bool fits = (uintptr_t)out % 16 == 0;
    for (size_t r = 0; r <= n_ranks; r++) {
        begins.at[r] = begin[r];
        fits = fits && (size_t)begin[r] * dtype_bytes(q->act) % 16 == 0;
    }
    unsigned blocks = blocks_for(longest, THREADS);
    with_ranks(q, (int)n_ranks, [&](auto t, auto r) {
        using T = decltype(t);
        launch(q, fits ? gather_kernel<T, 16 / sizeof(T), r> : gather_kernel<T, 1, r>,
               dim3(blocks < PEER_MAX_BLOCKS ? blocks : PEER_MAX_BLOCKS), dim3(THREADS), 0, p->args, (T *)out,
               (const T *)in, begins, n_rows, longest);
    });
}
