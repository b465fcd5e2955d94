/* coordinator/batch/runner_manifest.c - the manifest of a run: the settings that identify it, and its figures. See
 * runner.h. */
#include "base/clock.h"
#include "coordinator/batch/fingerprint.h"
#include "coordinator/batch/recorded.h"
#include "coordinator/batch/runner.h"
#include "protocol/reply_parts.h"
#include "text/chat.h"

#include <math.h>
#include <time.h>

#define MANIFEST_SECONDS 30.0

/* The part of the input: "2/8", or null for all of it. */
static json_t *shard_of(const struct share *s)
{
    return s->count > 1 ? json_sprintf("%lld/%lld", (long long)s->index, (long long)s->count) : json_null();
}

json_t *runner_manifest_identity(const struct runner *r, struct err *e)
{
    const struct chat_template *chat = r->setup.served.chat;
    bool many = r->setup.models.n > 0; /* models are identified when they are loaded */
    json_t *model = many ? json_null() : fingerprint_model(r->setup.checkpoint, e);
    if (model == NULL)
        return NULL;
    if (r->setup.served.variant != NULL)
        (void)json_object_set_new(model, "variant", json_string(r->setup.served.variant));
    json_t *identity = json_pack("{s:o, s:s, s:I, s:o, s:O, s:o}", "model", model, "format",
                                 r->setup.o->plain ? "plain" : "openai", "seed", (json_int_t)r->setup.o->sampling.seed,
                                 "shard", shard_of(&r->setup.share), "defaults", r->files.defaults, "chat_template",
                                 chat != NULL ? json_string(chat_template_name(chat)) : json_null());
    if (identity == NULL)
        ERR(e, ERR_MEMORY, "out of host memory: manifest");
    return identity;
}

static json_t *now_as_text(void)
{
    char text[32];
    time_t now = time(NULL);
    struct tm utc;
    (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    return json_string(text);
}

/* The energy of all runs on this output; null if one of them did not measure it. tokens: computed by all runs. */
static json_t *energy_of(const struct runner *r, double tokens)
{
    const json_t *before = json_object_get(json_object_get(r->files.manifest.previous, "energy"), "joules");
    double joules = replicas_joules(&r->replicas);
    if (r->files.manifest.previous != NULL)
        joules += json_is_number(before) ? json_number_value(before) : NAN;
    if (isnan(joules))
        return json_null();
    return json_pack("{s:f, s:o}", "joules", joules, "joules_per_token",
                     tokens > 0 ? json_real(joules / tokens) : json_null());
}

static json_t *counts_of(const struct batch_progress *p)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "lines", (json_int_t)p->n_read, "results",
                     (json_int_t)p->n_results_before + p->n_done, "failed",
                     (json_int_t)p->n_failed_before + p->n_failed, "duplicates", (json_int_t)p->n_duplicates);
}

/* Tokens, and the energy for them. The numbers in a manifest cover all runs on this output. */
static json_t *work_of(const struct runner *r)
{
    const struct batch_progress *p = &r->progress;
    json_int_t prompt = manifest_number(&r->files.manifest, "tokens", "prompt") + p->prompt_tokens;
    json_int_t cached = manifest_number(&r->files.manifest, "tokens", "cached") + p->cached_tokens;
    json_int_t output = manifest_number(&r->files.manifest, "tokens", "output") + p->output_tokens;
    return json_pack("{s:{s:I, s:I, s:I}, s:o, s:f}", "tokens", "prompt", prompt, "cached", cached, "output", output,
                     "energy", energy_of(r, (double)(prompt - cached + output)), "seconds",
                     manifest_real(&r->files.manifest, "seconds") + seconds_now() - p->started);
}

/* The drafts of all runs, if any were made, with vLLM's names. */
static int put_drafts(json_t *all, const struct runner *r)
{
    const struct scheduler_stats stats = replicas_stats(&r->replicas);
    const struct manifest *was = &r->files.manifest;
    const json_t *before = json_object_get(json_object_get(was->previous, "drafts"), "num_accepted_tokens_per_pos");
    json_t *places = json_array();
    json_int_t n_accepted = 0;
    for (int i = 0; i < DRAFTS_MAX && (i < stats.n_draft_places || (size_t)i < json_array_size(before)); i++) {
        json_int_t n = json_integer_value(json_array_get(before, (size_t)i)) + (json_int_t)stats.n_accepted[i];
        n_accepted += n;
        (void)json_array_append_new(places, json_integer(n));
    }
    if (json_array_size(places) == 0) {
        json_decref(places);
        return 0;
    }
    json_int_t drafts = manifest_number(was, "drafts", "num_drafts") + (json_int_t)stats.n_drafts;
    json_int_t tokens = manifest_number(was, "drafts", "num_draft_tokens") + (json_int_t)stats.n_draft_tokens;
    return json_object_set_new(all, "drafts",
                               json_pack("{s:I, s:I, s:I, s:o}", "num_drafts", drafts, "num_draft_tokens", tokens,
                                         "num_accepted_tokens", n_accepted, "num_accepted_tokens_per_pos", places));
}

/* The part of the output that is on disk, for journal_check; null: unknown. */
static json_t *synced_of(const struct journal *j)
{
    return j->synced != NULL ? json_incref(j->synced) : json_null();
}

/* Records of several models, over all runs: their identities, the number of loads, and the time for these. */
static int put_models(json_t *all, const struct runner *r)
{
    const struct manifest *was = &r->files.manifest;
    json_int_t loads = manifest_number(was, "switches", "loads"), unloads = manifest_number(was, "switches", "unloads");
    const json_t *before = json_object_get(was->previous, "switches");
    double seconds = json_number_value(json_object_get(before, "seconds")),
           idle = json_number_value(json_object_get(before, "idle_seconds"));
    for (int i = 0; i < r->models.n; i++) {
        const struct model_counts *c = &r->models.entry[i].counts;
        loads += (json_int_t)c->loads;
        unloads += (json_int_t)c->unloads;
        seconds += c->unloading;
        for (int p = 0; p < N_LOAD_PHASES; p++)
            seconds += c->phases.seconds[p];
    }
    json_t *switches = json_pack("{s:I, s:I, s:f, s:f}", "loads", loads, "unloads", unloads, "seconds", seconds,
                                 "idle_seconds", idle + r->lines.idle_seconds);
    return json_object_set_new(all, "switches", switches) | json_object_set(all, "models", r->files.models);
}

int runner_manifest_write(struct runner *r, const char *state, struct err *e)
{
    const char *path = r->setup.models.n > 0 ? r->setup.o->models.dir : r->setup.o->service.run.model;
    json_t *work = work_of(r),
           *rest = json_pack(
               "{s:s, s:s, s:o, s:o, s:i, s:i, s:o, s:b, s:o, s:o, s:I, s:I, s:o, s:o}", "state", state, "build",
               LOCKSTEP_VERSION, "name", reply_text(r->setup.name), "path", reply_text(path), "ranks", r->setup.n_ranks,
               "groups", r->setup.n_replicas, "inputs", recorded_inputs(&r->files.inputs), "lines_without_id",
               r->files.nameless, "max_model_len", r->files.max_len > 0 ? json_integer(r->files.max_len) : json_null(),
               "counts", counts_of(&r->progress), "runs", (json_int_t)(manifest_real(&r->files.manifest, "runs") + 1),
               "synced_bytes", (json_int_t)(r->files.journal.bytes - r->files.journal.unsynced), "synced",
               synced_of(&r->files.journal), "updated", now_as_text());
    if (rest != NULL && (work == NULL || json_object_update(rest, work) != 0 || put_drafts(rest, r) != 0 ||
                         (r->setup.models.n > 0 && put_models(rest, r) != 0))) {
        json_decref(rest);
        rest = NULL;
    }
    json_decref(work);
    r->files.manifest_due = seconds_now() + MANIFEST_SECONDS;
    r->files.manifest_bytes = r->files.journal.bytes - r->files.journal.unsynced;
    r->files.recorded_bytes = inputs_read(&r->files.inputs, &r->files.recorded_file);
    return manifest_write(&r->files.manifest, rest, e);
}
