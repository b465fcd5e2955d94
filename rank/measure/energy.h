/* rank/measure/energy.h - the energy that this rank's device has used since it was opened here. Local. */
#ifndef MEASURE_ENERGY_H
#define MEASURE_ENERGY_H

#include "kernels/ops.h"
#include "rank/measure/nvml.h"

#include <stdbool.h>

struct energy {
    struct nvml nvml;
    int64_t first;    /* the card's counter at the start, mJ; -1: no counter */
    double joules;    /* power integrated until `at`, on devices without an energy counter, */
    double at, watts; /* s; and the power then */
    bool known;
};

/* Begin to count for the queue's device. A CPU, a machine without NVML, and a slice of a card (MIG), whose energy is
 * not counted separately, are not failures: the energy is then unknown. */
void energy_open(struct energy *g, const struct ops *ops, struct queue *q);
void energy_close(struct energy *g);

/* The same with the names of a library and a GPU. */
void energy_open_gpu(struct energy *g, const char *library, const char *pci_id);

/* Joules so far; NAN: unknown. If the GPU has no counter, its power is integrated between the calls, by the trapezium
 * rule: accurate to a few per cent if it is called about once a second. */
double energy_joules(struct energy *g);

/* Is that figure integrated from power? */
bool energy_is_integral(const struct energy *g);

#endif
