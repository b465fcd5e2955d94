/* tests/support/arguments.h - the array arguments of one operation, as copies in the memory of the backend under test:
 * each between guard bytes, with results poisoned beforehand, and with all bytes that the operation must not write
 * checked afterwards. An array of activations is float on the host and the queue's type there. */
#ifndef TESTS_SUPPORT_ARGUMENTS_H
#define TESTS_SUPPORT_ARGUMENTS_H

#include "kernels/ops.h"

/* The operation's promise about an array. */
enum argument_use {
    ARGUMENT_READ,    /* no bit changes */
    ARGUMENT_CHANGED, /* read and written */
    ARGUMENT_MADE,    /* every element is written; it starts as poison, not as the host's values */
    ARGUMENT_PARTLY,  /* written where argument_may_change allows, no bit changes elsewhere */
    ARGUMENT_SCRATCH, /* scratch, undefined afterwards */
};

struct argument;

/* Memory for the arguments of successive operations. forbid: if AddressSanitizer is compiled in and the memory is the
 * host's, an access beside an argument ends the program. */
void arguments_open(const struct ops *real, struct queue *q, bool forbid);
void arguments_close(void);

/* `name`: for messages. host NULL: returns NULL. The same host array gives the same argument again. */
struct argument *argument(const char *name, const void *host, size_t n, size_t size, enum argument_use use);
struct argument *argument_act(const char *name, const void *host, size_t n, enum argument_use use);
void argument_may_change(struct argument *a, size_t first, size_t n);
void *argument_data(const struct argument *a); /* NULL for NULL */

/* Call after the operation: waits, copies its results to the host's arrays, drops all arguments. Returns the first
 * error, as a sentence in static memory; NULL: none. */
const char *arguments_return(void);

#endif
