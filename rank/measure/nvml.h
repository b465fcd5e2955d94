/* rank/measure/nvml.h - what the driver's management library (NVML) says of a GPU: clocks, what slows them, temperature, memory errors,
 * power, energy. The library belongs to the driver, so it is looked for when it is needed: a program that was built with
 * CUDA starts where there is none, and CPU ranks never ask. Local: knows neither MPI nor CUDA. */
#ifndef MEASURE_NVML_H
#define MEASURE_NVML_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define NVML_LIBRARY "libnvidia-ml.so.1"

struct nvml_calls;

/* The library and one GPU of it. */
struct nvml {
    const struct nvml_calls *calls; /* owned; NULL: not open */
    void *device;
    bool is_slice; /* MIG: what is said is the card's, which others share */
};

/* Why clocks are not at their highest; the library's own bits. */
enum nvml_reason {
    NVML_IDLE = 0x1,
    NVML_CLOCKS_SET = 0x2,
    NVML_POWER_CAP = 0x4,
    NVML_HW_SLOWDOWN = 0x8,
    NVML_SYNC_BOOST = 0x10,
    NVML_SW_THERMAL = 0x20,
    NVML_HW_THERMAL = 0x40,
    NVML_POWER_BRAKE = 0x80,
    NVML_DISPLAY = 0x100
};
/* Of these: something is wrong with the node. A power cap is what a busy GPU meets anyway. */
#define NVML_BAD_REASONS (NVML_HW_SLOWDOWN | NVML_SW_THERMAL | NVML_HW_THERMAL | NVML_POWER_BRAKE)

/* Flat: gathered. -1: the library or the GPU does not say. */
struct nvml_state {
    int32_t sm_mhz, max_sm_mhz, memory_mhz, max_memory_mhz;
    int32_t celsius;
    int64_t reasons; /* enum nvml_reason */
    int64_t milliwatts;
    int64_t uncorrected_errors; /* of the memory since the driver was loaded; -1 also where ECC is off */
    int32_t rows_remapped, remap_pending, remap_failed;
    int32_t ecc; /* 1: on */
};

/* library: NVML_LIBRARY. pci_id: "0000:1a:00.0"; what follows a '/' is passed over. Returns -1 and *e when there is no such
 * library or GPU; nvml_close accepts what was not opened. */
int nvml_open(struct nvml *n, const char *library, const char *pci_id, struct err *e);
void nvml_close(struct nvml *n);

void nvml_look(const struct nvml *n, struct nvml_state *s);

/* Used since the driver was loaded, in millijoules, and now, in milliwatts. -1: not said. */
int64_t nvml_energy(const struct nvml *n);
int64_t nvml_power(const struct nvml *n);

/* "hw slowdown, power cap"; "none"; "?" for -1. */
void nvml_reasons(char *text, unsigned long bytes, int64_t reasons);

#endif
