/* rank/world/numa.h - the NUMA nodes of cores and PCI devices, from the kernel's files under /sys. */
#ifndef WORLD_NUMA_H
#define WORLD_NUMA_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define NUMA_MAX_NODES 64

/* The node of a device, e.g. "0000:1A:00.0"; the part after a '/' is ignored. sysfs: "/sys". -1: unknown (a virtual
 * machine, one socket), or there is no such device. */
int numa_of_device(const char *sysfs, const char *pci_id);

/* The nodes that have any of these cores, bit i for node i; 0: unknown. */
uint64_t numa_of_cpus(const char *sysfs, const cpu_set_t *cpus);

/* Parses cores such as "0-3,8,10-11"; an empty text is an empty set. Returns false, and an empty set, for anything
 * else. */
bool numa_parse_cpulist(const char *text, cpu_set_t *cpus);

#endif
