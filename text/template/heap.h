/* text/template/heap.h - the memory of one parse or one rendering, and the one way out of it.
 *
 * All memory comes from chunks that are freed together, up to a limit; a failure at any depth jumps back to the
 * function that began, with *e set. So no function in between checks for errors or owns memory. */
#ifndef TEXT_TEMPLATE_HEAP_H
#define TEXT_TEMPLATE_HEAP_H

#include "base/err.h"

#include <setjmp.h>
#include <stddef.h>

struct heap { /* zeroed, then limit, name and e set; escape by setjmp in the function that frees it */
    struct heap_chunk *chunk;
    size_t used, limit; /* bytes */
    const char *name;   /* of the template */
    int line;           /* being parsed or rendered */
    struct err *e;
    jmp_buf escape;
};

/* Zeroed, aligned for anything. Never NULL. */
void *heap_alloc(struct heap *w, size_t n, size_t size);
/* Record "NAME: line N: ..." and jump. */
_Noreturn void heap_fail(struct heap *w, enum err_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void heap_free(struct heap *w);

#endif
