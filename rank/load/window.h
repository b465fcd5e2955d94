/* rank/load/window.h - host memory that a rank reads into and a device copies from: pages that are there, and pinned
 * where the device wants it. Pinning holds up all else that goes to the device, so a window may be kept from one load
 * to the next. */
#ifndef LOAD_WINDOW_H
#define LOAD_WINDOW_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct loader;
struct ops;
struct queue;

/* Zeroed: there is none. */
struct window {
    unsigned char *memory; /* aligned to pages */
    size_t bytes;
    bool pinned;
};

/* At least so many bytes for l's blocks; what is there and large enough stays. -1 and *e: there is none. */
int window_open(struct window *x, size_t bytes, const struct loader *l, struct err *e);
void window_close(struct window *x, const struct ops *ops, struct queue *q);

#endif
