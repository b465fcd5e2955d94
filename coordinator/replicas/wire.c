/* coordinator/replicas/wire.c - see wire.h. */
#include "coordinator/replicas/wire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void wire_put(struct wire_out *w, const void *data, size_t bytes)
{
    if (!w->failed && w->capacity - w->bytes < bytes) {
        size_t capacity = 2 * w->capacity + bytes + 256;
        unsigned char *more = realloc(w->data, capacity);
        if (more == NULL) {
            w->failed = true;
        } else {
            w->data = more;
            w->capacity = capacity;
        }
    }
    if (w->failed || bytes == 0)
        return;
    memcpy(w->data + w->bytes, data, bytes);
    w->bytes += bytes;
}

void wire_put_u8(struct wire_out *w, unsigned x)
{
    unsigned char byte = (unsigned char)x;
    wire_put(w, &byte, 1);
}

void wire_put_i32(struct wire_out *w, int32_t x)
{
    wire_put(w, &x, sizeof x);
}

void wire_put_u64(struct wire_out *w, uint64_t x)
{
    wire_put(w, &x, sizeof x);
}

void wire_put_f32(struct wire_out *w, float x)
{
    wire_put(w, &x, sizeof x);
}

void wire_put_f64(struct wire_out *w, double x)
{
    wire_put(w, &x, sizeof x);
}

void wire_put_array(struct wire_out *w, const void *data, size_t n, size_t size)
{
    wire_put_u64(w, n);
    wire_put(w, data, n * size);
}

void wire_free(struct wire_out *w)
{
    free(w->data);
    memset(w, 0, sizeof *w);
}

void wire_fail(struct wire_in *w, const char *what)
{
    if (w->wrong == NULL)
        w->wrong = what;
}

bool wire_get(struct wire_in *w, void *data, size_t bytes)
{
    if (w->left < bytes)
        wire_fail(w, "its end");
    if (w->wrong != NULL) {
        memset(data, 0, bytes);
        return false;
    }
    memcpy(data, w->at, bytes);
    w->at += bytes;
    w->left -= bytes;
    return true;
}

unsigned wire_get_u8(struct wire_in *w)
{
    unsigned char x = 0;
    (void)wire_get(w, &x, sizeof x);
    return x;
}

uint64_t wire_get_u64(struct wire_in *w)
{
    uint64_t x = 0;
    (void)wire_get(w, &x, sizeof x);
    return x;
}

float wire_get_f32(struct wire_in *w)
{
    float x = 0;
    (void)wire_get(w, &x, sizeof x);
    if (!isfinite(x))
        wire_fail(w, "a number that is not valid");
    return isfinite(x) ? x : 0;
}

double wire_get_f64(struct wire_in *w)
{
    double x = 0;
    (void)wire_get(w, &x, sizeof x);
    if (!isfinite(x))
        wire_fail(w, "a number that is not valid");
    return isfinite(x) ? x : 0;
}

int32_t wire_get_i32(struct wire_in *w, int32_t low, int32_t high, const char *what)
{
    int32_t x = 0;
    if (wire_get(w, &x, sizeof x) && x >= low && x <= high)
        return x;
    wire_fail(w, what);
    return low;
}

bool wire_get_bool(struct wire_in *w)
{
    unsigned x = wire_get_u8(w);
    if (x > 1)
        wire_fail(w, "a flag");
    return x == 1;
}

size_t wire_get_count(struct wire_in *w, size_t most, size_t least, const char *what)
{
    uint64_t n = wire_get_u64(w);
    if (n > most || (least > 0 && n > w->left / least))
        wire_fail(w, what);
    return w->wrong == NULL ? (size_t)n : 0;
}

void *wire_get_array(struct wire_in *w, size_t *n, size_t most, size_t size, const char *what)
{
    *n = wire_get_count(w, most, size, what);
    char *data = w->wrong == NULL ? malloc(*n * size + 1) : NULL;
    if (data == NULL) {
        wire_fail(w, "host memory");
        *n = 0;
        return NULL;
    }
    (void)wire_get(w, data, *n * size);
    data[*n * size] = '\0';
    return data;
}

int wire_end(const struct wire_in *w, const char *message, struct err *e)
{
    if (w->wrong != NULL)
        return ERR(e, ERR_COMM, "%s does not fit: %s, %zu bytes before its end", message, w->wrong, w->left);
    if (w->left > 0)
        return ERR(e, ERR_COMM, "%s: %zu bytes more than expected", message, w->left);
    return 0;
}
