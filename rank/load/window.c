/* rank/load/window.c - see window.h. */
#include "rank/load/window.h"
#include "rank/load/loader.h"

#include <stdlib.h>
#include <sys/mman.h>

#define PAGE ((size_t)2 << 20) /* huge pages: a driver pins them sooner, and copies need fewer translations */

int window_open(struct window *x, size_t bytes, const struct loader *l, struct err *e)
{
    if (x->memory != NULL && x->bytes >= bytes)
        return 0;
    window_close(x, l->ops, l->q);
    x->bytes = bytes > 0 ? (bytes + PAGE - 1) / PAGE * PAGE : PAGE;
    x->memory = aligned_alloc(PAGE, x->bytes);
    if (x->memory == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory for %zu bytes to load through", bytes);
    (void)madvise(x->memory, x->bytes, MADV_HUGEPAGE); /* small pages will do, too */
    if (l->ops->async != NULL) {
        loader_touch(l, x->memory, x->bytes);
        x->pinned = loader_pin(l, x->memory, x->bytes);
    }
    return 0;
}

void window_close(struct window *x, const struct ops *ops, struct queue *q)
{
    if (x->pinned)
        ops->async->host_unregister(q, x->memory);
    free(x->memory);
    *x = (struct window){0};
}
