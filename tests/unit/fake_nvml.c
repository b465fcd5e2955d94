/* tests/unit/fake_nvml.c - a library with NVML's names that has one GPU, for machines without a driver. Its answers
 * come from the environment, so that a test can change it:
 * FAKE_NVML="energy=1000,power=250000,reasons=8,mig=1,failed=1". A call whose name is missing returns 3, "not
 * supported". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int value(const char *name, unsigned long long *out)
{
    const char *at = getenv("FAKE_NVML");
    size_t n = strlen(name);
    for (; at != NULL && *at != '\0'; at += *at == ',')
        if (strncmp(at, name, n) == 0 && at[n] == '=') {
            *out = strtoull(at + n + 1, NULL, 10);
            return 0;
        } else {
            at += strcspn(at, ",");
        }
    return 3;
}

static int small(const char *name, unsigned *out)
{
    unsigned long long x = 0;
    int rc = value(name, &x);
    *out = (unsigned)x;
    return rc;
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int rc);
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device);
int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz);
int nvmlDeviceGetMaxClockInfo(void *device, int which, unsigned *mhz);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules);
int nvmlDeviceGetEccMode(void *device, int *now, int *pending);
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *n);
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed);
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *bytes);
int nvmlDeviceGetUtilizationRates(void *device, unsigned *percent);

int nvmlInit_v2(void)
{
    unsigned long long rc = 0;
    return value("init", &rc) == 0 ? (int)rc : 0;
}

int nvmlShutdown(void)
{
    return 0;
}

const char *nvmlErrorString(int rc)
{
    return rc == 6 ? "Not Found" : rc == 9 ? "Driver Not Loaded" : "Not Supported";
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device)
{
    *device = (void *)nvmlInit_v2;
    return strcmp(id, "0000:1A:00.0") == 0 ? 0 : 6;
}

int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz)
{
    (void)device;
    return small(which == 1 ? "sm" : "memory", mhz);
}

int nvmlDeviceGetMaxClockInfo(void *device, int which, unsigned *mhz)
{
    (void)device;
    return small(which == 1 ? "max_sm" : "max_memory", mhz);
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    (void)device;
    return sensor == 0 ? small("celsius", celsius) : 2;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    (void)device;
    return value("reasons", reasons);
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    (void)device;
    return small("power", milliwatts);
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
    (void)device;
    return value("energy", millijoules);
}

int nvmlDeviceGetEccMode(void *device, int *now, int *pending)
{
    (void)device;
    *pending = 1;
    return small("ecc", (unsigned *)now);
}

int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *n)
{
    (void)device;
    return kind == 1 && counter == 0 ? value("errors", n) : 2;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed)
{
    (void)device;
    *corrected = 1;
    return small("rows", uncorrected) == 0 && small("pending", pending) == 0 ? small("failed", failed) : 3;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending)
{
    (void)device;
    *pending = 0;
    return small("mig", now);
}

/* Total, free, used. */
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *bytes)
{
    (void)device;
    int rc = value("used", &bytes[2]);
    bytes[0] = 1000;
    bytes[1] = bytes[0] - bytes[2];
    return rc;
}

/* Processors, memory. */
int nvmlDeviceGetUtilizationRates(void *device, unsigned *percent)
{
    (void)device;
    percent[1] = 99;
    return small("busy", &percent[0]);
}
