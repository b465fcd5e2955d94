/* tests/support/arguments.c - see arguments.h. */
#include "tests/support/arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)   ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

#define GUARD_BYTES 256 /* before and after each argument, plus padding */
#define GUARD_BYTE  0xD7
#define ALIGNMENT   256
#define ARENA_BYTES ((size_t)512 << 20) /* only the used part is touched */
#define MAX_ARGS    16
#define MAX_ELEMENT 4096 /* bytes */

struct argument {
    const char *name;
    void *host;
    size_t n, size, at; /* elements, bytes of one there, offset in the arena */
    bool act;
    enum argument_use use;
    unsigned char *may; /* [n] ARGUMENT_PARTLY: not 0 where it may change */
};

static struct argument args[MAX_ARGS];
static int n_args;
static const struct ops *real;
static struct queue *queue;
static char *arena;                   /* the backend's memory */
static unsigned char *before, *after; /* the copies sent and returned: host memory of the same layout */
static size_t used;
static bool forbidden; /* the guards, see arguments_open */
static char complaint[200];

void arguments_open(const struct ops *ops, struct queue *q, bool forbid)
{
    forbidden = forbid && ops->async == NULL;
    real = ops;
    queue = q;
    arena = real->alloc(queue, ARENA_BYTES);
    before = malloc(ARENA_BYTES);
    after = malloc(ARENA_BYTES);
    if (arena == NULL || before == NULL || after == NULL)
        abort();
    n_args = 0;
    used = 0;
}

void arguments_close(void)
{
    real->free(queue, arena);
    free(before);
    free(after);
}

/* Writes an element of the array's type that no test computes with and no operation produces. */
static void poison(unsigned char *to, const struct argument *a)
{
    const uint32_t f32 = 0x7FC5A5A5u;
    const uint16_t f16 = 0x7EA5, bf16 = 0x7FE5; /* NaNs as well */
    const void *nan = queue->act == DTYPE_F32 ? (const void *)&f32 : queue->act == DTYPE_F16 ? &f16 : &bf16;
    if (a->act)
        memcpy(to, nan, a->size);
    else
        memset(to, 0xB6, a->size);
}

static void fill(const struct argument *a)
{
    unsigned char *to = before + a->at;
    for (size_t i = 0; i < a->n; i++, to += a->size)
        if (a->use == ARGUMENT_MADE)
            poison(to, a);
        else if (a->act)
            dtype_store(to, queue->act, 0, ((const float *)a->host)[i]);
    if (a->use != ARGUMENT_MADE && !a->act && a->n > 0)
        memcpy(before + a->at, a->host, a->n * a->size);
}

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static struct argument *add(const char *name, const void *host, size_t n, size_t size, bool act, enum argument_use use)
{
    if (host == NULL)
        return NULL;
    for (int i = 0; i < n_args; i++)
        if (args[i].host == host && args[i].n == n && n > 0) {
            if (args[i].use != use) /* the two promises would contradict each other */
                abort();
            return &args[i];
        }
    size_t begin = used, bytes = n * size;
    used += GUARD_BYTES + round_up(bytes) + GUARD_BYTES;
    if (n_args == MAX_ARGS || used > ARENA_BYTES || size > MAX_ELEMENT)
        abort();
    struct argument *a = &args[n_args++];
    *a = (struct argument){name, (void *)host, n, size, begin + GUARD_BYTES, act, use, NULL};
    if (use == ARGUMENT_PARTLY && (a->may = calloc(n + 1, 1)) == NULL)
        abort();
    memset(before + begin, GUARD_BYTE, used - begin);
    fill(a);
    real->upload(queue, arena + begin, used - begin, before + begin, used - begin, used - begin, 1);
    if (forbidden) {
        ASAN_POISON_MEMORY_REGION(arena + begin, GUARD_BYTES);
        ASAN_POISON_MEMORY_REGION(arena + a->at + bytes, used - a->at - bytes);
    }
    return a;
}

struct argument *argument(const char *name, const void *host, size_t n, size_t size, enum argument_use use)
{
    return add(name, host, n, size, false, use);
}

struct argument *argument_act(const char *name, const void *host, size_t n, enum argument_use use)
{
    return add(name, host, n, dtype_bytes(queue->act), true, use);
}

void argument_may_change(struct argument *a, size_t first, size_t n)
{
    if (a != NULL)
        memset(a->may + first, 1, n);
}

void *argument_data(const struct argument *a)
{
    return a != NULL ? arena + a->at : NULL;
}

static void complain(const struct argument *a, const char *what, size_t i)
{
    if (complaint[0] == '\0')
        (void)snprintf(complaint, sizeof complaint, "%s, %zu elements of %zu bytes: %s %zu", a->name, a->n, a->size,
                       what, i);
}

/* Guards extend from `begin` to the argument and from its end to `end`. */
static void check_guards(const struct argument *a, size_t begin, size_t end)
{
    for (size_t i = begin; i < a->at; i++)
        if (after[i] != GUARD_BYTE)
            complain(a, "written before it, distance in bytes", a->at - i);
    for (size_t i = a->at + a->n * a->size; i < end; i++)
        if (after[i] != GUARD_BYTE)
            complain(a, "written behind it, distance in bytes", i - a->at - a->n * a->size);
}

static void check_elements(const struct argument *a)
{
    unsigned char poisoned[MAX_ELEMENT];
    if (a->use == ARGUMENT_READ && memcmp(after + a->at, before + a->at, a->n * a->size) == 0)
        return;
    poison(poisoned, a);
    for (size_t i = 0; i < a->n; i++) {
        const unsigned char *was = before + a->at + i * a->size, *is = after + a->at + i * a->size;
        if (a->use == ARGUMENT_MADE && memcmp(is, poisoned, a->size) == 0)
            complain(a, "nobody wrote element", i);
        if ((a->use == ARGUMENT_READ || (a->use == ARGUMENT_PARTLY && !a->may[i])) && memcmp(is, was, a->size) != 0)
            complain(a, "no business with element", i);
    }
}

static void take_back(const struct argument *a)
{
    if (a->use == ARGUMENT_READ || a->use == ARGUMENT_SCRATCH)
        return;
    if (!a->act && a->n > 0)
        memcpy(a->host, after + a->at, a->n * a->size);
    for (size_t i = 0; a->act && i < a->n; i++)
        ((float *)a->host)[i] = dtype_load(after + a->at, queue->act, i);
}

const char *arguments_return(void)
{
    real->wait(queue);
    ASAN_UNPOISON_MEMORY_REGION(arena, used);
    real->download(queue, after, arena, used);
    real->wait(queue);
    complaint[0] = '\0';
    size_t begin = 0;
    for (int i = 0; i < n_args; i++) {
        struct argument *a = &args[i];
        size_t end = i + 1 < n_args ? args[i + 1].at - GUARD_BYTES : used;
        check_guards(a, begin, end);
        check_elements(a);
        take_back(a);
        free(a->may);
        begin = end;
    }
    n_args = 0;
    used = 0;
    return complaint[0] != '\0' ? complaint : NULL;
}
