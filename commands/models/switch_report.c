/* commands/models/switch_report.c - see switch_report.h. */
#include "commands/models/switch_report.h"
#include "base/json.h"

#include <stdio.h>

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
}

/* [median, lowest, highest] */
static json_t *json_spread(const double *seconds, int n)
{
    struct spread s = spread_of(seconds, n);
    return json_pack("[f, f, f]", 1e3 * s.median, 1e3 * s.lowest, 1e3 * s.highest);
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
    (void)json_print(root, stdout, JSON_INDENT(2));
    (void)putchar('\n');
    json_decref(root);
}
