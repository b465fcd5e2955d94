/* rank/load/window.h - host memory that a rank reads into and a device copies from: resident pages, pinned if the
 * device needs it. Pinning stalls all other work of the device, so a window may be kept from one load to the next. */
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
    unsigned char *memory; /* aligned to huge pages */
    size_t bytes;
    bool pinned;
};

/* Provides at least this many bytes for l's blocks; an existing window that is large enough is kept. -1 and *e without
 * memory. */
int window_open(struct window *x, size_t bytes, const struct loader *l, struct err *e);
void window_close(struct window *x, const struct ops *ops, struct queue *q);

#endif
