/* tests/support/backend.h - runs a test of operations on every compiled backend. `ops` takes host memory and floats: it
 * is a shell that copies every argument into the backend's memory and every result back, in the activation type under
 * test. The test fails if an operation writes outside an argument or to one that it only reads, or leaves an element of
 * a result unwritten (tests/support/arguments.h). */
#ifndef TESTS_SUPPORT_BACKEND_H
#define TESTS_SUPPORT_BACKEND_H

#include "kernels/ops.h"

extern const struct ops *ops;

/* Sizes that the shell cannot derive: KV blocks and slots of the arrays for qkv_store and attention. */
extern int backend_n_blocks, backend_n_slots;

/* Selects backend, activation type and mode number i and returns its name, e.g. "cuda f16" or "cuda f16, invariant"
 * (kernels/invariance.h); NULL: there are no more. Exits if a device fails. */
const char *backend_select(int i);

/* For the test of the shell itself: until the next backend_select operations are those of `other`, and errors do not
 * fail the test but are returned by backend_fault, the first one since its last call; "": none. */
void backend_try(const struct ops *other);
const char *backend_fault(void);

bool backend_is_device(void);
bool backend_is_invariant(void);
enum dtype backend_act(void);
const struct ops *backend_real_ops(void); /* without the shell: device memory, as in ops.h */
struct queue *backend_real_queue(void);   /* an open queue of that backend */

/* Returns x rounded to the activation type. */
float as_act(float x);

struct queue test_queue(int n_threads);

#endif
