/* kernels/cpu/ops_cpu.c - the table of the CPU's operations, and its memory. */
#include "kernels/cpu/cpu.h"
#include "kernels/inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGNMENT  ((size_t)256)
#define HUGE_PAGE  ((size_t)2 << 20)
#define TILE       32        /* edge of the square that upload_transposed transposes at a time */
#define LARGE_COPY (1 << 22) /* larger copies are divided among the threads */

enum dtype cpu_act_type(enum dtype weights)
{
    (void)weights;
    return DTYPE_F32;
}

int cpu_n_devices(void)
{
    return 1;
}

int cpu_open(struct queue *q, int device, enum dtype weights, int n_threads, struct err *e)
{
    (void)device;
    (void)e;
    *q = (struct queue){.act = cpu_act_type(weights), .n_threads = n_threads};
    return 0;
}

void cpu_close(struct queue *q)
{
    (void)q;
}

/* calloc, because fresh pages are zero already, so unused memory is never touched. The word before the aligned address
 * stores calloc's. */
void *cpu_alloc(struct queue *q, size_t bytes)
{
    size_t extra = ALIGNMENT + sizeof(void *);
    char *base = bytes <= SIZE_MAX - extra ? calloc(1, bytes + extra) : NULL;
    if (!base) {
        ERR(&q->err, ERR_MEMORY, "cannot allocate %zu bytes of host memory", bytes);
        return NULL;
    }
    char *p = base + sizeof(void *);
    p += (ALIGNMENT - (uintptr_t)p % ALIGNMENT) % ALIGNMENT;
    memcpy(p - sizeof(void *), &base, sizeof base);
    if (bytes >= 2 * HUGE_PAGE) { /* fewer TLB misses while weights stream; a refusal does no harm */
        char *begin = p + (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
        (void)madvise(begin, (size_t)(p + bytes - begin) / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    }
    return p;
}

void cpu_free(struct queue *q, void *p)
{
    (void)q;
    if (!p)
        return;
    void *base;
    memcpy(&base, (char *)p - sizeof(void *), sizeof base);
    free(base);
}

void cpu_clear(struct queue *q, void *p, size_t bytes)
{
    (void)q;
    if (bytes > 0)
        memset(p, 0, bytes);
}

/* MemAvailable of /proc/meminfo: memory available without swapping; 0 if it cannot be read. */
size_t cpu_free_memory(struct queue *q)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    (void)q;
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    (void)fclose(f);
    return (size_t)kib * 1024;
}

void cpu_upload(struct queue *q, void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                size_t rows)
{
    if (width == 0 || rows == 0)
        return;
    if (rows == 1 || (dst_pitch == width && src_pitch == width)) {
        memcpy(dst, src, width * rows);
        return;
    }
    int n_threads = width * rows >= LARGE_COPY ? q->n_threads : 1;
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (size_t r = 0; r < rows; r++)
        memcpy((char *)dst + r * dst_pitch, (const char *)src + r * src_pitch, width);
}

/* Rows [r0, r1) of the source become columns; `bytes` is 2 or 4. */
static void transpose_rows(char *dst, size_t dst_ld, const char *src, size_t src_ld, size_t r0, size_t r1, size_t cols,
                           size_t bytes)
{
    for (size_t c0 = 0; c0 < cols; c0 += TILE) {
        size_t c1 = c0 + TILE < cols ? c0 + TILE : cols;
        for (size_t c = c0; c < c1; c++) {
            for (size_t r = r0; r < r1; r++) {
                if (bytes == 4)
                    memcpy(dst + (c * dst_ld + r) * 4, src + (r * src_ld + c) * 4, 4);
                else
                    memcpy(dst + (c * dst_ld + r) * 2, src + (r * src_ld + c) * 2, 2);
            }
        }
    }
}

void cpu_upload_transposed(struct queue *q, void *dst, size_t dst_ld, const void *src, size_t src_ld, size_t rows,
                           size_t cols, enum dtype type)
{
    size_t n_bands = (rows + TILE - 1) / TILE, bytes = dtype_bytes(type);
    int n_threads = rows * cols * bytes >= LARGE_COPY ? q->n_threads : 1;
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (size_t band = 0; band < n_bands; band++) {
        size_t r0 = band * TILE, r1 = r0 + TILE < rows ? r0 + TILE : rows;
        transpose_rows(dst, dst_ld, src, src_ld, r0, r1, cols, bytes);
    }
}

void cpu_download(struct queue *q, void *dst, const void *src, size_t bytes)
{
    (void)q;
    if (bytes > 0)
        memcpy(dst, src, bytes);
}

void cpu_wait(struct queue *q)
{
    (void)q; /* everything is done when a function returns */
}

const struct ops ops_cpu = {
    .name = "cpu",
    .inputs = &input_ops_cpu,
    .shares_host_memory = true,
#define DEVICE(result, name, parameters)             .name = cpu_##name,
#define STEP(phase, name, parameters, arguments)     .name = cpu_##name,
#define OPTIONAL(phase, name, parameters, arguments) .name = cpu_##name,
#include "kernels/op_list.h"
};
