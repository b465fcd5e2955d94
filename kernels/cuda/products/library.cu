/* kernels/cuda/products/library.cu - products by cuBLASLt, whose choice for a shape is asked once and kept: of the
 * activations' type, or of codes of E4M3 with scales of rows or of blocks. */
#include "kernels/cuda/products/library.cuh"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#define WORKSPACE_BYTES ((size_t)32 << 20)
#define CHOICES         1024 /* products that are remembered, a power of two */
#define ROW_SCALES      (CUBLAS_VERSION >= 120900)

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
static void set(cublasStatus_t *rc, struct lt_product *p, cublasLtMatmulDescAttributes_t attribute, V value)
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
    set(rc, p, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, blocks ? of_blocks : of_rows);
    set(rc, p, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, blocks ? of_columns : of_rows);
    set(rc, p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, (const void *)scales->w);
    set(rc, p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, (const void *)scales->x);
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
    set(&rc, p, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (s->bias) {
        set(&rc, p, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
        set(&rc, p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
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

/* Ask for the best algorithm. Sums over parts of the columns may only meet in float. */
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
    cublasLtMatmulHeuristicResult_t best;
    int n = 0;
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = cublasLtMatmulAlgoGetHeuristic(m->lt, &p->desc, &p->w, &p->x, &p->out, &p->out, &preference, 1, &best, &n);
    if (rc != CUBLAS_STATUS_SUCCESS || n < 1 || best.state != CUBLAS_STATUS_SUCCESS)
        return false;
    *algo = best.algo;
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

int library_open(struct library **to, struct err *e)
{
    struct library *m = *to = (struct library *)calloc(1, sizeof *m);
    if (!m)
        return ERR(e, ERR_MEMORY, "cannot allocate %zu bytes of host memory", sizeof *m);
    cublasStatus_t rc = cublasLtCreate(&m->lt);
    if (rc != CUBLAS_STATUS_SUCCESS)
        return ERR(e, ERR_DEVICE, "cublasLtCreate: %s", cublasLtGetStatusString(rc));
    cudaError_t failed = cudaMalloc(&m->workspace, WORKSPACE_BYTES);
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
