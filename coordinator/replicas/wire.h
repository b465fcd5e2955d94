/* coordinator/replicas/wire.h - numbers, texts and arrays as bytes and back, for what the replicas of a job tell each
 * other. Ranks of a job run one program on machines of one kind, so numbers are written as they lie in memory. Reading
 * trusts nothing: a length is held against the bytes that are there, and the first thing that does not fit is
 * remembered. */
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
    bool failed; /* out of host memory: what has been written is of no use */
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
    const char *wrong; /* the first item that did not fit; NULL: none so far. Zeros are read from then on */
};

/* Note that something does not fit. */
void wire_fail(struct wire_in *w, const char *what);

bool wire_get(struct wire_in *w, void *data, size_t bytes);
unsigned wire_get_u8(struct wire_in *w);
uint64_t wire_get_u64(struct wire_in *w);
float wire_get_f32(struct wire_in *w); /* a finite one */
double wire_get_f64(struct wire_in *w);

/* A number in [low, high]; `what` names it if it is not. */
int32_t wire_get_i32(struct wire_in *w, int32_t low, int32_t high, const char *what);
bool wire_get_bool(struct wire_in *w);

/* A length of at most `most`, each element of which has at least `least` bytes still to come. */
size_t wire_get_count(struct wire_in *w, size_t most, size_t least, const char *what);

/* An array: *data is malloc'ed with room for one more byte, which is 0, and the caller frees it; NULL when something is
 * wrong. */
void *wire_get_array(struct wire_in *w, size_t *n, size_t most, size_t size, const char *what);

/* The message has been read to its end: -1 and *e if something was wrong, or bytes are left. */
int wire_end(const struct wire_in *w, const char *message, struct err *e);

#endif
