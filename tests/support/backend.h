/* tests/support/backend.h - one test of operations, every backend that is compiled in. `ops` takes host memory and floats:
 * for the CPU it is the table itself; for a device it is a shell that carries every argument there and every result back,
 * in the activation type under test, and looks at guard bytes around each of them. */
#ifndef TESTS_SUPPORT_BACKEND_H
#define TESTS_SUPPORT_BACKEND_H

#include "kernels/ops.h"

extern const struct ops *ops;

/* What the shell cannot know: KV blocks and slots of the arrays that qkv_store and attention get. */
extern int backend_n_blocks, backend_n_slots;

/* Backend and activation type number i, e.g. "cuda f16"; NULL when there are no more. Exits when a device fails. */
const char *backend_select(int i);

bool backend_is_device(void);
enum dtype backend_act(void);
const struct ops *backend_real_ops(void); /* without the shell: device memory, as in ops.h */
struct queue *backend_real_queue(void);   /* an open queue of it */

/* x as the activation type keeps it. */
float as_act(float x);

struct queue test_queue(int n_threads);

#endif
