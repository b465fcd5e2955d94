/* kernels/cuda/products/library.cu - products by cuBLASLt, whose choice for a shape is asked once and kept: of the
 * activations' type, or of codes of E4M3 with scales of rows or of blocks. */
#include "kernels/cuda/products/library.cuh"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#define WORKSPACE_BYTES ((size_t)32 << 20)
#define CHOICES         1024 /* products that are remembered, a power of two */
#define ROW_SCALES      (CUBLAS_VERSION >= 120900)
#define OFFERS          8    /* of cuBLASLt for a product, the best first */
#define COMPARED_TOKENS 1024 /* from which their times are estimated */

/* The properties on which cuBLASLt's choice depends. Compared as bytes: no padding. */
struct shape {
    int32_t rows, cols, n_tokens, type;   /* type: of the results, and of w and x unless these are codes */
    int32_t bias, accumulate, ld, scales; /* scales: an enum scaling */
    uint32_t alignment[4];                /* of w, x, out, bias */
};

/* Scales are those of rows, or of blocks of 128 x 128 of w and of 128 columns of a row of x. */
enum scaling { SCALES_NONE, SCALES_OF_ROWS, SCALES_OF_BLOCKS };

struct lt_choice {
    struct shape shape; /* rows == 0: unused */
    bool usable;
    cublasLtMatmulAlgo_t algo;
};

struct library {
    cublasLtHandle_t lt;
    void *workspace;
    int n_multiprocessors; /* 0: the device is not a Hopper */
    struct lt_choice choice[CHOICES];
};

static cudaDataType_t lt_type(int type)
{
    return type == DTYPE_F32 ? CUDA_R_32F : type == DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static uint32_t alignment(const void *p)
{
    uint32_t a = 256;
    while ((uintptr_t)p % a != 0)
        a /= 2;
    return a;
}

/* cuBLASLt stores columns: out^T [rows, n_tokens] = w [rows, cols] x^T [cols, n_tokens], where w is kept transposed. */
struct lt_product {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t w, x, out;
};

template <typename V>
static void set_attribute(cublasStatus_t *rc, struct lt_product *p, cublasLtMatmulDescAttributes_t attribute, V value)
{
    if (*rc == CUBLAS_STATUS_SUCCESS)
        *rc = cublasLtMatmulDescSetAttribute(&p->desc, attribute, &value, sizeof value);
}

static void set_scales(cublasStatus_t *rc, struct lt_product *p, bool blocks, const struct code_scales *scales)
{
#if ROW_SCALES
    const int32_t of_rows = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const int32_t of_blocks = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    const int32_t of_columns = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    set_attribute(rc, p, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, blocks ? of_blocks : of_rows);
    set_attribute(rc, p, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, blocks ? of_columns : of_rows);
    set_attribute(rc, p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, (const void *)scales->w);
    set_attribute(rc, p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, (const void *)scales->x);
#else
    (void)p, (void)blocks, (void)scales;
    *rc = CUBLAS_STATUS_NOT_SUPPORTED;
#endif
}

static cublasStatus_t describe(struct lt_product *p, const struct shape *s, const void *bias,
                               const struct code_scales *scales)
{
    cudaDataType_t type = lt_type(s->type), in = s->scales != SCALES_NONE ? CUDA_R_8F_E4M3 : type;
    cublasStatus_t rc = cublasLtMatmulDescInit(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set_attribute(&rc, p, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (s->bias) {
        set_attribute(&rc, p, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
        set_attribute(&rc, p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    if (s->scales != SCALES_NONE)
        set_scales(&rc, p, s->scales == SCALES_OF_BLOCKS, scales);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = cublasLtMatrixLayoutInit(&p->w, in, (uint64_t)s->cols, (uint64_t)s->rows, s->cols);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = cublasLtMatrixLayoutInit(&p->x, in, (uint64_t)s->cols, (uint64_t)s->n_tokens, s->cols);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = cublasLtMatrixLayoutInit(&p->out, type, (uint64_t)s->rows, (uint64_t)s->n_tokens, s->ld);
    return rc;
}

/* A tile of cuBLASLt's kernels, as measured on a Hopper: its rows of w, its tokens, the time per column and element
 * relative to the best tile, and the time for storing its results, in columns, during which nothing is multiplied. */
struct tile_cost {
    uint32_t id;
    int rows, tokens;
    double column, end;
};

static const struct tile_cost tile_costs[] = {
    {CUBLASLT_MATMUL_TILE_256x128, 256, 128, 1, 160}, {CUBLASLT_MATMUL_TILE_128x256, 128, 256, 1, 160},
    {CUBLASLT_MATMUL_TILE_128x160, 128, 160, 1, 0},   {CUBLASLT_MATMUL_TILE_128x128, 128, 128, 1.015, 0},
#if CUBLAS_VERSION >= 130000
    {CUBLASLT_MATMUL_TILE_192x192, 192, 192, 1, 160}, {CUBLASLT_MATMUL_TILE_320x128, 320, 128, 1.02, 160},
    {CUBLASLT_MATMUL_TILE_168x128, 168, 128, 1, 0},   {CUBLASLT_MATMUL_TILE_176x128, 176, 128, 1, 0},
#endif
};

/* An attribute of an algorithm; 0: it is not known. */
template <typename V>
static V config_of(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute)
{
    V value = 0;
    size_t written;
    return cublasLtMatmulAlgoConfigGetAttribute(algo, attribute, &value, sizeof value, &written) ==
                   CUBLAS_STATUS_SUCCESS
               ? value
               : 0;
}

/* The number of parts into which it splits the columns; 0 counts as one. */
static int parts_of(const cublasLtMatmulAlgo_t *algo)
{
    return config_of<int32_t>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
}

/* The estimated time of a product, in an arbitrary unit: the multiprocessors compute its tiles in waves. 0: it is not
 * known. */
static double cost_of(const cublasLtMatmulAlgo_t *algo, const struct shape *s, int n_multiprocessors)
{
    uint32_t id = config_of<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID);
    if (parts_of(algo) > 1)
        return 0;
    for (const struct tile_cost &t : tile_costs) {
        int n_tiles = ((s->rows + t.rows - 1) / t.rows) * ((s->n_tokens + t.tokens - 1) / t.tokens);
        int waves = (n_tiles + n_multiprocessors - 1) / n_multiprocessors;
        if (t.id == id)
            return (double)waves * t.rows * t.tokens * (s->cols * t.column + t.end);
    }
    return 0;
}

/* Tiles that may fill the device with one wave where tokens are few. */
static const struct {
    uint32_t id;
    int rows, tokens;
} small_tiles[] = {
    {CUBLASLT_MATMUL_TILE_64x32, 64, 32},   {CUBLASLT_MATMUL_TILE_32x64, 32, 64},
    {CUBLASLT_MATMUL_TILE_64x64, 64, 64},   {CUBLASLT_MATMUL_TILE_64x96, 64, 96},
    {CUBLASLT_MATMUL_TILE_96x64, 96, 64},   {CUBLASLT_MATMUL_TILE_128x32, 128, 32},
    {CUBLASLT_MATMUL_TILE_128x64, 128, 64}, {CUBLASLT_MATMUL_TILE_64x128, 64, 128},
#if CUBLAS_VERSION >= 130000
    {CUBLASLT_MATMUL_TILE_64x16, 64, 16},   {CUBLASLT_MATMUL_TILE_64x24, 64, 24},
    {CUBLASLT_MATMUL_TILE_64x48, 64, 48},   {CUBLASLT_MATMUL_TILE_48x64, 48, 64},
#endif
};

/* Does the offer have a tile for at least nine tenths of the multiprocessors, and no second one for any? */
static bool is_one_wave(const cublasLtMatmulAlgo_t *algo, const struct shape *s, int n_multiprocessors)
{
    uint32_t id = config_of<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID);
    for (const auto &t : small_tiles) {
        int n_tiles = ((s->rows + t.rows - 1) / t.rows) * ((s->n_tokens + t.tokens - 1) / t.tokens);
        if (t.id == id)
            return n_tiles <= n_multiprocessors && n_tiles * 10 >= n_multiprocessors * 9;
    }
    return false;
}

/* Are several offers for the product compared? What is known of tiles is known of 16-bit types on Hopper. */
static bool compares_offers(const struct library *m, const struct shape *s)
{
    return m->n_multiprocessors > 0 && s->type != DTYPE_F32 && s->scales == SCALES_NONE;
}

/* The one of n >= 1 offers for few tokens to take: the first one, or, if that splits the columns into parts, one that
 * has a wave of tiles without it. */
static int choose_for_few(const cublasLtMatmulHeuristicResult_t *offer, int n, const struct shape *s,
                          int n_multiprocessors)
{
    if (parts_of(&offer[0].algo) > 1)
        for (int i = 1; i < n; i++)
            if (offer[i].state == CUBLAS_STATUS_SUCCESS && parts_of(&offer[i].algo) <= 1 &&
                is_one_wave(&offer[i].algo, s, n_multiprocessors))
                return i;
    return 0;
}

/* The one of n >= 1 offers to take: the first one, unless another one is estimated to be faster. That depends only on
 * the product and the device, so results are the same from start to start. */
static int choose_offer(const cublasLtMatmulHeuristicResult_t *offer, int n, const struct shape *s,
                        int n_multiprocessors)
{
    if (s->n_tokens < COMPARED_TOKENS)
        return choose_for_few(offer, n, s, n_multiprocessors);
    int best = 0;
    double least = n > 1 ? cost_of(&offer[0].algo, s, n_multiprocessors) : 0;
    for (int i = 1; i < n; i++) {
        double cost = cost_of(&offer[i].algo, s, n_multiprocessors);
        if (offer[i].state == CUBLAS_STATUS_SUCCESS && cost > 0 && cost < least)
            best = i, least = cost;
    }
    return best;
}

/* Ask for an algorithm. Sums over parts of the columns may only meet in float. */
static bool ask(struct library *m, struct lt_product *p, const struct shape *s, cublasLtMatmulAlgo_t *algo)
{
    static const cublasLtMatmulPreferenceAttributes_t of[4] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreferenceOpaque_t preference;
    uint64_t workspace = WORKSPACE_BYTES;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasStatus_t rc = cublasLtMatmulPreferenceInit(&preference);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                  sizeof workspace);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction,
                                                  sizeof reduction);
    for (int i = 0; i < 4 && rc == CUBLAS_STATUS_SUCCESS; i++)
        rc = cublasLtMatmulPreferenceSetAttribute(&preference, of[i], &s->alignment[i < 3 ? i : 2],
                                                  sizeof s->alignment[0]);
    cublasLtMatmulHeuristicResult_t offer[OFFERS];
    int n = 0, wanted = compares_offers(m, s) ? OFFERS : 1;
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = cublasLtMatmulAlgoGetHeuristic(m->lt, &p->desc, &p->w, &p->x, &p->out, &p->out, &preference, wanted, offer,
                                            &n);
    if (rc != CUBLAS_STATUS_SUCCESS || n < 1 || offer[0].state != CUBLAS_STATUS_SUCCESS)
        return false;
    *algo = offer[choose_offer(offer, n, s, m->n_multiprocessors)].algo;
    return true;
}

/* The remembered choice for the shape; another shape's is forgotten if it is in the way. */
static struct lt_choice *find_choice(struct library *m, struct lt_product *p, const struct shape *s)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *s; i++)
        hash = (hash ^ ((const unsigned char *)s)[i]) * 1099511628211u;
    struct lt_choice *choice = &m->choice[(hash ^ hash >> 32) % CHOICES];
    if (memcmp(&choice->shape, s, sizeof *s) != 0) {
        choice->shape = *s;
        choice->usable = ask(m, p, s, &choice->algo);
    }
    return choice;
}

bool product_of_library(struct queue *q, product_out to, const void *x, const struct weight *w,
                        const struct weight *bias, int n_tokens, bool accumulate, const struct code_scales *scales)
{
    struct library *m = products_library(q);
    const void *b = bias ? bias->data : NULL;
    void *out = to.data;
    int scaling = scales == NULL ? SCALES_NONE : code_groups(&w->form, w->cols) > 1 ? SCALES_OF_BLOCKS : SCALES_OF_ROWS;
    struct shape s = {w->rows, w->cols, n_tokens, q->act, bias != NULL, accumulate, to.ld, scaling, {0}};
    const void *pointer[4] = {w->data, x, out, b};
    for (int i = 0; i < 4; i++)
        s.alignment[i] = alignment(pointer[i]);
    struct lt_product p;
    if (describe(&p, &s, b, scales) != CUBLAS_STATUS_SUCCESS)
        return false;
    const struct lt_choice *choice = find_choice(m, &p, &s);
    if (!choice->usable)
        return false;
    float alpha = 1, beta = accumulate ? 1.0f : 0.0f;
    cublasStatus_t rc = cublasLtMatmul(m->lt, &p.desc, &alpha, w->data, &p.w, x, &p.x, &beta, out, &p.out, out, &p.out,
                                       &choice->algo, m->workspace, WORKSPACE_BYTES, cuda_stream(q));
    if (rc != CUBLAS_STATUS_SUCCESS)
        ERR(&q->err, ERR_DEVICE, "cublasLtMatmul [%d, %d] of %d tokens: %s", w->rows, w->cols, n_tokens,
            cublasLtGetStatusString(rc));
    return true;
}

bool library_takes_codes(void)
{
    return ROW_SCALES;
}

int library_open(struct library **to, int device, struct err *e)
{
    struct library *m = *to = (struct library *)calloc(1, sizeof *m);
    if (!m)
        return ERR(e, ERR_MEMORY, "cannot allocate %zu bytes of host memory", sizeof *m);
    int major = 0;
    cudaError_t failed = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (failed == cudaSuccess && major == 9)
        failed = cudaDeviceGetAttribute(&m->n_multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cublasStatus_t rc = cublasLtCreate(&m->lt);
    if (rc != CUBLAS_STATUS_SUCCESS)
        return ERR(e, ERR_DEVICE, "cublasLtCreate: %s", cublasLtGetStatusString(rc));
    if (failed == cudaSuccess)
        failed = cudaMalloc(&m->workspace, WORKSPACE_BYTES);
    return failed == cudaSuccess ? 0 : ERR(e, ERR_DEVICE, "matrix product: %s", cudaGetErrorString(failed));
}

void library_close(struct library *m)
{
    if (!m)
        return;
    (void)cudaFree(m->workspace);
    if (m->lt)
        (void)cublasLtDestroy(m->lt);
    free(m);
}
