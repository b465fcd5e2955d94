/* rank/world/places.c - see places.h. */
#include "rank/world/places.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const link_name[PEER_KINDS] = {"unknown", "none", "PCIe", "NVLink"};

/* A text buffer of fixed size; text that does not fit is cut off. */
struct text_row {
    char *text;
    size_t bytes, n;
};

__attribute__((format(printf, 2, 3))) static void add(struct text_row *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->n, l->bytes - l->n, format, args);
    va_end(args);
    if (n > 0)
        l->n = l->n + (size_t)n < l->bytes ? l->n + (size_t)n : l->bytes - 1;
}

/* Begin an empty line. */
static struct text_row begin_row(char *text, size_t bytes)
{
    text[0] = '\0';
    return (struct text_row){text, bytes, 0};
}

/* Numbers i < n that are in the set, as "0,2-3". */
static void add_numbers(struct text_row *l, int n, bool (*is_in)(const void *set, int i), const void *set)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        int last = i;
        if (!is_in(set, i))
            continue;
        while (last + 1 < n && is_in(set, last + 1))
            last++;
        add(l, last > i ? "%s%d-%d" : "%s%d", any ? "," : "", i, last);
        any = true;
        i = last;
    }
}

static bool same_host(const struct rank_place *a, const struct rank_place *b)
{
    return strcmp(a->host, b->host) == 0;
}

int places_choose(int n_visible, int node_rank, int n_node_ranks, const char *host, const char *note, struct err *e)
{
    if (n_visible <= 0)
        return ERR(e, ERR_DEVICE, "--device cuda: no GPU is visible on %s%s", host, note);
    if (n_visible >= n_node_ranks)
        return node_rank;
    if (n_visible == 1)
        return 0;
    return ERR(e, ERR_DEVICE,
               "%d ranks on this host, but %d GPUs are visible%s: start one rank per GPU, or --device cpu",
               n_node_ranks, n_visible, note);
}

/* Advice for two ranks with the same device. CUDA shows a process only the first one of a list of slices. */
static const char *advice(const struct rank_place *p)
{
    return strncmp(p->visible, "MIG-", 4) == 0 && strchr(p->visible, ',') != NULL
               ? "a process sees the first of several slices (MIG) only: give each rank one of them, or --device cpu"
               : "start one rank per GPU, or --device cpu";
}

int places_check(const struct rank_place *place, int n, struct err *e)
{
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            const struct rank_place *p = &place[a];
            if (p->id[0] == '\0' || strcmp(p->id, place[b].id) != 0 || !same_host(p, &place[b]))
                continue;
            if (p->visible[0] != '\0')
                return ERR(
                    e, ERR_DEVICE,
                    "ranks %d and %d have the same GPU %s of %s, CUDA_VISIBLE_DEVICES being \"%s\" and \"%s\": %s", a,
                    b, p->id, p->host, p->visible, place[b].visible, advice(p));
            return ERR(e, ERR_DEVICE,
                       "ranks %d and %d have the same GPU %s of %s: start one rank per GPU, or --device cpu", a, b,
                       p->id, p->host);
        }
    return 0;
}

/* The ranks of one host with the same kind of link. */
struct linked {
    const struct rank_place *place;
    const enum peer_link *link;
    int self;
    enum peer_link kind;
};

static bool is_linked(const void *set, int i)
{
    const struct linked *s = set;
    return i != s->self && s->link[i] == s->kind && same_host(&s->place[i], &s->place[s->self]);
}

void places_link(struct rank_place *place, int n, int rank, const enum peer_link *link)
{
    struct rank_place *p = &place[rank];
    struct text_row l = begin_row(p->peers, sizeof p->peers);
    for (int kind = PEER_KINDS - 1; kind >= 0; kind--) {
        const struct linked set = {place, link, rank, (enum peer_link)kind};
        p->n_links[kind] = 0;
        for (int i = 0; i < n; i++)
            p->n_links[kind] += is_linked(&set, i);
        if (p->n_links[kind] == 0)
            continue;
        add(&l, "%s%s to ", l.n > 0 ? "; " : "", link_name[kind]);
        add_numbers(&l, n, is_linked, &set);
    }
    if (l.n == 0)
        add(&l, "-");
}

static bool has_bit(const void *set, int i)
{
    return (*(const uint64_t *)set >> i & 1) != 0;
}

static int widest(const struct rank_place *place, int n, size_t member, int least)
{
    for (int i = 0; i < n; i++) {
        int width = (int)strlen((const char *)&place[i] + member);
        least = width > least ? width : least;
    }
    return least;
}

void places_row(char *text, size_t bytes, const struct rank_place *place, int n, int rank)
{
    struct text_row l = begin_row(text, bytes);
    int host = widest(place, n, offsetof(struct rank_place, host), 4),
        model = widest(place, n, offsetof(struct rank_place, model), 5);
    char numa[16] = "none", cores[64] = "none";
    if (rank < 0) {
        add(&l, "%4s  %-*s  %3s  %-*s  %-12s  %4s  %5s  %s", "rank", host, "host", "GPU", model, "model", "PCI bus id",
            "NUMA", "cores", "P2P");
        return;
    }
    const struct rank_place *p = &place[rank];
    struct text_row c = begin_row(cores, sizeof cores);
    if (p->numa >= 0)
        (void)snprintf(numa, sizeof numa, "%d", p->numa);
    add_numbers(&c, 64, has_bit, &p->cpu_nodes);
    add(&l, "%4d  %-*s  %3d  %-*s  %-12.*s  %4s  %5s  %s", rank, host, p->host, p->device, model, p->model,
        (int)strcspn(p->id, "/"), p->id, numa, p->cpu_nodes != 0 ? cores : "none", p->peers);
}

int places_n_hosts(const struct rank_place *place, int n)
{
    int n_hosts = 0;
    for (int i = 0; i < n; i++) {
        int first = 0;
        while (!same_host(&place[first], &place[i]))
            first++;
        n_hosts += first == i;
    }
    return n_hosts;
}

void places_summary(char *text, size_t bytes, const struct rank_place *place, int n)
{
    struct text_row l = begin_row(text, bytes);
    int n_hosts = places_n_hosts(place, n), others = 0, links = 0;
    for (int i = 1; i < n; i++)
        others += strcmp(place[i].model, place[0].model) != 0;
    add(&l, "%d ranks on %d host%s, each with a GPU of its own: %s", n, n_hosts, n_hosts == 1 ? "" : "s",
        place[0].model);
    if (others > 0)
        add(&l, " (%d ranks have another model)", others);
    for (int kind = PEER_KINDS - 1; kind >= 0; kind--) {
        int ends = 0;
        for (int i = 0; i < n; i++)
            ends += place[i].n_links[kind];
        if (ends > 0)
            add(&l, "%s%d %s", links++ == 0 ? "; P2P of pairs: " : ", ", ends / 2, link_name[kind]);
    }
    add(&l, "; --verbose lists them");
}

static bool is_far(const void *set, int i)
{
    const struct rank_place *p = (const struct rank_place *)set + i;
    return p->numa >= 0 && p->cpu_nodes != 0 && (p->cpu_nodes >> p->numa & 1) == 0;
}

void places_far(char *text, size_t bytes, const struct rank_place *place, int n)
{
    struct text_row l = begin_row(text, bytes);
    add_numbers(&l, n, is_far, place);
}

bool places_apart(const struct rank_place *place, int n)
{
    bool apart = false;
    for (int i = 0; i < n; i++)
        apart = apart || place[i].n_links[PEER_NONE] > 0;
    return apart;
}
