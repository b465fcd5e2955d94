/* kernels/cuda/peer/beside.cu - sums of long messages beside other operations; see kernels/beside.h.
 *
 * Beginning a piece's sum enqueues copies to a second stream: this rank's part goes to every other GPU, by the copy
 * engines, so multiprocessors remain with the products of other pieces. A flag at the receiver follows each part; the
 * driver writes it after a fence. Ending the sum is one kernel of the queue: it waits for the other ranks' flags, when
 * nothing else is left to do for this queue, and adds the parts to the rank's own in the order of the ranks.
 *
 * A GPU has two halves of memory for the others' parts, which sums use alternately, so no rank has to say that it has
 * read a part. Rank A sends a piece of sum t after it has ended that piece of sum t - 1, which it did with the part of
 * every other rank B; and B had sent that after it had ended the piece of sum t - 2, which was in the same half and, as
 * sums of the same shape follow each other, in the same place. Where the shape changes, A has ended all pieces of sum
 * t - 1, or B had ended all of t - 2. Flags are the numbers of sums, so they need not be reset. */
#include "kernels/beside.h"
#include "kernels/cuda/peer/adding.cuh"
#include "kernels/cuda/peer/peer.cuh"

#include <cudaTypedefs.h>
#include <stdlib.h>

#define THREADS     512
#define ALIGNMENT   ((size_t)256) /* of a piece's parts */
#define FLAGS_BYTES ((size_t)4096)
#define PART_BYTES  (BESIDE_BYTES + BESIDE_PIECES * ALIGNMENT)

/* The record that open makes. */
struct beside {
    int rank, n_ranks;
    char *region[BESIDE_MAX_RANKS]; /* each rank's: flags [BESIDE_PIECES][BESIDE_MAX_RANKS], then parts [2][n_ranks - 1]
                                       of PART_BYTES: those of the other ranks, in their order */
    cudaStream_t stream;
    cudaEvent_t made, sent[BESIDE_PIECES];
    PFN_cuStreamWriteValue32_v11070 write;
    uint32_t turn; /* the number of the newest sum */
    size_t used;   /* bytes of a part that its pieces take so far */
    struct {
        void *data;
        size_t n, at;
        uint32_t turn;
    } piece[BESIDE_PIECES];
};

/* The parts that the kernel waits for and adds: of every rank but this one. */
struct arrivals {
    const uint4 *part[BESIDE_MAX_RANKS];
    const uint32_t *flag; /* [n_ranks] */
    uint32_t turn;
    int rank, n_ranks;
};

/* Waits until the part of rank `from` is in this GPU's memory. */
__device__ static inline void await(const arrivals &a, int from)
{
    for (unsigned looks = 1;; looks++) {
        uint32_t turn;
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(turn) : "l"(a.flag + from) : "memory");
        if ((int32_t)(turn - a.turn) >= 0)
            return;
        if (looks == peer_patience.looks)
            peer_give_up(from);
    }
}

/* data = the sum of the ranks' n elements. R: at least n_ranks. */
template <typename T, int R>
__global__ void __launch_bounds__(THREADS) add_kernel(arrivals a, T *data, size_t n, unsigned n_vectors)
{
    after_previous();
    if ((int)threadIdx.x < a.n_ranks && (int)threadIdx.x != a.rank)
        await(a, (int)threadIdx.x);
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n_vectors; i += gridDim.x * blockDim.x) {
        uint4 v[R] = {};
#pragma unroll
        for (int r = 0; r < R; r++)
            if (r < a.n_ranks)
                v[r] = r == a.rank ? vector_load(data, i, n) : peer_load(a.part[r] + i);
        vector_store(data, i, n, add_parts<T, R>(v, a.n_ranks));
    }
}

static uint32_t *flag_at(const struct beside *p, int receiver, int piece, int sender)
{
    return (uint32_t *)p->region[receiver] + piece * BESIDE_MAX_RANKS + sender;
}

/* The place of a rank's part in another rank's memory, from byte `at` of the part on. */
static char *part_at(const struct beside *p, int receiver, int sender, uint32_t turn, size_t at)
{
    size_t half = turn % 2, index = (size_t)(sender < receiver ? sender : sender - 1);
    return p->region[receiver] + FLAGS_BYTES + (half * (p->n_ranks - 1) + index) * PART_BYTES + at;
}

static size_t beside_bytes(int n_ranks)
{
    return FLAGS_BYTES + 2 * (size_t)(n_ranks - 1) * PART_BYTES;
}

static PFN_cuStreamWriteValue32_v11070 find_write(struct queue *q)
{
    PFN_cuStreamWriteValue32_v11070 write = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    CUDA_TRY(
        q, cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", (void **)&write, 12000, cudaEnableDefault, &found));
#else
    CUDA_TRY(q, cudaGetDriverEntryPoint("cuStreamWriteValue32", (void **)&write, cudaEnableDefault, &found));
#endif
    if (found != cudaDriverEntryPointSuccess || write == nullptr)
        ERR(&q->err, ERR_UNSUPPORTED, "the driver has no cuStreamWriteValue32");
    return write;
}

void cuda_beside_patience(struct queue *q, uint32_t looks)
{
    peer_set_patience(q, looks);
}

static void beside_close(struct queue *q, void *opened)
{
    struct beside *p = (struct beside *)opened;
    if (p == nullptr)
        return;
    if (p->stream != nullptr)
        CUDA_TRY(q, cudaStreamDestroy(p->stream));
    for (cudaEvent_t event : {p->made, p->sent[0], p->sent[1], p->sent[2], p->sent[3]})
        if (event != nullptr)
            CUDA_TRY(q, cudaEventDestroy(event));
    cuda_free(q, p->region[p->rank]);
    free(p);
}

static void *beside_open(struct queue *q, int rank, int n_ranks)
{
    static_assert(BESIDE_PIECES == 4, "the events that beside_close destroys");
    struct beside *p = (struct beside *)err_calloc(&q->err, 1, sizeof *p, "sums beside products");
    if (p == nullptr)
        return nullptr;
    p->rank = rank;
    p->n_ranks = n_ranks;
    p->region[rank] = (char *)cuda_alloc(q, beside_bytes(n_ranks));
    p->write = find_write(q);
    CUDA_TRY(q, cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
    for (cudaEvent_t *event : {&p->made, &p->sent[0], &p->sent[1], &p->sent[2], &p->sent[3]})
        CUDA_TRY(q, cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    cuda_beside_patience(q, PEER_PATIENCE);
    if (q->err.code == ERR_NONE)
        return p;
    beside_close(q, p);
    return nullptr;
}

static void *beside_memory(void *opened)
{
    const struct beside *p = (const struct beside *)opened;
    return p->region[p->rank];
}

static void beside_attach(void *opened, void *const *memory)
{
    struct beside *p = (struct beside *)opened;
    for (int r = 0; r < p->n_ranks; r++)
        p->region[r] = (char *)memory[r];
}

/* Sends this rank's part of a piece to a rank, and then the flag. */
static void send(struct queue *q, const struct beside *p, int piece, int to)
{
    const auto &x = p->piece[piece];
    CUDA_TRY(q, cudaMemcpyAsync(part_at(p, to, p->rank, x.turn, x.at), x.data, x.n * dtype_bytes(q->act),
                                cudaMemcpyDeviceToDevice, p->stream));
    CUresult rc =
        p->write(p->stream, (CUdeviceptr)flag_at(p, to, piece, p->rank), x.turn, CU_STREAM_WRITE_VALUE_DEFAULT);
    if (rc != CUDA_SUCCESS)
        ERR(&q->err, ERR_DEVICE, "cuStreamWriteValue32: error %d of the driver", (int)rc);
}

static void beside_begin(struct queue *q, void *opened, int piece, void *data, size_t n)
{
    nvtx_range range("sum begins");
    struct beside *p = (struct beside *)opened;
    if (piece == 0) {
        p->turn++;
        p->used = 0;
    }
    p->piece[piece] = {data, n, p->used, p->turn};
    p->used += (n * dtype_bytes(q->act) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (p->used > PART_BYTES || cuda_state(q)->recording) {
        ERR(&q->err, ERR_INTERNAL, "a sum of %zu bytes in pieces%s, expected at most %zu, and no recording", p->used,
            cuda_state(q)->recording ? " is recorded" : "", PART_BYTES);
        return;
    }
    CUDA_TRY(q, cudaEventRecord(p->made, cuda_stream(q)));
    CUDA_TRY(q, cudaStreamWaitEvent(p->stream, p->made, 0));
    for (int i = 1; i < p->n_ranks; i++) /* each rank begins with another one */
        send(q, p, piece, (p->rank + i) % p->n_ranks);
    CUDA_TRY(q, cudaEventRecord(p->sent[piece], p->stream));
}

static struct arrivals arrivals_of(const struct beside *p, int piece)
{
    struct arrivals a = {};
    a.turn = p->piece[piece].turn;
    a.rank = p->rank;
    a.n_ranks = p->n_ranks;
    a.flag = flag_at(p, p->rank, piece, 0);
    for (int r = 0; r < p->n_ranks; r++)
        if (r != p->rank)
            a.part[r] = (const uint4 *)part_at(p, p->rank, r, a.turn, p->piece[piece].at);
    return a;
}

static void beside_end(struct queue *q, void *opened, int piece)
{
    nvtx_range range("sum ends");
    struct beside *p = (struct beside *)opened;
    const struct arrivals a = arrivals_of(p, piece);
    const auto &x = p->piece[piece];
    CUDA_TRY(q, cudaStreamWaitEvent(cuda_stream(q), p->sent[piece], 0)); /* the sum replaces what was sent */
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        const size_t n_vectors = (x.n * sizeof(T) + 15) / 16, most = 2 * (size_t)cuda_state(q)->n_multiprocessors,
                     blocks = (n_vectors + THREADS - 1) / THREADS;
        launch(q, p->n_ranks <= 2 ? add_kernel<T, 2> : add_kernel<T, BESIDE_MAX_RANKS>,
               dim3((unsigned)(blocks < most ? blocks : most)), dim3(THREADS), 0, a, (T *)x.data, x.n,
               (unsigned)n_vectors);
    });
}

const struct beside_ops beside_ops_cuda = {beside_bytes,  beside_open,  beside_close, beside_memory,
                                           beside_attach, beside_begin, beside_end};
