/* kernels/cuda/peer_sum.cu - memory that the GPUs of a host share, and sums over the ranks by it: kernels/peer.h.
 *
 * Every GPU has a region for the others to write to, which between sums holds holes and nothing else: words of 32 bits that no
 * sum's parts contain. Who needs a part reads its place until there is no hole in it, and then makes holes of it again. So what
 * arrives says so by itself, in no more bytes than it has, and nothing has to be ordered: no fences, no barriers, no flags.
 *
 * The region has two halves, which sums take in turns. That suffices: who writes to a half again has, in the sum between,
 * waited for a part of whom it writes to, who began that sum when the one before it was over and its half full of holes. Whose
 * turn it is is kept on the device, a word a block, so that sums may be replayed in graphs.
 *
 * Small sums take one step: everybody writes its part to everybody, and adds. Large ones take two, and move 2 (n - 1) / n of
 * the bytes instead of n - 1: a stretch of the sum is made by each rank, which writes it to the others. In both a block waits
 * for the blocks of its own number on the other GPUs, and for nothing else of theirs; on its own GPU for none. */
#include "kernels/cuda/norm.cuh"

#include "kernels/peer.h"
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES   ((size_t)4 << 20) /* of a sum */
#define REGION_BYTES (2 * MOST_BYTES + 4096)
#define MAX_BLOCKS   64
#define THREADS      512

/* An element of each type that is no number: two of 16 bits, or one of 32. A part's own become others that are none either. */
#define HOLE     0xffffffffu
#define NOT_HOLE 0x7fff7fffu

/* After how many looks at a part a kernel gives up: some 6 minutes, longer than the default deadline of a step. */
#define PATIENCE 1000000000u

struct peer_args {
    uint4 *region[PEER_MAX_RANKS]; /* each rank's: [2][REGION_BYTES / 16] */
    uint32_t *turn;                /* [MAX_BLOCKS] 0 or 1: the half that the next sum takes, the same in all */
    struct cuda_vain *vain;        /* where the host looks when a launch has failed (memory.cu) */
    uint32_t patience;
    int rank, n_ranks;
};

/* What cuda_peer_open_sums makes. */
struct peer_sums {
    struct peer_args args;
    size_t one_step_bytes; /* up to which a sum takes one step */
};

__device__ static inline uint4 peer_load(const uint4 *from)
{
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

__device__ static inline void peer_store(uint4 *to, const uint4 &v)
{
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}

__device__ static inline bool has_hole(const uint4 &v)
{
    return v.x == HOLE || v.y == HOLE || v.z == HOLE || v.w == HOLE;
}

/* A part to another rank's region. */
__device__ static inline void peer_send(uint4 *to, uint4 v)
{
    v.x = v.x == HOLE ? NOT_HOLE : v.x;
    v.y = v.y == HOLE ? NOT_HOLE : v.y;
    v.z = v.z == HOLE ? NOT_HOLE : v.z;
    v.w = v.w == HOLE ? NOT_HOLE : v.w;
    peer_store(to, v);
}

/* The end: rank `from` wrote nothing. See cuda_vain. */
__device__ static inline void peer_give_up(const peer_args &a, int from)
{
    volatile unsigned long long *to = a.vain->for_sum;
    to[1] = (unsigned long long)from << 32 | blockIdx.x;
    to[0] = 1;
    __threadfence_system();
    __trap();
    __builtin_unreachable(); /* the compiler takes a trap for something that returns */
}

/* v[r] = what lies at at(r), once it is there, then holes again; at(r) NULL: v[r] stays. All loads are under way at once. */
template <int R, typename AT>
__device__ static inline void peer_await(const peer_args &a, uint4 (&v)[R], AT at)
{
#pragma unroll
    for (int r = 0; r < R; r++)
        if (at(r) != nullptr)
            v[r] = peer_load(at(r));
    unsigned looks = 0;
    int late = 0;
    for (bool again = true; again;) {
        again = false;
#pragma unroll
        for (int r = 0; r < R; r++)
            if (at(r) != nullptr && has_hole(v[r])) {
                again = true;
                late = r;
                v[r] = peer_load(at(r));
            }
        if (++looks == a.patience)
            peer_give_up(a, late);
    }
#pragma unroll
    for (int r = 0; r < R; r++)
        if (at(r) != nullptr)
            peer_store(at(r), make_uint4(HOLE, HOLE, HOLE, HOLE));
}

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

/* The half of the regions that this sum has, in vectors from their begin. */
__device__ static inline size_t begin_turn(const peer_args &a)
{
    return *(volatile const uint32_t *)&a.turn[blockIdx.x] * (REGION_BYTES / 16);
}

/* Each block writes its own word, and those of blocks that this sum does not have. */
__device__ static inline void end_turn(const peer_args &a, size_t half)
{
    __syncthreads(); /* all have read it */
    for (unsigned i = blockIdx.x + threadIdx.x * gridDim.x; i < MAX_BLOCKS; i += blockDim.x * gridDim.x)
        a.turn[i] = half == 0;
}

/* Vector i of `rows` vectors a rank, to everybody. half: in vectors. */
template <int R>
__device__ static inline void send_to_all(const peer_args &a, size_t to, const uint4 &v)
{
#pragma unroll
    for (int r = 0; r < R; r++)
        if (r < a.n_ranks && r != a.rank)
            peer_send(a.region[r] + to, v);
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
    peer_await(a, v, [&](int r) { return r < a.n_ranks && r != a.rank ? mine + r * pitch : nullptr; });
    return add_parts<T, R>(v, a.n_ranks);
}

/* In one step. R: at least n_ranks. */
template <typename T, int R>
__global__ void __launch_bounds__(THREADS) sum_kernel(peer_args a, T *data, size_t n)
{
    after_previous();
    const size_t n_vectors = (n + 16 / sizeof(T) - 1) / (16 / sizeof(T)), stride = (size_t)gridDim.x * blockDim.x;
    const size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x, half = begin_turn(a);
    for (size_t i = first; i < n_vectors; i += stride)
        send_to_all<R>(a, half + a.rank * n_vectors + i, vector_load(data, i, n));
    for (size_t i = first; i < n_vectors; i += stride)
        vector_store(data, i, n, sum_of_all<T, R>(a, half + i, n_vectors, vector_load(data, i, n)));
    end_turn(a, half);
}

/* In two steps: stretch r of the vectors is rank r's to add. In a half lie the parts of this rank's stretch, [n_ranks][longest
 * stretch], and then the whole sum. */
template <typename T, int R>
__global__ void __launch_bounds__(THREADS) stretch_sum_kernel(peer_args a, T *data, size_t n)
{
    after_previous();
    const size_t n_vectors = (n + 16 / sizeof(T) - 1) / (16 / sizeof(T)), stride = (size_t)gridDim.x * blockDim.x;
    const size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x, half = begin_turn(a);
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
        send_to_all<R>(a, whole + at, sum);
        vector_store(data, at, n, sum);
    }
    for (size_t i = first; i < longest; i += stride) {
        auto theirs = [&](int r) { return r < a.n_ranks && r != a.rank && begin(r) + i < begin(r + 1); };
        uint4 v[R] = {};
        peer_await(a, v, [&](int r) { return theirs(r) ? a.region[a.rank] + whole + begin(r) + i : nullptr; });
#pragma unroll
        for (int r = 0; r < R; r++)
            if (theirs(r))
                vector_store(data, begin(r) + i, n, v[r]);
    }
    end_turn(a, half);
}

/* One block a token: the sum of its row in one step, and its norm. */
template <typename T, int R>
__global__ void __launch_bounds__(1024) sum_norm_kernel(peer_args a, T *out, T *x, const T *partial, norm_args norm)
{
    after_previous();
    const int N = 16 / sizeof(T);
    using V = vec<T, N>;
    const size_t row = (size_t)blockIdx.x * norm.dim, n_vectors = (size_t)gridDim.x * norm.dim / N;
    const size_t half = begin_turn(a);
    for (int c = threadIdx.x * N; c < norm.dim; c += blockDim.x * N)
        send_to_all<R>(a, half + a.rank * n_vectors + (row + c) / N, *(const uint4 *)(partial + row + c));
    norm_row<T, N>(norm, out + row, x + row, [&](int c) {
        V v = *(const V *)(x + row + c);
        uint4 sum = sum_of_all<T, R>(a, half + (row + c) / N, n_vectors, *(const uint4 *)(partial + row + c));
        v = vec_add(v, *(const V *)&sum);
        *(V *)(x + row + c) = v;
        return v;
    });
    end_turn(a, half);
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

static int tune_threads, tune_blocks = MAX_BLOCKS, tune_one = -1;

extern "C" void cuda_peer_tune(int threads, int blocks, int one)
{
    tune_threads = threads;
    tune_blocks = blocks;
    tune_one = one;
}

void *cuda_peer_open_sums(struct queue *q, int rank, int n_ranks)
{
    struct peer_sums *p = (struct peer_sums *)err_calloc(&q->err, 1, sizeof *p, "sums over peer memory");
    if (p == nullptr)
        return nullptr;
    struct peer_args *a = &p->args;
    a->rank = rank;
    a->n_ranks = n_ranks;
    a->vain = cuda_state(q)->vain;
    a->patience = PATIENCE;
    a->region[rank] = (uint4 *)cuda_alloc(q, 2 * REGION_BYTES);
    a->turn = (uint32_t *)cuda_alloc(q, MAX_BLOCKS * sizeof *a->turn);
    const char *v = getenv("PEER_PATIENCE");
    a->patience = v ? (uint32_t)atoi(v) : PATIENCE;
    p->one_step_bytes = n_ranks <= 2 ? MOST_BYTES : n_ranks <= 4 ? 512 << 10 : 256 << 10;
    v = getenv("PEER_ONE");
    if (v)
        p->one_step_bytes = (size_t)atoi(v) << 10;
    if (a->region[rank] != nullptr && a->turn != nullptr) {
        CUDA_TRY(q, cudaMemsetAsync(a->region[rank], 0xff, 2 * REGION_BYTES, cuda_stream(q)));
        return p;
    }
    cuda_peer_close_sums(q, p);
    return nullptr;
}

void *cuda_peer_memory(void *sums)
{
    const struct peer_args *a = &((struct peer_sums *)sums)->args;
    return a->region[a->rank];
}

void cuda_peer_attach(void *sums, void *const *memory)
{
    struct peer_args *a = &((struct peer_sums *)sums)->args;
    for (int r = 0; r < a->n_ranks; r++)
        a->region[r] = (uint4 *)memory[r];
}

void cuda_peer_close_sums(struct queue *q, void *sums)
{
    struct peer_sums *p = (struct peer_sums *)sums;
    if (p == nullptr)
        return;
    cuda_free(q, p->args.region[p->args.rank]);
    cuda_free(q, p->args.turn);
    free(p);
}

void cuda_peer_patience(void *sums, uint32_t looks)
{
    ((struct peer_sums *)sums)->args.patience = looks;
}

size_t cuda_peer_most(const void *sums)
{
    (void)sums;
    return MOST_BYTES;
}

size_t cuda_peer_most_normed(const struct queue *q, const void *sums, int n_tokens, int dim)
{
    return n_tokens <= MAX_BLOCKS && dim % (16 / (int)dtype_bytes(q->act)) == 0
               ? ((const struct peer_sums *)sums)->one_step_bytes
               : 0;
}

void cuda_peer_sum(struct queue *q, void *sums, void *data, size_t n)
{
    nvtx_range range("peer sum");
    const struct peer_sums *p = (const struct peer_sums *)sums;
    size_t bytes = n * dtype_bytes(q->act), vectors = (bytes + 15) / 16;
    bool one_step = bytes <= (tune_one >= 0 ? (size_t)tune_one << 10 : p->one_step_bytes);
    size_t work = one_step ? vectors : (vectors + p->args.n_ranks - 1) / p->args.n_ranks;
    int threads = work <= MAX_BLOCKS * 128 ? 128 : work <= MAX_BLOCKS * 256 ? 256 : THREADS;
    if (tune_threads)
        threads = tune_threads;
    unsigned blocks = blocks_for(work, threads);
    if (blocks > (unsigned)tune_blocks)
        blocks = tune_blocks;
    with_ranks(q, p->args.n_ranks, [&](auto t, auto r) {
        using T = decltype(t);
        launch(q, one_step ? sum_kernel<T, r> : stretch_sum_kernel<T, r>,
               dim3(blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS), dim3((unsigned)threads), 0, p->args, (T *)data, n);
    });
}

void cuda_peer_sum_norm(struct queue *q, void *sums, void *out, void *x, const void *partial, enum norm_kind kind,
                        const struct weight *w, const struct weight *b, int n_tokens, int dim, float eps)
{
    nvtx_range range("peer sum, norm");
    const struct peer_sums *p = (const struct peer_sums *)sums;
    const struct norm_args a = norm_make(kind, w, b, dim, eps);
    with_ranks(q, p->args.n_ranks, [&](auto t, auto r) {
        using T = decltype(t);
        launch(q, sum_norm_kernel<T, r>, dim3((unsigned)n_tokens), norm_threads(dim, 16 / sizeof(T)),
               norm_shared_bytes(a), p->args, (T *)out, (T *)x, (const T *)partial, a);
    });
}
