/* kernels/cuda/peer/peer_sum.cu - sums over the ranks, and joining the ranks' columns, over memory that GPUs share
 * (peer.cuh); see kernels/peer.h. Small sums take one step: every rank writes its part to all others, and adds. Large
 * ones take two, and move 2 (n - 1) / n times the bytes instead of n - 1 times: each rank adds one stretch of the sum
 * and writes it to the others. */
#include "kernels/cuda/peer/adding.cuh"
#include "kernels/cuda/peer/peer.cuh"

#include <stdlib.h>

#define MOST_BYTES ((size_t)8 << 20) /* bytes of a sum at once: in two steps it needs twice as many of a half */
#define THREADS    512

/* The record that cuda_peer_open makes. */
struct peer {
    struct peer_args args;
    size_t one_step_bytes; /* largest sum in one step */
};

/* The sum of all ranks' vectors; this rank's is `own`, that of rank r arrives at from + r * pitch. */
template <typename T, int R>
__device__ static inline uint4 sum_of_all(const peer_args &a, unsigned from, unsigned pitch, const uint4 &own)
{
    uint4 v[R];
#pragma unroll
    for (int r = 0; r < R; r++)
        v[r] = own;
    uint4 *mine = a.region[a.rank] + from;
    peer_await(v, [&](int r) { return r < a.n_ranks && r != a.rank ? mine + r * pitch : nullptr; });
    return add_parts<T, R>(v, a.n_ranks);
}

/* In one step; n elements are n_vectors. R: at least n_ranks. */
template <typename T, int R>
__global__ void __launch_bounds__(THREADS) sum_kernel(peer_args a, T *data, size_t n, unsigned n_vectors)
{
    after_previous();
    const unsigned stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x, half = peer_begin(a);
    for (unsigned i = first; i < n_vectors; i += stride)
        peer_send_to_all<R>(a, half + a.rank * n_vectors + i, vector_load(data, i, n));
    for (unsigned i = first; i < n_vectors; i += stride)
        vector_store(data, i, n, sum_of_all<T, R>(a, half + i, n_vectors, vector_load(data, i, n)));
    peer_end(a, half);
}

/* The vectors of a sum that each rank adds: [begin[r], begin[r + 1]). */
struct stretches {
    unsigned begin[PEER_MAX_RANKS + 1], longest;
};

/* In two steps. A half contains the parts of this rank's stretch, [n_ranks][longest], followed by the whole sum. */
template <typename T, int R>
__global__ void __launch_bounds__(THREADS) stretch_sum_kernel(peer_args a, T *data, size_t n, stretches s)
{
    after_previous();
    const unsigned stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x, half = peer_begin(a);
    const unsigned whole = half + a.n_ranks * s.longest, begin = s.begin[a.rank], end = s.begin[a.rank + 1];
    auto theirs = [&](int r, unsigned i) { return r < a.n_ranks && r != a.rank && s.begin[r] + i < s.begin[r + 1]; };
    for (unsigned i = first; i < s.longest; i += stride) {
        uint4 v[R];
#pragma unroll
        for (int r = 0; r < R; r++)
            if (theirs(r, i))
                v[r] = vector_load(data, s.begin[r] + i, n);
#pragma unroll
        for (int r = 0; r < R; r++)
            if (theirs(r, i))
                peer_send(a.region[r] + half + a.rank * s.longest + i, v[r]);
    }
    for (unsigned i = first; begin + i < end; i += stride) {
        uint4 sum = sum_of_all<T, R>(a, half + i, s.longest, vector_load(data, begin + i, n));
        peer_send_to_all<R>(a, whole + begin + i, sum);
        vector_store(data, begin + i, n, sum);
    }
    for (unsigned i = first; i < s.longest; i += stride) {
        uint4 v[R] = {};
        uint4 *mine = a.region[a.rank] + whole + i;
        peer_await(v, [&](int r) { return theirs(r, i) ? mine + s.begin[r] : nullptr; });
#pragma unroll
        for (int r = 0; r < R; r++)
            if (theirs(r, i))
                vector_store(data, s.begin[r] + i, n, v[r]);
    }
    peer_end(a, half);
}

/* The beginnings of the ranks' columns, and their number. */
struct column_begins {
    int at[PEER_MAX_RANKS + 1];
};

/* Copies element e of rank r's [n_rows, its columns] to out, [n_rows, all columns]; N elements of one row at a time. */
template <typename T, int N>
__device__ static inline void columns_store(T *out, const column_begins &begin, int r, int n_ranks, unsigned e,
                                            unsigned n, const uint4 &x)
{
    const vec<T, 16 / sizeof(T)> v = *(const vec<T, 16 / sizeof(T)> *)&x;
    const unsigned width = begin.at[r + 1] - begin.at[r];
#pragma unroll
    for (int k = 0; k < 16 / (int)sizeof(T); k += N)
        if (e + k < n) {
            unsigned row = (e + k) / width, column = begin.at[r] + (e + k) % width;
            size_t at = (size_t)row * begin.at[n_ranks] + column;
            if (N == 1)
                out[at] = v.e[k];
            else
                *(uint4 *)(out + at) = x;
        }
}

/* Joins the ranks' columns: in [n_rows, this rank's], out [n_rows, all]. A half contains the ranks' parts,
 * [n_ranks][vectors of the longest]. N: elements stored together. */
template <typename T, int N, int R>
__global__ void __launch_bounds__(THREADS)
    gather_kernel(peer_args a, T *out, const T *in, column_begins begin, int n_rows, unsigned longest)
{
    after_previous();
    const unsigned stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x, half = peer_begin(a);
    auto count = [&](int r) { return (unsigned)n_rows * (begin.at[r + 1] - begin.at[r]); };
    auto has = [&](int r, unsigned i) { return r < a.n_ranks && i * (16 / sizeof(T)) < count(r); };
    for (unsigned i = first; has(a.rank, i); i += stride)
        peer_send_to_all<R>(a, half + a.rank * longest + i, vector_load(in, i, count(a.rank)));
    for (unsigned i = first; i < longest; i += stride) {
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

/* Calls f with a constant of at least the number of ranks. */
template <typename F>
static void with_ranks(int n_ranks, F f)
{
    if (n_ranks <= 2)
        f(std::integral_constant<int, 2>());
    else if (n_ranks <= 4)
        f(std::integral_constant<int, 4>());
    else
        f(std::integral_constant<int, PEER_MAX_RANKS>());
}

void cuda_peer_patience(struct queue *q, uint32_t looks)
{
    peer_set_patience(q, looks);
}

const char *cuda_peer_refusal(struct queue *q, int n_ranks)
{
    if (n_ranks > PEER_MAX_RANKS)
        return "more than 8 ranks";
    return cuda_state(q)->n_multiprocessors < PEER_MAX_BLOCKS ? "a GPU of fewer than 96 multiprocessors" : nullptr;
}

void *cuda_peer_open(struct queue *q, int rank, int n_ranks)
{
    struct peer *p = (struct peer *)err_calloc(&q->err, 1, sizeof *p, "peer memory");
    if (p == nullptr)
        return nullptr;
    struct peer_args *a = &p->args;
    a->rank = rank;
    a->n_ranks = n_ranks;
    a->region[rank] = (uint4 *)cuda_alloc(q, 2 * PEER_HALF_BYTES);
    a->turn = (uint32_t *)cuda_alloc(q, PEER_MAX_BLOCKS * sizeof *a->turn);
    cuda_peer_patience(q, PEER_PATIENCE);
    /* As measured on 2 and 4 H200s (docs/log/2026-11-22.md); beyond 4 ranks the way that moves fewer bytes. */
    p->one_step_bytes = n_ranks <= 2 ? 768 << 10 : n_ranks <= 4 ? 384 << 10 : 128 << 10;
    if (a->region[rank] == nullptr || a->turn == nullptr) {
        cuda_peer_close(q, p);
        return nullptr;
    }
    CUDA_TRY(q, cudaMemsetAsync(a->region[rank], 0xff, 2 * PEER_HALF_BYTES, cuda_stream(q))); /* holes */
    return p;
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

static struct stretches make_stretches(size_t n_vectors, int n_ranks)
{
    struct stretches s = {};
    for (int r = 0; r < n_ranks; r++) {
        s.begin[r + 1] = (unsigned)(n_vectors * (r + 1) / n_ranks);
        s.longest = max(s.longest, s.begin[r + 1] - s.begin[r]);
    }
    return s;
}

/* Blocks and threads for this many vectors: first up to 64 blocks of few threads, then more threads and blocks. */
static dim3 threads_for(size_t n_vectors)
{
    return dim3(n_vectors <= 64 * 128 ? 128 : n_vectors <= 64 * 256 ? 256 : THREADS);
}

static dim3 peer_blocks(size_t n_vectors, dim3 threads)
{
    size_t blocks = (n_vectors + threads.x - 1) / threads.x;
    return dim3((unsigned)min(blocks, (size_t)PEER_MAX_BLOCKS));
}

template <typename T>
static void sum_at_once(struct queue *q, const struct peer *p, T *data, size_t n)
{
    size_t n_vectors = (n * sizeof(T) + 15) / 16;
    bool one_step = n * sizeof(T) <= p->one_step_bytes;
    const struct stretches s = make_stretches(n_vectors, p->args.n_ranks);
    dim3 threads = threads_for(one_step ? n_vectors : s.longest),
         blocks = peer_blocks(one_step ? n_vectors : s.longest, threads);
    with_ranks(p->args.n_ranks, [&](auto r) {
        if (one_step)
            launch(q, sum_kernel<T, r>, blocks, threads, 0, p->args, data, n, (unsigned)n_vectors);
        else
            launch(q, stretch_sum_kernel<T, r>, blocks, threads, 0, p->args, data, n, s);
    });
}

void cuda_peer_sum(struct queue *q, void *opened, void *data, size_t n)
{
    nvtx_range range("peer sum");
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        const size_t most = MOST_BYTES / sizeof(T);
        for (size_t at = 0; at < n; at += most)
            sum_at_once(q, (const struct peer *)opened, (T *)data + at, min(n - at, most));
    });
}

/* Vectors of the largest of the ranks' parts; 0: some rank has nothing. */
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

/* Refused if a rank has nothing: no rank would wait for it, which the alternation of halves requires. */
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
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        with_ranks((int)n_ranks, [&](auto r) {
            launch(q, fits ? gather_kernel<T, 16 / sizeof(T), r> : gather_kernel<T, 1, r>,
                   peer_blocks(longest, THREADS), dim3(THREADS), 0, p->args, (T *)out, (const T *)in, begins, n_rows,
                   (unsigned)longest);
        });
    });
}
