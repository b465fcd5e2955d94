/* rank/model/slab.h - many arrays in one piece of memory, one after the other, since allocating and freeing a piece
 * stalls other users of a device. */
#ifndef MODEL_SLAB_H
#define MODEL_SLAB_H

#include <stddef.h>

#define SLAB_ALIGN ((size_t)512)

/* The bytes of a slab that an array of this size takes. */
static inline size_t slab_bytes(size_t bytes)
{
    return (bytes + SLAB_ALIGN - 1) / SLAB_ALIGN * SLAB_ALIGN;
}

/* The next `bytes`, after *used ones; NULL for 0 bytes. */
static inline void *slab_take(void *slab, size_t *used, size_t bytes)
{
    char *at = (char *)slab + *used;
    *used += slab_bytes(bytes);
    return bytes > 0 ? at : NULL;
}

#endif
