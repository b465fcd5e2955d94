/* kernels/cpu/large.c - see kernels/large.h. */
#include "kernels/large.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* Aligned to huge pages where it has some: fewer TLB misses while weights stream. A refusal of these does no harm. */
static void *take_large(struct queue *q, size_t bytes)
{
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : 256;
    size_t whole = bytes <= SIZE_MAX - align ? (bytes + align - 1) / align * align : 0;
    void *p = bytes == 0 || whole > 0 ? aligned_alloc(align, whole > 0 ? whole : align) : NULL;
    if (p == NULL)
        ERR(&q->err, ERR_MEMORY, "cannot allocate %zu bytes of host memory", bytes);
    else if (whole >= HUGE_PAGE)
        (void)madvise(p, whole, MADV_HUGEPAGE);
    return p;
}

static void give_large(struct queue *q, void *p)
{
    (void)q;
    free(p);
}

const struct large_ops large_ops_cpu = {.take = take_large, .give = give_large};
