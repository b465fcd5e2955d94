/* commands/inspect.c - see inspect.h. */
#include "commands/inspect.h"
#include "base/choices.h"
#include "base/json.h"
#include "kernels/ops.h"
#include "partition/checkpoint.h"
#include "partition/drafting.h"
#include "partition/pace.h"
#include "partition/side_tensors.h"
#include "partition/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_STEPS 3

/* One rank's line. */
struct rank_share {
    struct shard shard;
    size_t weight_bytes, kv_bytes_per_token;
    double step_bytes[N_STEPS];
};

/* The numbers of sequences whose decode steps are reported. */
static const int step_sequences[N_STEPS] = {1, 8, 64};

/* The bytes of an element of keys and values, and its name. */
static size_t kv_bytes(const struct model_config *m, enum dtype wide)
{
    return m->kv_fp8 ? 1 : dtype_bytes(wide);
}

static const char *kv_name(const struct model_config *m, enum dtype wide)
{
    return m->kv_fp8 ? "FP8" : dtype_name(wide);
}

/* The type of keys and values that are not in FP8: the CPU backend's is float, the GPUs' that of the weights. `auto`
 * means CPU here, since the devices of this machine do not determine where the model will run. */
static enum dtype kv_type(const struct model_config *m, const struct inspect_options *o)
{
    return o->run.device == DEVICE_CUDA ? m->dtype : ops_cpu.act_type(m->dtype);
}

static int fill_share(struct rank_share *r, const struct model_config *m, const struct checkpoint *c, enum dtype kv,
                      int rank, int n_ranks, struct err *e)
{
    struct weight_map map = {0};
    size_t loading;
    shard_make(&r->shard, m, rank, n_ranks);
    if (weight_map_build(&map, m, &r->shard, c, e) == 0)
        r->weight_bytes = weight_map_fp8_bytes(&map, m, &loading);
    weight_map_make_fp8(&map, m);
    for (int i = 0; i < N_STEPS; i++)
        r->step_bytes[i] = weight_map_step_bytes(&map, m, step_sequences[i]);
    r->kv_bytes_per_token = (size_t)model_cache_arrays(m) * (size_t)m->n_layers *
                                (size_t)range_length(r->shard.kv_heads) * (size_t)m->head_dim * kv_bytes(m, kv) +
                            (size_t)range_length(r->shard.states) * dtype_bytes(kv);
    weight_map_free(&map);
    return e->code == ERR_NONE ? 0 : -1;
}

static uint64_t checkpoint_bytes(const struct checkpoint *c)
{
    uint64_t bytes = 0;
    for (int i = 0; i < c->n_tensors; i++)
        bytes += c->tensor[i].bytes;
    return bytes;
}

static json_t *json_range(struct range r)
{
    return json_pack("[i, i]", r.begin, r.end);
}

/* {"1": BYTES, ..}: of all ranks, by the sequences of a decode step. */
static json_t *json_steps(const struct rank_share *r, int n)
{
    json_t *steps = json_object();
    for (int i = 0; i < N_STEPS; i++) {
        char name[16];
        double bytes = 0;
        for (int k = 0; k < n; k++)
            bytes += r[k].step_bytes[i];
        (void)snprintf(name, sizeof name, "%d", step_sequences[i]);
        (void)json_object_set_new(steps, name, json_integer((json_int_t)bytes));
    }
    return steps;
}

static json_t *json_experts(const struct model_experts *x)
{
    return json_pack("{s:i, s:i, s:i, s:i}", "number", x->routing.n_experts, "chosen", x->routing.n_chosen, "columns",
                     x->ffn, "shared_columns", x->shared_ffn);
}

static json_t *json_drafting(const struct model_drafting *d)
{
    return json_pack("{s:i, s:i, s:b}", "vocabulary", d->vocab, "target_hidden_size", d->tapped, "embeds", d->embeds);
}

static json_t *json_quantization(const struct quantization *q)
{
    char text[120];
    if (q->format == FORMAT_NONE)
        return json_null();
    quantization_describe(q, text, sizeof text);
    return json_pack("{s:s, s:i, s:s, s:s}", "method", q->method, "bits", q->bits, "weights", text,
                     "declared_activations", quantization_activations_name(q));
}

/* Assumed costs of reading and of sums: on GPUs as measured on H200s of one host, on CPUs as on a small host. */
static struct pace_costs assumed_costs(const struct inspect_options *o)
{
    bool gpu = o->run.device == DEVICE_CUDA;
    return (struct pace_costs){.bytes_per_second = o->read_rate > 0 ? (double)o->read_rate
                                                   : gpu            ? 4500e9
                                                                    : 10e9,
                               .sum_seconds = 1e-6 * (o->sum_us >= 0 ? o->sum_us
                                                      : gpu          ? 8
                                                                     : 20)};
}

/* Returns the number of choices for a mixture of experts, or -1 if there is no choice. */
static int find_paces(struct rank_pace *p, const struct inspect_options *o, const struct model_config *m)
{
    struct err e = {0};
    const struct pace_costs costs = assumed_costs(o);
    bool choose = m->experts.routing.n_experts > 0 && o->ranks > 1;
    return choose ? pace_choices(p, m, (int)o->ranks, &costs, &e) : -1;
}

/* [{"tensor_parallel": T, ..}, ..] */
static json_t *json_paces(const struct inspect_options *o, const struct model_config *m)
{
    struct rank_pace p[PACE_MAX_CHOICES];
    int n = find_paces(p, o, m);
    json_t *all = json_array();
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(all, json_pack("{s:i, s:I, s:i, s:f}", "tensor_parallel", p[i].n_ranks,
                                                   "bytes_of_slowest_rank", (json_int_t)p[i].bytes, "sums", p[i].n_sums,
                                                   "ms", 1e3 * p[i].seconds));
    return all;
}

static void print_paces(const struct inspect_options *o, const struct model_config *m, int n_ranks)
{
    char line[400];
    struct rank_pace p[PACE_MAX_CHOICES];
    const struct pace_costs costs = assumed_costs(o);
    int n = find_paces(p, o, m);
    if (n < 1)
        return;
    pace_describe(p, n, n_ranks, &costs, line, sizeof line);
    printf("\n%s\n", line);
}

/* The number of layers that see less than the longest sequence; *window: the largest window among them. */
static int count_windowed(const struct model_config *m, int *window)
{
    int n;
    *window = model_window(m, m->max_positions > 0 ? m->max_positions : INT32_MAX, &n);
    return n;
}

/* n: ranks of a replica. */
static int print_json(const struct inspect_options *o, const struct model_config *m, const struct checkpoint *c,
                      const struct rank_share *r, int n, int n_replicas)
{
    enum dtype kv = kv_type(m, o);
    int window, n_windowed = count_windowed(m, &window);
    json_t *ranks = json_array();
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(
            ranks,
            json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I}", "rank", i, "heads", json_range(r[i].shard.heads),
                      "kv_heads", json_range(r[i].shard.kv_heads), "mlp_columns", json_range(r[i].shard.ffn), "experts",
                      json_range(r[i].shard.experts), "expert_columns", json_range(r[i].shard.expert_ffn), "vocabulary",
                      json_range(r[i].shard.vocab), "weight_bytes", (json_int_t)r[i].weight_bytes, "kv_bytes_per_token",
                      (json_int_t)r[i].kv_bytes_per_token));
    json_t *root = json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:o, s:s, s:i, s:i, s:i, s:I, s:o, s:o, s:o, s:i, s:o}",
        "model_type", m->model_type, "layers", m->n_layers, "hidden_size", m->hidden, "heads", m->n_heads, "kv_heads",
        m->n_kv_heads, "head_dim", m->head_dim, "mlp_columns", m->ffn, "vocabulary", m->vocab, "dtype",
        dtype_name(m->dtype), "quantization", json_quantization(&m->quantization), "kv_dtype", kv_name(m, kv),
        "windowed_layers", n_windowed, "window", window, "all_reduces_per_layer", model_layer_sums(m),
        "checkpoint_bytes", (json_int_t)checkpoint_bytes(c), "experts", json_experts(&m->experts),
        "decode_step_weight_bytes", json_steps(r, n), "decode_step_choices", json_paces(o, m), "groups", n_replicas,
        "ranks", ranks);
    if (m->drafting.n_taps > 0)
        (void)json_object_set_new(root, "drafting", json_drafting(&m->drafting));
    int rc = json_print(root, stdout, JSON_INDENT(2));
    (void)putchar('\n');
    json_decref(root);
    return rc;
}

/* The bytes that a step reads, unless it reads all. */
static void print_experts(const struct model_config *m, const struct rank_share *r, int n)
{
    const struct model_experts *x = &m->experts;
    int n_layers = 0;
    for (int i = 0; i < m->n_layers; i++)
        n_layers += m->layer[i].experts;
    if (n_layers == 0)
        return;
    printf("experts in %d layer%s: %d of %d columns, %d for a token", n_layers, n_layers == 1 ? "" : "s",
           x->routing.n_experts, x->ffn, x->routing.n_chosen);
    if (x->shared_ffn > 0)
        printf(", one of %d columns for all", x->shared_ffn);
    printf("; weights read by a decode step of");
    for (int i = 0; i < N_STEPS; i++) {
        double bytes = 0;
        for (int k = 0; k < n; k++)
            bytes += r[k].step_bytes[i];
        printf("%s %d sequence%s: %.1f MiB", i > 0 ? "," : "", step_sequences[i], step_sequences[i] == 1 ? "" : "s",
               bytes / 1048576.0);
    }
    printf(" (where experts are chosen equally often)\n");
}

static void print_windows(const struct model_config *m)
{
    int window, n = count_windowed(m, &window);
    if (n > 0)
        printf("windows: %d of %d layers keep keys and values of the last %d tokens only\n", n, m->n_layers, window);
}

static void print_drafting(const struct model_config *m)
{
    const struct model_drafting *d = &m->drafting;
    if (d->n_taps > 0)
        printf("drafts %d of %d tokens for a model of hidden size %d, with %s embedding; reads the inputs of %s\n",
               d->vocab, m->vocab, d->tapped, d->embeds ? "its own" : "that model's",
               d->taps_known ? "the layers of its config" : "layer 2, the middle one and the last but two");
}

static void print_quantization(const struct quantization *q)
{
    char text[120];
    if (q->format == FORMAT_NONE)
        return;
    quantization_describe(q, text, sizeof text);
    printf("quantised: %s; activations declared: %s, quantised only with --quantized-activations\n", text,
           quantization_activations_name(q));
}

static void print_range(int width, struct range r)
{
    char text[32] = "none";
    if (range_length(r) > 0)
        (void)snprintf(text, sizeof text, "%d..%d", r.begin, r.end - 1);
    printf("  %*s", width, text);
}

static void print_table(const struct model_config *m, const struct checkpoint *c, enum dtype kv,
                        const struct rank_share *r, int n, int n_replicas)
{
    double mib = 1024.0 * 1024.0;
    printf("%s: %d layers, hidden %d, %d heads / %d KV heads of %d, MLP %d, vocabulary %d, %s\n", m->model_type,
           m->n_layers, m->hidden, m->n_heads, m->n_kv_heads, m->head_dim, m->ffn, m->vocab, dtype_name(m->dtype));
    printf("checkpoint: %d tensors in %d file%s, %.1f MiB; keys and values in %s; %d all-reduce%s per layer\n",
           c->n_tensors, c->n_files, c->n_files == 1 ? "" : "s", (double)checkpoint_bytes(c) / mib, kv_name(m, kv),
           model_layer_sums(m), model_layer_sums(m) == 1 ? "" : "s");
    print_quantization(&m->quantization);
    print_experts(m, r, n);
    print_windows(m);
    print_drafting(m);
    bool experts = m->experts.routing.n_experts > 0;
    (void)putchar('\n');
    if (n_replicas > 1)
        printf("%d replicas of %d rank%s, each with all of the model; a replica:\n\n", n_replicas, n,
               n == 1 ? "" : "s");
    printf("%5s  %13s  %13s  %15s%s%s  %17s  %12s  %12s\n", "rank", "heads", "KV heads", "MLP columns",
           m->whole_experts ? "          experts" : "", experts ? "   expert columns" : "", "vocabulary", "weights MiB",
           "KV B/token");
    for (int i = 0; i < n; i++) {
        const struct shard *s = &r[i].shard;
        printf("%5d", i);
        print_range(13, s->heads);
        print_range(13, s->kv_heads);
        print_range(15, s->ffn);
        if (m->whole_experts)
            print_range(15, s->experts);
        if (experts)
            print_range(15, s->expert_ffn);
        print_range(17, s->vocab);
        printf("  %12.1f  %12zu\n", (double)r[i].weight_bytes / mib, r[i].kv_bytes_per_token);
    }
}

/* More ranks than key-value heads: the surplus ranks compute no attention, and do not make the job faster. */
static void print_idle(const struct rank_share *r, int n)
{
    int n_idle = 0;
    for (int i = 0; i < n; i++)
        n_idle += range_length(r[i].shard.heads) == 0;
    if (n_idle > 0)
        printf("\n%d of %d ranks get%s no heads: there is no attention for %s to compute\n", n_idle, n,
               n_idle == 1 ? "s" : "", n_idle == 1 ? "it" : "them");
}

static void print(const struct inspect_options *o, const struct model_config *m, const struct checkpoint *c,
                  const struct rank_share *r)
{
    int n = run_replica_size(&o->run, (int)o->ranks), n_replicas = (int)o->ranks / n;
    if (o->run.json)
        (void)print_json(o, m, c, r, n, n_replicas);
    else
        print_table(m, c, kv_type(m, o), r, n, n_replicas);
    if (!o->run.json) {
        print_idle(r, n);
        print_paces(o, m, n);
    }
}

static void choose_fp8(const struct inspect_options *o, struct model_config *m, struct err *e)
{
    m->kv_fp8 = o->run.kv_dtype != KV_AUTO;
    m->weights_fp8 = o->run.quantise == WEIGHTS_FP8;
    m->head_fp8 = o->run.head_dtype == WEIGHTS_FP8;
    if (m->weights_fp8 && m->quantization.format != FORMAT_NONE)
        ERR(e, ERR_USAGE, "--quantization fp8: the checkpoint is quantised already (%s), expected one that is not",
            m->quantization.method);
}

int inspect_run(const struct inspect_options *o, struct err *e)
{
    struct model_config m = {0};
    struct checkpoint c = {0};
    int n = run_replica_size(&o->run, (int)o->ranks);
    struct rank_share *r = err_calloc(e, (size_t)n, sizeof *r, "shard table");
    if (o->run.model == NULL)
        ERR(e, ERR_USAGE, "inspect needs --model DIR");
    if (e->code == ERR_NONE && run_check_replicas(&o->run, (int)o->ranks, NULL, e) == 0 &&
        model_config_read(&m, o->run.model, e) == 0 && checkpoint_open(&c, o->run.model, e) == 0)
        choose_fp8(o, &m, e);
    if (e->code == ERR_NONE && o->run.expert_parallel)
        (void)model_hold_whole_experts(&m, e);
    if (e->code == ERR_NONE && drafting_read(&c, &m, e) == 0 && side_tensors_read(&c, &m, e) == 0)
        for (int i = 0; i < n && e->code == ERR_NONE; i++)
            (void)fill_share(&r[i], &m, &c, kv_type(&m, o), i, n, e);
    if (e->code == ERR_NONE)
        print(o, &m, &c, r);
    if (e->code == ERR_NONE && fflush(stdout) != 0)
        ERR(e, ERR_IO, "standard output: cannot write");
    checkpoint_close(&c);
    free(r);
    return e->code == ERR_NONE ? 0 : -1;
}
