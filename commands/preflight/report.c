/* commands/preflight/report.c - see preflight_report.h. */
#include "commands/preflight/report.h"
#include "base/json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define CELL 44 /* two integers of 64 bits */

static const char *link_name(const struct preflight *p, int from, int to)
{
    static const char *const name[PEER_KINDS] = {"?", "none", "PCIe", "NVLink"};
    unsigned char kind = p->link[(size_t)from * (size_t)p->n_ranks + (size_t)to];
    return from == to ? "-" : kind < PEER_KINDS ? name[kind] : "?";
}

static bool has_gpus(const struct preflight *p)
{
    return p->rank[0].place.id[0] != '\0';
}

static bool same_host(const struct preflight *p, int a, int b)
{
    return strcmp(p->rank[a].place.host, p->rank[b].place.host) == 0;
}

/* The host's next rank from `rank` on; n_ranks: there is none. */
static int next_of_host(const struct preflight *p, int host_rank, int rank)
{
    while (rank < p->n_ranks && !same_host(p, host_rank, rank))
        rank++;
    return rank;
}

/* Is it the first of its host, and are there others? Then its host has a matrix. */
static bool opens_matrix(const struct preflight *p, int rank)
{
    return has_gpus(p) && next_of_host(p, rank, 0) == rank && next_of_host(p, rank, rank + 1) < p->n_ranks;
}

static double fastest(const struct preflight *p)
{
    double most = 0;
    for (int r = 0; r < p->n_ranks; r++)
        most = p->rank[r].read_rate > most ? p->rank[r].read_rate : most;
    return most;
}

/* The bandwidth of an all-reduce: the bytes that each rank sends and receives, as NCCL's tests define it. */
static double bus_rate(const struct preflight *p, const struct preflight_sum *s)
{
    return s->bytes / s->seconds * 2 * (p->n_ranks - 1) / p->n_ranks;
}

/* ---- table ---- */

static void print_places(FILE *out, const struct preflight *p)
{
    struct rank_place *all = calloc((size_t)p->n_ranks, sizeof *all);
    char text[600];
    bool gpus = has_gpus(p);
    for (int r = 0; all != NULL && r < p->n_ranks; r++)
        all[r] = p->rank[r].place;
    for (int r = -1; all != NULL && gpus && r < p->n_ranks; r++) {
        places_row(text, sizeof text, all, p->n_ranks, r);
        (void)fprintf(out, "%s\n", text);
    }
    free(all);
}

/* "1755/1980", "-" where unknown. */
static const char *pair(char *cell, long long value, long long of)
{
    if (value < 0)
        (void)snprintf(cell, CELL, "-");
    else if (of < 0)
        (void)snprintf(cell, CELL, "%lld", value);
    else
        (void)snprintf(cell, CELL, "%lld/%lld", value, of);
    return cell;
}

static void print_ranks(FILE *out, const struct preflight *p)
{
    bool gpus = has_gpus(p);
    int host = 4;
    for (int r = 0; r < p->n_ranks; r++)
        host = (int)strlen(p->rank[r].place.host) > host ? (int)strlen(p->rank[r].place.host) : host;
    (void)fprintf(out, "%4s  %-*s  %5s  %7s  %9s  %5s  %7s", "rank", host, "host", "cores", "threads", "read GB/s",
                  "share", "ping us");
    (void)fprintf(out, gpus ? "  %9s  %9s  %3s  %5s  %6s  %8s  %s\n" : "\n", "SM MHz", "mem MHz", "C", "W", "errors",
                  "remapped", "slowed by");
    for (int r = 0; r < p->n_ranks; r++) {
        const struct preflight_rank *k = &p->rank[r];
        const struct nvml_state *s = &k->gpu;
        char cell[6][CELL], why[120];
        (void)fprintf(out, "%4d  %-*s  %5d  %7d  %9.1f  %4.0f%%  %7.1f", r, host, k->place.host, k->n_cpus,
                      k->n_threads, k->read_rate / 1e9, 100 * k->read_rate / fastest(p), 1e6 * k->ping);
        nvml_reasons(why, sizeof why, s->reasons);
        if (gpus)
            (void)fprintf(out, "  %9s  %9s  %3s  %5s  %6s  %8s  %s", pair(cell[0], s->sm_mhz, s->max_sm_mhz),
                          pair(cell[1], s->memory_mhz, s->max_memory_mhz), pair(cell[2], s->celsius, -1),
                          pair(cell[3], s->milliwatts < 0 ? -1 : s->milliwatts / 1000, -1),
                          s->ecc == 0 ? "no ECC" : pair(cell[4], s->uncorrected_errors, -1),
                          pair(cell[5], s->rows_remapped, -1), why);
        (void)fputc('\n', out);
    }
}

/* One matrix per host: between hosts there is no P2P. */
static void print_links(FILE *out, const struct preflight *p, int host)
{
    (void)fprintf(out, "P2P on %s\n      ", p->rank[host].place.host);
    for (int to = host; to < p->n_ranks; to = next_of_host(p, host, to + 1))
        (void)fprintf(out, " %6d", to);
    for (int from = host; from < p->n_ranks; from = next_of_host(p, host, from + 1)) {
        (void)fprintf(out, "\n%6d", from);
        for (int to = host; to < p->n_ranks; to = next_of_host(p, host, to + 1))
            (void)fprintf(out, " %6s", link_name(p, from, to));
    }
    (void)fputc('\n', out);
}

static void print_files(FILE *out, const struct preflight *p)
{
    double rate = 0;
    for (int r = 0; r < p->n_ranks; r++) {
        double bytes = 0, cold = 0;
        if (!preflight_file_rate(p, r, &rate))
            continue;
        for (int k = 0; k < p->n_ranks; k++)
            if (strcmp(p->rank[k].place.host, p->rank[r].place.host) == 0) {
                bytes += p->rank[k].file_bytes;
                cold += p->rank[k].file_cold_bytes;
            }
        (void)fprintf(out, "files: %s reads %s at %.2f GB/s (%.1f MB, %.0f %% of it cold)\n", p->rank[r].place.host,
                      p->model, rate / 1e9, bytes / 1e6, 100 * cold / bytes);
    }
}

void preflight_table(FILE *out, const struct preflight *p, const struct preflight_problem *problem, int n_problems)
{
    char text[400];
    bool refuses = false;
    (void)fprintf(out, "preflight of %d rank%s on %s, %.1f s\n", p->n_ranks, p->n_ranks == 1 ? "" : "s", p->device,
                  p->seconds);
    print_places(out, p);
    print_ranks(out, p);
    for (int r = 0; r < p->n_ranks; r++)
        if (opens_matrix(p, r))
            print_links(out, p, r);
    for (int i = 0; i < p->n_sums; i++)
        (void)fprintf(out, "all-reduce %10.0f bytes  %9.1f us  %8.2f GB/s (bus)\n", p->sum[i].bytes,
                      1e6 * p->sum[i].seconds, bus_rate(p, &p->sum[i]) / 1e9);
    if (p->n_ranks > 1)
        (void)fprintf(out, "broadcast of 4 KiB to all, until all have answered rank 0: %.1f us\n", 1e6 * p->broadcast);
    print_files(out, p);
    for (int i = 0; i < n_problems; i++) {
        preflight_say(text, sizeof text, p, &problem[i]);
        (void)fprintf(out, "%s: %s\n", problem[i].refuses ? "UNFIT" : "note", text);
        refuses = refuses || problem[i].refuses;
    }
    (void)fprintf(out, "%s\n", refuses ? "not fit: see UNFIT above" : "fit");
}

/* Smallest and largest sum, slowest and fastest memory; the table has the details. */
void preflight_line(char *text, size_t bytes, const struct preflight *p)
{
    double most = fastest(p), least = most, rate = 0;
    for (int r = 0; r < p->n_ranks; r++)
        least = p->rank[r].read_rate < least ? p->rank[r].read_rate : least;
    int n = snprintf(text, bytes, "preflight: %d rank%s read at %.1f .. %.1f GB/s", p->n_ranks,
                     p->n_ranks == 1 ? "" : "s", least / 1e9, most / 1e9);
    if (p->n_sums > 0 && (size_t)n < bytes)
        n +=
            snprintf(text + n, bytes - (size_t)n, ", sum %.0f KiB in %.1f us, %.0f MiB at %.1f GB/s, broadcast %.1f us",
                     p->sum[0].bytes / 1024, 1e6 * p->sum[0].seconds, p->sum[p->n_sums - 1].bytes / (1 << 20),
                     bus_rate(p, &p->sum[p->n_sums - 1]) / 1e9, 1e6 * p->broadcast);
    if (preflight_file_rate(p, 0, &rate) && (size_t)n < bytes)
        n += snprintf(text + n, bytes - (size_t)n, ", files on %s at %.2f GB/s", p->rank[0].place.host, rate / 1e9);
    if ((size_t)n < bytes)
        (void)snprintf(text + n, bytes - (size_t)n, "; %.1f s", p->seconds);
}

/* ---- JSON ---- */

static void put_member(json_t *object, const char *key, json_t *value)
{
    (void)json_object_set_new(object, key, value);
}

/* The key is omitted where unknown. */
static void put_known(json_t *object, const char *key, int64_t value)
{
    if (value >= 0)
        put_member(object, key, json_integer(value));
}

static json_t *json_gpu(const struct nvml_state *s)
{
    json_t *o = json_object();
    char why[120];
    put_known(o, "sm_mhz", s->sm_mhz);
    put_known(o, "max_sm_mhz", s->max_sm_mhz);
    put_known(o, "memory_mhz", s->memory_mhz);
    put_known(o, "max_memory_mhz", s->max_memory_mhz);
    put_known(o, "celsius", s->celsius);
    put_known(o, "milliwatts", s->milliwatts);
    put_known(o, "ecc", s->ecc);
    put_known(o, "uncorrected_errors", s->uncorrected_errors);
    put_known(o, "remapped_rows", s->rows_remapped);
    put_known(o, "remap_pending", s->remap_pending);
    put_known(o, "remap_failed", s->remap_failed);
    put_known(o, "slowed_by_bits", s->reasons);
    nvml_reasons(why, sizeof why, s->reasons);
    if (s->reasons >= 0)
        put_member(o, "slowed_by", json_string(why));
    return o;
}

static json_t *json_rank(const struct preflight *p, int r)
{
    const struct preflight_rank *k = &p->rank[r];
    json_t *o = json_pack("{s:i, s:s, s:i, s:i, s:f, s:f, s:f}", "rank", r, "host", k->place.host, "cores", k->n_cpus,
                          "threads", k->n_threads, "read_bytes_per_second", k->read_rate, "read_share",
                          k->read_rate / fastest(p), "ping_microseconds", 1e6 * k->ping);
    put_known(o, "numa_node", k->place.numa);
    if (k->place.id[0] != '\0') {
        put_member(o, "device", json_integer(k->place.device));
        put_member(o, "model", json_string(k->place.model));
        put_member(o, "pci_bus_id", json_string(k->place.id));
        put_member(o, "gpu", json_gpu(&k->gpu));
    }
    if (k->file_bytes > 0)
        put_member(o, "files",
                   json_pack("{s:f, s:f, s:f}", "bytes", k->file_bytes, "cold_bytes", k->file_cold_bytes, "seconds",
                             k->file_seconds));
    return o;
}

static json_t *json_host_links(const struct preflight *p, int host)
{
    json_t *ranks = json_array(), *rows = json_array();
    for (int from = host; from < p->n_ranks; from = next_of_host(p, host, from + 1)) {
        json_t *row = json_array();
        for (int to = host; to < p->n_ranks; to = next_of_host(p, host, to + 1))
            (void)json_array_append_new(row, json_string(link_name(p, from, to)));
        (void)json_array_append_new(ranks, json_integer(from));
        (void)json_array_append_new(rows, row);
    }
    return json_pack("{s:s, s:o, s:o}", "host", p->rank[host].place.host, "ranks", ranks, "links", rows);
}

static json_t *json_links(const struct preflight *p)
{
    json_t *list = json_array();
    for (int r = 0; r < p->n_ranks; r++)
        if (opens_matrix(p, r))
            (void)json_array_append_new(list, json_host_links(p, r));
    return list;
}

static json_t *json_sums(const struct preflight *p)
{
    json_t *list = json_array();
    for (int i = 0; i < p->n_sums; i++)
        (void)json_array_append_new(list, json_pack("{s:f, s:f, s:f}", "bytes", p->sum[i].bytes, "microseconds",
                                                    1e6 * p->sum[i].seconds, "bus_bytes_per_second",
                                                    bus_rate(p, &p->sum[i])));
    return list;
}

static json_t *json_files(const struct preflight *p)
{
    json_t *list = json_array();
    double rate = 0;
    for (int r = 0; r < p->n_ranks; r++)
        if (preflight_file_rate(p, r, &rate))
            (void)json_array_append_new(
                list, json_pack("{s:s, s:f}", "host", p->rank[r].place.host, "bytes_per_second", rate));
    return list;
}

void preflight_json(FILE *out, const struct preflight *p, const struct preflight_problem *problem, int n_problems)
{
    json_t *root = json_pack("{s:s, s:i, s:f, s:f}", "device", p->device, "n_ranks", p->n_ranks, "seconds", p->seconds,
                             "read_bytes_per_second", p->read_together);
    json_t *ranks = json_array(), *problems = json_array();
    bool refuses = false;
    for (int r = 0; r < p->n_ranks; r++)
        (void)json_array_append_new(ranks, json_rank(p, r));
    for (int i = 0; i < n_problems; i++) {
        const struct preflight_problem *q = &problem[i];
        (void)json_array_append_new(problems, json_pack("{s:i, s:s, s:b, s:s}", "rank", q->rank, "host",
                                                        p->rank[q->rank].place.host, "refuses", q->refuses != 0, "text",
                                                        q->text));
        refuses = refuses || q->refuses;
    }
    put_member(root, "ranks", ranks);
    if (p->n_ranks > 1) {
        if (has_gpus(p))
            put_member(root, "p2p", json_links(p));
        put_member(root, "all_reduce", json_sums(p));
        put_member(root, "broadcast_microseconds", json_real(1e6 * p->broadcast));
    }
    if (p->model != NULL)
        put_member(root, "files", json_files(p));
    put_member(root, "problems", problems);
    put_member(root, "fit", json_boolean(!refuses));
    (void)json_print(root, out, JSON_INDENT(2));
    (void)fputc('\n', out);
    json_decref(root);
}
