/* commands/bench/waits.c - see waits.h. */
#include "commands/bench/waits.h"
#include "base/json.h"

#include <stdio.h>

static void print_line(const char *name, const struct durations *h)
{
    if (h->n == 0)
        return;
    printf("  %-26s median %.2f ms, p90 %.2f, p99 %.2f, highest %.2f, mean %.2f of %llu\n", name,
           1e3 * durations_at(h, 0.5), 1e3 * durations_at(h, 0.9), 1e3 * durations_at(h, 0.99), 1e3 * h->highest,
           1e3 * durations_mean(h), (unsigned long long)h->n);
}

void waits_print(const struct waits *w)
{
    print_line("time to first token", &w->first_token);
    print_line("time between tokens", &w->between_tokens);
}

void step_times_print(const struct step_times *t)
{
    print_line("decode steps", &t->of[STEPS_DECODE]);
    print_line("steps with prompts", &t->of[STEPS_WITH_PROMPTS]);
}

json_t *waits_json(const struct durations *h)
{
    if (h->n == 0)
        return json_null();
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "n", (json_int_t)h->n, "mean", 1e3 * durations_mean(h), "median",
                     1e3 * durations_at(h, 0.5), "p90", 1e3 * durations_at(h, 0.9), "p99", 1e3 * durations_at(h, 0.99),
                     "highest", 1e3 * h->highest);
}

json_t *step_times_json(const struct step_times *t)
{
    return json_pack("{s:o, s:o}", "decode", waits_json(&t->of[STEPS_DECODE]), "with_prompts",
                     waits_json(&t->of[STEPS_WITH_PROMPTS]));
}
