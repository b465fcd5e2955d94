/* rank/measure/nvml.c - see nvml.h. The few required declarations of NVML are here: its ABI does not change under a
 * name, and toolkits without its header are common. */
#include "rank/measure/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOCK_SM          1
#define CLOCK_MEMORY      2
#define TEMPERATURE_GPU   0
#define ERROR_UNCORRECTED 1
#define SINCE_DRIVER      0 /* "volatile" counters */

struct memory {
    unsigned long long total, free, used; /* bytes */
};
struct rates {
    unsigned gpu, memory; /* per cent of the time */
};

/* Every call returns 0 on success. */
struct nvml_calls {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int rc);
    int (*handle)(const char *pci_id, void **device);
    int (*clock)(void *device, int which, unsigned *mhz);
    int (*max_clock)(void *device, int which, unsigned *mhz);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
    int (*reasons)(void *device, unsigned long long *reasons);
    int (*power)(void *device, unsigned *milliwatts);
    int (*energy)(void *device, unsigned long long *millijoules);
    int (*ecc_mode)(void *device, int *now, int *pending);
    int (*ecc_errors)(void *device, int kind, int counter, unsigned long long *n);
    int (*remapped)(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed);
    int (*mig_mode)(void *device, unsigned *now, unsigned *pending);
    int (*memory)(void *device, struct memory *m);
    int (*rates)(void *device, struct rates *r);
};

/* First the functions that every driver has; older ones may lack the others. */
static const struct {
    const char *name;
    size_t place;
    bool needed;
} call[] = {{"nvmlInit_v2", offsetof(struct nvml_calls, init), true},
            {"nvmlShutdown", offsetof(struct nvml_calls, shutdown), true},
            {"nvmlErrorString", offsetof(struct nvml_calls, error_string), true},
            {"nvmlDeviceGetHandleByPciBusId_v2", offsetof(struct nvml_calls, handle), true},
            {"nvmlDeviceGetClockInfo", offsetof(struct nvml_calls, clock), false},
            {"nvmlDeviceGetMaxClockInfo", offsetof(struct nvml_calls, max_clock), false},
            {"nvmlDeviceGetTemperature", offsetof(struct nvml_calls, temperature), false},
            {"nvmlDeviceGetCurrentClocksThrottleReasons", offsetof(struct nvml_calls, reasons), false},
            {"nvmlDeviceGetPowerUsage", offsetof(struct nvml_calls, power), false},
            {"nvmlDeviceGetTotalEnergyConsumption", offsetof(struct nvml_calls, energy), false},
            {"nvmlDeviceGetEccMode", offsetof(struct nvml_calls, ecc_mode), false},
            {"nvmlDeviceGetTotalEccErrors", offsetof(struct nvml_calls, ecc_errors), false},
            {"nvmlDeviceGetRemappedRows", offsetof(struct nvml_calls, remapped), false},
            {"nvmlDeviceGetMigMode", offsetof(struct nvml_calls, mig_mode), false},
            {"nvmlDeviceGetMemoryInfo", offsetof(struct nvml_calls, memory), false},
            {"nvmlDeviceGetUtilizationRates", offsetof(struct nvml_calls, rates), false}};

static int find_calls(void *library, struct nvml_calls *calls, struct err *e)
{
    for (size_t i = 0; i < sizeof call / sizeof call[0]; i++) {
        void *symbol = dlsym(library, call[i].name);
        if (symbol == NULL && call[i].needed)
            return ERR(e, ERR_DEVICE, "NVML: the driver's library has no %s", call[i].name);
        memcpy((char *)calls + call[i].place, &symbol, sizeof symbol);
    }
    return 0;
}

static int check_call(const struct nvml_calls *calls, int rc, const char *what, const char *pci_id, struct err *e)
{
    return rc == 0 ? 0 : ERR(e, ERR_DEVICE, "NVML: %s %s: %s", what, pci_id, calls->error_string(rc));
}

int nvml_open(struct nvml *n, const char *library, const char *pci_id, struct err *e)
{
    char address[64];
    unsigned mig = 0, pending = 0;
    *n = (struct nvml){0};
    (void)snprintf(address, sizeof address, "%.*s", (int)strcspn(pci_id, "/"), pci_id);
    void *found = dlopen(library, RTLD_NOW | RTLD_LOCAL); /* and never closed: part of a driver */
    if (found == NULL)
        return ERR(e, ERR_DEVICE, "NVML: %s", dlerror());
    struct nvml_calls *calls = err_calloc(e, 1, sizeof *calls, "NVML");
    if (calls == NULL || find_calls(found, calls, e) != 0 ||
        check_call(calls, calls->init(), "cannot begin for", address, e) != 0) {
        free(calls);
        return -1;
    }
    n->calls = calls; /* from here on NVML must be shut down */
    if (check_call(calls, calls->handle(address, &n->device), "GPU", address, e) != 0) {
        nvml_close(n);
        return -1;
    }
    n->is_slice = calls->mig_mode != NULL && calls->mig_mode(n->device, &mig, &pending) == 0 && mig != 0;
    return 0;
}

void nvml_close(struct nvml *n)
{
    if (n->calls != NULL) {
        (void)n->calls->shutdown();
        free((void *)n->calls);
    }
    *n = (struct nvml){0};
}

/* A call that gives an unsigned number, one argument before it. */
static int32_t ask(int (*function)(void *, int, unsigned *), void *device, int which)
{
    unsigned value = 0;
    return function != NULL && function(device, which, &value) == 0 && value <= INT32_MAX ? (int32_t)value : -1;
}

static void look_at_memory(const struct nvml *n, struct nvml_state *s)
{
    const struct nvml_calls *c = n->calls;
    unsigned corrected = 0, uncorrected = 0, waiting = 0, failed = 0;
    unsigned long long errors = 0;
    int on = 0, later = 0;
    if (c->ecc_mode != NULL && c->ecc_mode(n->device, &on, &later) == 0)
        s->ecc = on != 0;
    if (c->ecc_errors != NULL && c->ecc_errors(n->device, ERROR_UNCORRECTED, SINCE_DRIVER, &errors) == 0)
        s->uncorrected_errors = (int64_t)errors;
    if (c->remapped == NULL || c->remapped(n->device, &corrected, &uncorrected, &waiting, &failed) != 0)
        return;
    s->rows_remapped = (int32_t)(corrected + uncorrected);
    s->remap_pending = waiting != 0;
    s->remap_failed = failed != 0;
}

void nvml_look(const struct nvml *n, struct nvml_state *s)
{
    const struct nvml_calls *c = n->calls;
    unsigned long long reasons = 0;
    *s = (struct nvml_state){-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    if (c == NULL)
        return;
    s->sm_mhz = ask(c->clock, n->device, CLOCK_SM);
    s->memory_mhz = ask(c->clock, n->device, CLOCK_MEMORY);
    s->max_sm_mhz = ask(c->max_clock, n->device, CLOCK_SM);
    s->max_memory_mhz = ask(c->max_clock, n->device, CLOCK_MEMORY);
    s->celsius = ask(c->temperature, n->device, TEMPERATURE_GPU);
    if (c->reasons != NULL && c->reasons(n->device, &reasons) == 0)
        s->reasons = (int64_t)reasons;
    s->milliwatts = nvml_power(n);
    look_at_memory(n, s);
}

int64_t nvml_energy(const struct nvml *n)
{
    unsigned long long millijoules = 0;
    if (n->calls == NULL || n->calls->energy == NULL || n->calls->energy(n->device, &millijoules) != 0)
        return -1;
    return (int64_t)millijoules;
}

int64_t nvml_power(const struct nvml *n)
{
    unsigned milliwatts = 0;
    if (n->calls == NULL || n->calls->power == NULL || n->calls->power(n->device, &milliwatts) != 0)
        return -1;
    return milliwatts;
}

void nvml_use(const struct nvml *n, double *memory, double *busy)
{
    const struct nvml_calls *c = n->calls;
    struct memory m = {0};
    struct rates r = {0};
    *memory = *busy = NAN;
    if (c != NULL && c->memory != NULL && c->memory(n->device, &m) == 0 && m.total > 0)
        *memory = (double)m.used / (double)m.total;
    if (c != NULL && c->rates != NULL && c->rates(n->device, &r) == 0)
        *busy = r.gpu / 100.0;
}

void nvml_reasons(char *text, unsigned long bytes, int64_t reasons)
{
    static const char *const name[] = {"idle",       "clocks set", "power cap",   "hw slowdown", "sync boost",
                                       "sw thermal", "hw thermal", "power brake", "display"};
    size_t at = 0;
    (void)snprintf(text, bytes, "%s", reasons < 0 ? "?" : "none");
    for (size_t i = 0; reasons > 0 && i < sizeof name / sizeof name[0] && at < bytes; i++)
        if ((reasons >> i & 1) != 0)
            at += (size_t)snprintf(text + at, bytes - at, "%s%s", at > 0 ? ", " : "", name[i]);
}
