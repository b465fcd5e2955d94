/* rank/measure/energy.c - see energy.h. */
#include "rank/measure/energy.h"
#include "base/clock.h"

#include <math.h>

void energy_open_gpu(struct energy *g, const char *library, const char *pci_id)
{
    struct err e = {0};
    *g = (struct energy){.first = -1};
    if (nvml_open(&g->nvml, library, pci_id, &e) != 0 || g->nvml.is_slice)
        return;
    int64_t milliwatts = nvml_power(&g->nvml);
    g->first = nvml_energy(&g->nvml);
    g->at = seconds_now();
    g->watts = (double)milliwatts / 1e3;
    g->known = g->first >= 0 || milliwatts >= 0;
}

void energy_open(struct energy *g, const struct ops *ops, struct queue *q)
{
    char id[64], model[64];
    *g = (struct energy){.first = -1};
    if (ops->async == NULL)
        return;
    ops->async->identify(q, id, model, sizeof id);
    energy_open_gpu(g, NVML_LIBRARY, id);
}

void energy_close(struct energy *g)
{
    nvml_close(&g->nvml);
    g->known = false;
}

bool energy_is_integral(const struct energy *g)
{
    return g->known && g->first < 0;
}

static void integrate(struct energy *g)
{
    double now = seconds_now();
    int64_t milliwatts = nvml_power(&g->nvml);
    if (milliwatts < 0)
        return; /* the next call covers this interval as well */
    g->joules += (now - g->at) * (g->watts + (double)milliwatts / 1e3) / 2;
    g->at = now;
    g->watts = (double)milliwatts / 1e3;
}

double energy_joules(struct energy *g)
{
    if (!g->known)
        return NAN;
    if (g->first < 0) {
        integrate(g);
        return g->joules;
    }
    int64_t now = nvml_energy(&g->nvml);
    return now >= g->first ? (double)(now - g->first) / 1e3 : NAN; /* a counter that was reset gives no difference */
}
