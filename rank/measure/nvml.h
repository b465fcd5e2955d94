/* rank/measure/nvml.h - a GPU's state by the driver's management library (NVML): clocks, throttling, temperature,
 * memory errors, power, energy. The library belongs to the driver, so it is loaded on demand: a program built with CUDA
 * starts without it, and CPU ranks never load it. Local: knows neither MPI nor CUDA. */
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
    bool is_slice; /* MIG: the figures are those of the whole card */
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
/* The reasons among these that indicate a defect of the node. A power cap is not one: a busy GPU reaches it anyway. */
#define NVML_BAD_REASONS (NVML_HW_SLOWDOWN | NVML_SW_THERMAL | NVML_HW_THERMAL | NVML_POWER_BRAKE)

/* Flat: gathered. -1: not reported by the library or the GPU. */
struct nvml_state {
    int32_t sm_mhz, max_sm_mhz, memory_mhz, max_memory_mhz;
    int32_t celsius;
    int64_t reasons; /* enum nvml_reason */
    int64_t milliwatts;
    int64_t uncorrected_errors; /* memory errors since the driver was loaded; -1 also if ECC is off */
    int32_t rows_remapped, remap_pending, remap_failed;
    int32_t ecc; /* 1: on */
};

/* library: NVML_LIBRARY. pci_id: "0000:1a:00.0"; the part after a '/' is ignored. Returns -1 and *e if there is no
 * such library or GPU; nvml_close accepts an unopened struct. */
int nvml_open(struct nvml *n, const char *library, const char *pci_id, struct err *e);
void nvml_close(struct nvml *n);

void nvml_look(const struct nvml *n, struct nvml_state *s);

/* Energy since the driver was loaded, in millijoules, and present power, in milliwatts. -1: not reported. */
int64_t nvml_energy(const struct nvml *n);
int64_t nvml_power(const struct nvml *n);

/* The used share of its memory, by all processes, and the share of recent time in which it computed. NAN: not
 * reported. */
void nvml_use(const struct nvml *n, double *memory, double *busy);

/* "hw slowdown, power cap"; "none"; "?" for -1. */
void nvml_reasons(char *text, unsigned long bytes, int64_t reasons);

#endif
