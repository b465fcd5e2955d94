/* coordinator/replicas/wire.h - encodes numbers, texts and arrays as bytes and back, for messages between the replicas
 * of a job. All ranks run the same program on the same kind of machine, so numbers are copied in memory format. Reading
 * trusts nothing: lengths are checked against the available bytes, and the first invalid item is recorded. */
#ifndef REPLICAS_WIRE_H
#define REPLICAS_WIRE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- writing ---- */

struct wire_out { /* zeroed = empty; data is malloc'ed */
    unsigned char *data;
    size_t bytes, capacity;
    bool failed; /* out of host memory: the written bytes are useless */
};

void wire_put(struct wire_out *w, const void *data, size_t bytes);
void wire_put_u8(struct wire_out *w, unsigned x);
void wire_put_i32(struct wire_out *w, int32_t x);
void wire_put_u64(struct wire_out *w, uint64_t x);
void wire_put_f32(struct wire_out *w, float x);
void wire_put_f64(struct wire_out *w, double x);
/* A length, then that many elements of `size` bytes. */
void wire_put_array(struct wire_out *w, const void *data, size_t n, size_t size);
void wire_free(struct wire_out *w);

/* ---- reading ---- */

struct wire_in {
    const unsigned char *at; /* borrowed */
    size_t left;
    const char *wrong; /* the first invalid item; NULL: none so far. Reads return zeros from then on */
};

/* Record that an item is invalid. */
void wire_fail(struct wire_in *w, const char *what);

bool wire_get(struct wire_in *w, void *data, size_t bytes);
unsigned wire_get_u8(struct wire_in *w);
uint64_t wire_get_u64(struct wire_in *w);
float wire_get_f32(struct wire_in *w); /* a finite one */
double wire_get_f64(struct wire_in *w);

/* A number in [low, high]; `what` names it in the error. */
int32_t wire_get_i32(struct wire_in *w, int32_t low, int32_t high, const char *what);
bool wire_get_bool(struct wire_in *w);

/* A length of at most `most`; at least `least` bytes per element must follow. */
size_t wire_get_count(struct wire_in *w, size_t most, size_t least, const char *what);

/* An array: *data is malloc'ed with room for one more byte, which is 0, and the caller frees it; NULL when something is
 * wrong. */
void *wire_get_array(struct wire_in *w, size_t *n, size_t most, size_t size, const char *what);

/* To be called at the end of a message: -1 and *e if an item was invalid, or bytes are left. */
int wire_end(const struct wire_in *w, const char *message, struct err *e);

#endif
