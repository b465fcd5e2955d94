/* tests/support/arguments.h - the arrays that one operation gets, as copies in the memory of the backend under test:
 * each between guard bytes, results poisoned beforehand, and afterwards every byte looked at that the operation had no
 * business with. An array of activations is float on the host and the queue's type there. */
#ifndef TESTS_SUPPORT_ARGUMENTS_H
#define TESTS_SUPPORT_ARGUMENTS_H

#include "kernels/ops.h"

/* The operation's promise about an array. */
enum argument_use {
    ARGUMENT_READ,    /* no bit changes */
    ARGUMENT_CHANGED, /* read and written */
    ARGUMENT_MADE,    /* every element is written; the host's values do not get there, poison does */
    ARGUMENT_PARTLY,  /* written where argument_may_change says, no bit changes elsewhere */
    ARGUMENT_SCRATCH, /* of no matter afterwards */
};

struct argument;

/* Memory for the arguments of one operation after the other. forbid: where AddressSanitizer is compiled in and the
 * memory is the host's, it ends the program at a read or a write beside an argument. */
void arguments_open(const struct ops *real, struct queue *q, bool forbid);
void arguments_close(void);

/* `name` is how complaints call it. host NULL: NULL. The same host array once more gives the same argument. */
struct argument *argument(const char *name, const void *host, size_t n, size_t size, enum argument_use use);
struct argument *argument_act(const char *name, const void *host, size_t n, enum argument_use use);
void argument_may_change(struct argument *a, size_t first, size_t n);
void *argument_data(const struct argument *a); /* NULL for NULL */

/* The operation is done: waits, copies what it wrote to the host's arrays, forgets all arguments. Returns the first
 * thing that is wrong, as a sentence in memory of its own; NULL: nothing. */
const char *arguments_return(void);

#endif
