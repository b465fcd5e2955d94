/* commands/models/switch_report.c - see switch_report.h. */
#include "commands/models/switch_report.h"
#include "base/json.h"

static const char *part_name(int part)
{
    return part == SWITCH_ALL      ? "all"
           : part == SWITCH_UNLOAD ? "unload"
           : part == SWITCH_TOKEN  ? "first token"
                                   : load_phase_name((enum load_phase)(part - SWITCH_OPEN));
}

void switch_figures_add(struct switch_figures *f, int to, const double part[N_SWITCH_PARTS])
{
    if (f->n[to] == SPREAD_MOST)
        return;
    for (int i = 0; i < N_SWITCH_PARTS; i++)
        f->seconds[to][i][f->n[to]] = part[i];
    f->n[to]++;
}

void switch_report_one(FILE *f, const char *name, const double part[N_SWITCH_PARTS])
{
    for (int i = 0; i < N_SWITCH_PARTS; i++) {
        char title[80];
        (void)snprintf(title, sizeof title, i == SWITCH_ALL ? "to %.60s" : "  %.60s",
                       i == SWITCH_ALL ? name : part_name(i));
        if (part[SWITCH_ALL] > 0 || (i != SWITCH_ALL && i != SWITCH_TOKEN))
            (void)fprintf(f, "%-28s %12.3f\n", title, 1e3 * part[i]);
        else
            (void)fprintf(f, "%-28s %12s\n", title, "no token");
    }
}

/* The times of the model of --beside under one name, for the activities from `first` to `last`. */
struct beside_line {
    double n, median, longest, rate; /* steps; s; tokens/s */
};

static struct beside_line beside_line(const struct switch_about *about, enum meanwhile first, enum meanwhile last)
{
    struct durations all;
    beside_add_up(about->beside, first, last, &all);
    return (struct beside_line){(double)all.n, durations_at(&all, 0.5), all.highest,
                                all.sum > 0 ? about->batch * (double)all.n / all.sum : 0};
}

static void print_beside(const char *name, struct beside_line l)
{
    printf("  %-26s %12.3f %10.3f    %10.1f\n", name, 1e3 * l.median, 1e3 * l.longest, l.rate);
}

static void beside_table(const struct switch_about *about)
{
    const struct beside_line alone = beside_line(about, MEANWHILE_NOTHING, MEANWHILE_NOTHING);
    const struct beside_line loading = beside_line(about, MEANWHILE_READ, MEANWHILE_COMMIT);
    char name[80];
    (void)snprintf(name, sizeof name, "a step of %.40s, batch %d", about->beside_name, about->batch);
    printf("%-28s %12s %10s    %10s\n", name, "median", "longest", "tokens/s");
    print_beside("alone", alone);
    print_beside("beside the other's steps", beside_line(about, MEANWHILE_TOKEN, MEANWHILE_TOKEN));
    print_beside("while models are exchanged", loading);
    for (int i = MEANWHILE_READ; i < N_MEANWHILE; i++) {
        (void)snprintf(name, sizeof name, "  %s", meanwhile_name((enum meanwhile)i));
        print_beside(name, beside_line(about, (enum meanwhile)i, (enum meanwhile)i));
    }
    if (alone.median > 0 && alone.rate > 0)
        printf("its longest step while models are exchanged: %.2f x the median alone; its speed: %.1f %%\n",
               loading.longest / alone.median, 100 * loading.rate / alone.rate);
}

void switch_report_table(const struct switch_figures *f, const struct switch_about *about)
{
    printf("model switch on %s, %d rank%s: milliseconds from a request of %d tokens to its first token, %d switches to "
           "each\n%-28s %12s %10s    %10s\n",
           about->device, about->n_ranks, about->n_ranks == 1 ? "" : "s", about->n_prompt, f->repetitions, "", "median",
           "lowest", "highest");
    for (int to = 0; to < 2; to++)
        for (int i = 0; i < N_SWITCH_PARTS; i++) {
            struct spread s = spread_of(f->seconds[to][i], f->n[to]);
            char name[80];
            (void)snprintf(name, sizeof name, i == SWITCH_ALL ? "to %.60s" : "  %.60s",
                           i == SWITCH_ALL ? about->name[to] : part_name(i));
            printf("%-28s %12.3f %10.3f .. %10.3f\n", name, 1e3 * s.median, 1e3 * s.lowest, 1e3 * s.highest);
        }
    if (about->beside_name != NULL)
        beside_table(about);
}

/* [median, lowest, highest] */
static json_t *json_spread(const double *seconds, int n)
{
    struct spread s = spread_of(seconds, n);
    return json_pack("[f, f, f]", 1e3 * s.median, 1e3 * s.lowest, 1e3 * s.highest);
}

static json_t *json_beside(const struct switch_about *about)
{
    json_t *root = json_pack("{s:s, s:i}", "model", about->beside_name, "batch", about->batch);
    for (int i = 0; i < N_MEANWHILE + 1; i++) {
        enum meanwhile from = i == 0 ? MEANWHILE_READ : (enum meanwhile)(i - 1), to = i == 0 ? MEANWHILE_COMMIT : from;
        struct beside_line l = beside_line(about, from, to);
        (void)json_object_set_new(root, i == 0 ? "exchange" : meanwhile_name(from),
                                  json_pack("{s:I, s:f, s:f, s:f}", "steps", (json_int_t)l.n, "median_milliseconds",
                                            1e3 * l.median, "longest_milliseconds", 1e3 * l.longest,
                                            "tokens_per_second", l.rate));
    }
    return root;
}

void switch_report_json(const struct switch_figures *f, const struct switch_about *about)
{
    json_t *list = json_array();
    for (int to = 0; to < 2; to++) {
        json_t *parts = json_object();
        for (int i = SWITCH_UNLOAD; i < N_SWITCH_PARTS; i++)
            (void)json_object_set_new(parts, i == SWITCH_TOKEN ? "first_token" : part_name(i),
                                      json_spread(f->seconds[to][i], f->n[to]));
        (void)json_array_append_new(list, json_pack("{s:o, s:o, s:o}", "model", json_string(about->name[to]),
                                                    "milliseconds", json_spread(f->seconds[to][SWITCH_ALL], f->n[to]),
                                                    "parts_milliseconds", parts));
    }
    json_t *root =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:o}", "device", about->device, "ranks", about->n_ranks, "n_prompt",
                  about->n_prompt, "repetitions", f->repetitions, "warmup", f->warmups, "model_switch", list);
    if (about->beside_name != NULL)
        (void)json_object_set_new(root, "beside", json_beside(about));
    (void)json_print(root, stdout, JSON_INDENT(2));
    (void)putchar('\n');
    json_decref(root);
}
