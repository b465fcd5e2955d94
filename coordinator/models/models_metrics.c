/* coordinator/models/models_metrics.c - the counts of several models as Prometheus text: Lockstep's names, and
 * CloudWatch's for SageMaker's multi-model endpoints. See models.h. */
#include "base/clock.h"
#include "coordinator/metrics/exposition.h"
#include "coordinator/models/models.h"

#include <math.h>
#include <string.h>

#define MOST_LABELS 256 /* models reported individually; further ones are reported together */
#define REST        "(others)"

/* A figure of a model; CloudWatch's name for it (NULL: none) and the factor to its unit. */
struct figure {
    const char *name, *type, *help, *cloud;
    double factor;
    double (*value)(const struct models *m, int i);
};

#define VALUE(name, expression)                                   \
    static double name(const struct models *m, int i)             \
    {                                                             \
        const struct model_counts *c = &m->entry[i].counts;       \
        const struct placed d = placement_look(&m->placement, i); \
        (void)c;                                                  \
        (void)d;                                                  \
        return (double)(expression);                              \
    }
VALUE(invocations, c->invocations)
VALUE(hits, c->hits)
VALUE(waited, c->waited)
VALUE(loads, c->loads)
VALUE(loading, c->loading)
VALUE(unpacking, c->unpacking)
VALUE(unloads, c->unloads)
VALUE(unloading, c->unloading)
VALUE(free_before, c->free_before)
VALUE(free_after, c->free_before + c->freed)
VALUE(failures, c->failures)
VALUE(is_loaded, d.n_ready)
VALUE(held, d.n_held > 0 ? d.bytes : 0)
VALUE(running, d.n_users)
VALUE(waiting, d.n_waiters)
#undef VALUE

/* On the set where it holds most. */
static double kv_held(const struct models *m, int i)
{
    int most = 0;
    for (int k = 0; k < m->replicas->n; k++) {
        const struct replica *r = &m->replicas->replica[k];
        most = r->model == i && r->n_units > most ? r->n_units : most;
    }
    return (double)m->setup.unit_bytes * most;
}

/* Free units on the set that has fewest. */
static int units_free(const struct models *m)
{
    int least = m->setup.deploy.units;
    for (int k = 0; k < m->setup.n_sets; k++) {
        int n = m->setup.deploy.units;
        for (int i = 0; i < m->n_slots; i++)
            n -= m->replicas->replica[k * m->n_slots + i].n_units;
        least = n < least ? n : least;
    }
    return least;
}

static const struct figure figures[] = {
    {"model_invocations_total", "counter", "Requests for a model.", "Invocations", 1, invocations},
    {"model_cache_hits_total", "counter", "Requests that found their model loaded.", "ModelCacheHit", 1, hits},
    {"model_wait_seconds_total", "counter", "Time that requests have waited for their model.", "ModelLoadingWaitTime",
     1e6, waited},
    {"model_loads_total", "counter", "Number of loads of a model.", NULL, 1, loads},
    {"model_load_seconds_total", "counter", "Time from the decision to load a model until it was ready.",
     "ModelLoadingTime", 1e6, loading},
    {"model_unpack_seconds_total", "counter", "Time to unpack a model's archive.", "ModelDownloadingTime", 1e6,
     unpacking},
    {"model_unloads_total", "counter", "Number of unloads of a model.", NULL, 1, unloads},
    {"model_unload_seconds_total", "counter", "Time from the decision to unload a model until its memory was free.",
     "ModelUnloadingTime", 1e6, unloading},
    {"model_unload_free_before_bytes", "gauge", "Free memory of rank 0's device before a model was last unloaded.",
     NULL, 1, free_before},
    {"model_unload_free_after_bytes", "gauge", "Free memory of rank 0's device after a model was last unloaded.", NULL,
     1, free_after},
    {"model_load_failures_total", "counter", "Loads of a model that failed or were refused.", NULL, 1, failures},
    {"model_loaded", "gauge", "Sets of ranks on which a model is loaded.", NULL, 1, is_loaded},
    {"model_bytes", "gauge", "Memory of a model on a rank, without keys and values.", NULL, 1, held},
    {"model_kv_bytes", "gauge", "Memory for keys and values that a model holds on a rank.", NULL, 1, kv_held},
    {"model_running", "gauge", "Running requests of a model.", NULL, 1, running},
    {"model_waiting", "gauge", "Requests that wait for a model.", NULL, 1, waiting},
};

/* Has anything happened to it? */
static bool is_told(const struct models *m, int i)
{
    const struct model_counts *c = &m->entry[i].counts;
    return c->invocations > 0 || c->loads > 0 || c->failures > 0 ||
           placement_look(&m->placement, i).state != DEPLOY_KNOWN;
}

static void put_sample(struct exposition *x, const char *metric, const char *model, double value)
{
    x->labels[0] = '\0';
    exposition_label(x, "model", model);
    exposition_sample(x, metric, "", value);
}

/* Under this name, of each model. */
static void write_figure(struct exposition *x, const struct models *m, const struct figure *f, const char *name,
                         double factor)
{
    double rest = 0;
    int n = 0;
    exposition_head(x, name, f->type, f->help);
    for (int i = 0; i < m->n; i++) {
        if (!is_told(m, i))
            continue;
        if (n++ < MOST_LABELS)
            put_sample(x, name, m->entry[i].name, factor * f->value(m, i));
        else
            rest += factor * f->value(m, i);
    }
    if (n > MOST_LABELS)
        put_sample(x, name, REST, rest);
}

/* Each model's state, as a label, since a sum over models would be meaningless. */
static void write_states(struct exposition *x, const struct models *m)
{
    int n = 0;
    exposition_head(x, "model_state", "gauge", "1: the model is in this state.");
    for (int i = 0; i < m->n && n < MOST_LABELS; i++) {
        if (!is_told(m, i))
            continue;
        n++;
        x->labels[0] = '\0';
        exposition_label(x, "model", m->entry[i].name);
        exposition_label(x, "state", deploy_state_name(placement_look(&m->placement, i).state));
        exposition_sample(x, "model_state", "", 1);
    }
}

/* The time since the last use of each model that has been used. */
static void write_idle(struct exposition *x, const struct models *m)
{
    double now = seconds_now();
    int n = 0;
    exposition_head(x, "model_idle_seconds", "gauge", "Time since a model was last used.");
    for (int i = 0; i < m->n && n < MOST_LABELS; i++) {
        double used = placement_look(&m->placement, i).last_used;
        n += is_told(m, i);
        if (is_told(m, i) && used > 0)
            put_sample(x, "model_idle_seconds", m->entry[i].name, now - used);
    }
}

/* The time of all loads of a model, by phase. */
static void write_phases(struct exposition *x, const struct models *m)
{
    static const char name[] = "model_load_phase_seconds_total";
    int n = 0;
    exposition_head(x, name, "counter", "Time of the phases of loading, on rank 0.");
    for (int i = 0; i < m->n && n < MOST_LABELS; i++) {
        if (m->entry[i].counts.loads == 0)
            continue;
        n++;
        for (int p = 0; p < N_LOAD_PHASES; p++) {
            x->labels[0] = '\0';
            exposition_label(x, "model", m->entry[i].name);
            exposition_label(x, "phase", load_phase_name((enum load_phase)p));
            exposition_sample(x, name, "", m->entry[i].counts.phases.seconds[p]);
        }
    }
}

static void write_total(struct exposition *x, const char *name, double value, const char *help)
{
    x->labels[0] = '\0';
    exposition_label(x, "endpoint", "AllModels");
    exposition_one(x, name, "gauge", value, help);
}

/* A number that is known. */
static void write_known(struct exposition *x, const char *name, double value, const char *help)
{
    if (!isnan(value))
        write_total(x, name, value, help);
}

/* CloudWatch adds the GPUs of a host: 200 per cent are two busy ones. */
static void write_host(struct exposition *x, const struct host_figures *f)
{
    write_known(x, "GPUMemoryUtilization", 100 * f->gpu_memory,
                "Used GPU memory of this host's ranks, in per cent of one GPU, added up.");
    write_known(x, "GPUUtilization", 100 * f->gpu_busy,
                "Busy time of this host's ranks' GPUs, in per cent of one GPU, added up.");
    write_known(x, "DiskUtilization", 100 * f->disk,
                "Used part of the file system that holds unpacked archives or models, in per cent.");
}

/* The memory of a rank that models share. */
static void write_arena(struct exposition *x, const struct models *m)
{
    double unit = (double)m->setup.unit_bytes;
    write_total(x, "models_kv_memory_bytes", unit * m->setup.deploy.units,
                "Memory for keys and values of all models on a rank.");
    write_total(x, "models_kv_free_bytes", unit * units_free(m), "Memory for keys and values that no model holds.");
    write_total(x, "models_kv_unit_bytes", unit, "Size of the units of that memory that move between models.");
}

void models_write_metrics(const struct models *m, struct text_buffer *out, struct err *e)
{
    double memory = (double)m->setup.deploy.memory, used = (double)placement_used(&m->placement);
    struct exposition x;
    struct host_figures f;
    int n_ready = 0;
    if (!models_are_many(m))
        return;
    for (int i = 0; i < m->n; i++)
        n_ready += placement_look(&m->placement, i).n_ready > 0;
    exposition_open(&x, out, "lockstep_", e);
    for (size_t k = 0; k < sizeof figures / sizeof figures[0]; k++)
        write_figure(&x, m, &figures[k], figures[k].name, 1);
    write_states(&x, m);
    write_idle(&x, m);
    write_phases(&x, m);
    write_total(&x, "models_known", m->n, "Models in the folder.");
    write_total(&x, "models_sets", m->setup.n_sets, "Sets of ranks, each of which loads models of its own.");
    write_total(&x, "models_memory_bytes", memory,
                "Memory that loaded models may take on a rank, without keys and values.");
    write_total(&x, "models_used_bytes", used, "Memory that loaded models take on the rank that holds most.");
    write_arena(&x, m);
    m->setup.host.look(m->setup.host.context, &f);
    write_total(&x, "models_host_cache_bytes", (double)f.host_cache,
                "Bytes of files that --host-cache keeps in memory on this host.");
    write_total(&x, "models_unpacked_bytes", (double)f.archives, "Bytes of unpacked archives.");
    x.prefix = "";
    write_host(&x, &f);
    for (size_t k = 0; k < sizeof figures / sizeof figures[0]; k++)
        if (figures[k].cloud != NULL)
            write_figure(&x, m, &figures[k], figures[k].cloud, figures[k].factor);
    write_total(&x, "LoadedModelCount", n_ready, "Loaded models.");
    write_total(&x, "ModelMemoryUtilization", memory > 0 ? 100 * used / memory : 0,
                "Used part of --model-memory, in per cent.");
}
