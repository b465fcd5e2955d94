/* text/template/heap.c - see heap.h. */
#include "text/template/heap.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK_BYTES ((size_t)32 << 10)

struct heap_chunk {
    struct heap_chunk *next;
    size_t bytes, used;
    alignas(max_align_t) char data[];
};

_Noreturn void heap_fail(struct heap *w, enum err_code code, const char *format, ...)
{
    char text[ERR_TEXT_BYTES];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    (void)ERR(w->e, code, "%s: line %d: %s", w->name, w->line, text);
    longjmp(w->escape, 1);
}

static struct heap_chunk *add_chunk(struct heap *w, size_t bytes)
{
    size_t size = bytes > CHUNK_BYTES / 4 ? bytes : CHUNK_BYTES;
    if (size > w->limit - w->used)
        heap_fail(w, ERR_INPUT, "it takes more than the %zu MiB of memory that a chat template may use",
                  w->limit >> 20);
    struct heap_chunk *chunk = calloc(1, sizeof *chunk + size);
    if (chunk == NULL)
        heap_fail(w, ERR_MEMORY, "out of host memory: %zu bytes", size);
    w->used += size;
    chunk->bytes = size;
    if (size > CHUNK_BYTES && w->chunk != NULL) { /* full at once: the open one stays in front */
        chunk->next = w->chunk->next;
        w->chunk->next = chunk;
    } else {
        chunk->next = w->chunk;
        w->chunk = chunk;
    }
    return chunk;
}

void *heap_alloc(struct heap *w, size_t n, size_t size)
{
    if (size > 0 && n > (SIZE_MAX / 2) / size)
        heap_fail(w, ERR_INPUT, "it takes more memory than there is");
    size_t bytes = (n * size + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
    struct heap_chunk *chunk = w->chunk;
    if (chunk == NULL || bytes > chunk->bytes - chunk->used)
        chunk = add_chunk(w, bytes);
    void *data = chunk->data + chunk->used;
    chunk->used += bytes;
    return data;
}

void heap_free(struct heap *w)
{
    while (w->chunk != NULL) {
        struct heap_chunk *next = w->chunk->next;
        free(w->chunk);
        w->chunk = next;
    }
    w->used = 0;
}
