/* client/bench_report.c - see bench_report.h. */
#include "client/bench_report.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>

static void line(const char *name, double value, int digits)
{
    printf("%-40s %12.*f\n", name, digits, value);
}

static void print_table(const struct bench_figures *f, const struct client_bench_options *o, const char *model)
{
    const struct {
        const char *name;
        const struct bench_spread *s;
    } rows[] = {{"TTFT: time to first token", &f->ttft},
                {"TPOT: time per output token, w/o 1st", &f->tpot},
                {"ITL: inter-token latency", &f->itl},
                {"E2EL: end-to-end latency", &f->e2el}};
    printf("model %s, ", model);
    if (isfinite(o->request_rate))
        printf("%g requests/s (Poisson)", o->request_rate);
    else
        printf("all requests at once");
    if (o->max_concurrency > 0)
        printf(", at most %lld open", (long long)o->max_concurrency);
    printf("\n");
    line("Successful requests", (double)f->completed, 0);
    line("Failed requests", (double)f->failed, 0);
    line("Benchmark duration (s)", f->seconds, 2);
    line("Total input tokens", (double)f->total_input, 0);
    line("Total generated tokens", (double)f->total_output, 0);
    line("Request throughput (req/s)", f->requests_per_s, 2);
    line("Output token throughput (tok/s)", f->output_per_s, 2);
    line("Peak output token throughput (tok/s)", f->peak_output_per_s, 2);
    line("Peak concurrent requests", (double)f->peak_concurrent, 0);
    line("Total token throughput (tok/s)", f->tokens_per_s, 2);
    printf("%-36s %10s %10s %10s %10s %10s\n", "milliseconds", "mean", "std", "p50", "p90", "p99");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        printf("%-36s %10.2f %10.2f %10.2f %10.2f %10.2f\n", rows[i].name, rows[i].s->mean, rows[i].s->deviation,
               rows[i].s->p50, rows[i].s->p90, rows[i].s->p99);
}

static void put_number(json_t *object, const char *statistic, const char *name, double value)
{
    char key[64];
    (void)snprintf(key, sizeof key, "%s_%s_ms", statistic, name);
    (void)json_object_set_new(object, key, json_real(value));
}

static void put_spread(json_t *object, const char *name, const struct bench_spread *s)
{
    put_number(object, "mean", name, s->mean);
    put_number(object, "median", name, s->p50);
    put_number(object, "std", name, s->deviation);
    put_number(object, "p50", name, s->p50);
    put_number(object, "p90", name, s->p90);
    put_number(object, "p99", name, s->p99);
}

static void print_json(const struct bench_figures *f, const struct client_bench_options *o, const char *model)
{
    json_t *object = json_pack(
        "{s:s, s:I, s:o, s:o, s:f, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:I}", "model_id", model, "num_prompts",
        (json_int_t)o->num_prompts, "request_rate",
        isfinite(o->request_rate) ? json_real(o->request_rate) : json_string("inf"), "max_concurrency",
        o->max_concurrency > 0 ? json_integer(o->max_concurrency) : json_null(), "duration", f->seconds, "completed",
        (json_int_t)f->completed, "failed", (json_int_t)f->failed, "total_input_tokens", (json_int_t)f->total_input,
        "total_output_tokens", (json_int_t)f->total_output, "request_throughput", f->requests_per_s,
        "output_throughput", f->output_per_s, "total_token_throughput", f->tokens_per_s, "max_output_tokens_per_s",
        f->peak_output_per_s, "max_concurrent_requests", (json_int_t)f->peak_concurrent);
    put_spread(object, "ttft", &f->ttft);
    put_spread(object, "tpot", &f->tpot);
    put_spread(object, "itl", &f->itl);
    put_spread(object, "e2el", &f->e2el);
    (void)json_print(object, stdout, JSON_COMPACT);
    printf("\n");
    json_decref(object);
}

void bench_report(const struct bench_figures *f, const struct client_bench_options *o, const char *model)
{
    if (o->json)
        print_json(f, o, model);
    else
        print_table(f, o, model);
    (void)fflush(stdout);
}
