/* rank/world/numa.c - see numa.h. */
#include "rank/world/numa.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a file's first bytes; false if that fails. */
static bool read_text(const char *path, char *text, size_t bytes)
{
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    size_t n = fread(text, 1, bytes - 1, f);
    text[n] = '\0';
    bool good = ferror(f) == 0 && n < bytes - 1;
    (void)fclose(f);
    return good;
}

int numa_of_device(const char *sysfs, const char *pci_id)
{
    char path[512], text[32], id[64], *end = NULL;
    size_t n = strcspn(pci_id, "/");
    if (n == 0 || n >= sizeof id)
        return -1;
    for (size_t i = 0; i < n; i++)
        id[i] = (char)tolower((unsigned char)pci_id[i]);
    id[n] = '\0';
    (void)snprintf(path, sizeof path, "%s/bus/pci/devices/%s/numa_node", sysfs, id);
    if (!read_text(path, text, sizeof text))
        return -1;
    long node = strtol(text, &end, 10);
    return end != text && node >= 0 && node < NUMA_MAX_NODES ? (int)node : -1;
}

/* A core's number at *text, which is advanced; -1: none. */
static long parse_core(const char **text)
{
    char *end = NULL;
    if (!isdigit((unsigned char)**text))
        return -1;
    long core = strtol(*text, &end, 10);
    *text = end;
    return core < CPU_SETSIZE ? core : -1;
}

bool numa_parse_cpulist(const char *text, cpu_set_t *cpus)
{
    CPU_ZERO(cpus);
    for (const char *at = text; *at != '\0' && *at != '\n';) {
        long first = parse_core(&at), last = first;
        if (first >= 0 && *at == '-') {
            at++;
            last = parse_core(&at);
        }
        bool more = *at == ',' && isdigit((unsigned char)at[1]);
        if (first < 0 || last < first || (!more && *at != '\0' && *at != '\n')) {
            CPU_ZERO(cpus);
            return false;
        }
        for (long core = first; core <= last; core++)
            CPU_SET((size_t)core, cpus);
        at += more;
    }
    return true;
}

uint64_t numa_of_cpus(const char *sysfs, const cpu_set_t *cpus)
{
    uint64_t nodes = 0;
    for (int node = 0; node < NUMA_MAX_NODES; node++) {
        char path[512], text[4096];
        cpu_set_t of_node, both;
        (void)snprintf(path, sizeof path, "%s/devices/system/node/node%d/cpulist", sysfs, node);
        if (!read_text(path, text, sizeof text) || !numa_parse_cpulist(text, &of_node))
            continue;
        CPU_AND(&both, &of_node, cpus);
        if (CPU_COUNT(&both) > 0)
            nodes |= (uint64_t)1 << node;
    }
    return nodes;
}
