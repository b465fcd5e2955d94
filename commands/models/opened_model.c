/* commands/models/opened_model.c - see opened_model.h. */
#include "commands/models/opened_model.h"
#include "commands/models/identity.h"
#include "rank/instance/fit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Finds the folder of its files; an archive is unpacked first. */
static int find_files(struct opened_model *m, const struct model_place *p, struct err *e)
{
    char archive[PATH_MAX];
    const char *file = p->archive != NULL ? p->archive : p->below != NULL ? p->below : p->name;
    int n = p->dir != NULL ? snprintf(m->dir, sizeof m->dir, "%s", p->dir)
                           : snprintf(m->dir, sizeof m->dir, "%s/%s", p->models_dir, file);
    if (n < 0 || n >= (int)sizeof m->dir)
        return ERR(e, ERR_INPUT, "%s: the path is too long", p->name);
    if (p->archive == NULL)
        return 0;
    memcpy(archive, m->dir, (size_t)n + 1);
    m->cache = p->cache;
    m->folder = archive_cache_take(p->cache, archive, p->name, m->dir, &m->unpacking, e);
    return m->folder != NULL ? 0 : -1;
}

static int read_texts(struct texts *t, const struct opened_model *m, const struct model_place *p, struct err *e)
{
    return p->dir != NULL ? texts_open_steps(t, m->dir, p->name, &m->config, e)
                          : texts_open(t, m->dir, p->name, p->service->chat_template, &m->config, e);
}

/* From the shelf, if the files are the same as before. */
static int open_texts(struct opened_model *m, const struct model_place *p, struct err *e)
{
    m->setup.identity = identity_of_folder(m->dir);
    m->lasting = shelf_take(p->shelf, p->name, m->setup.identity);
    if (m->lasting != NULL)
        return 0;
    struct shelved *one = err_calloc(e, 1, sizeof *one, "model");
    if (one == NULL || read_texts(&one->texts, m, p, e) != 0) {
        shelved_close(one);
        return -1;
    }
    one->identity = m->setup.identity;
    (void)snprintf(one->archive, sizeof one->archive, "%s%s", p->name,
                   p->archive != NULL ? p->archive + strlen(p->name) : ".tar.gz");
    one->texts.served.model.path = one->archive;
    shelf_add(p->shelf, one);
    m->lasting = one;
    return 0;
}

/* The minimum of the options' value, the folder's, and the model's. */
static void obey(const struct wishes *w, const struct run_options *o, const struct model_config *m,
                 struct run_options *run)
{
    int64_t length = o->max_model_len > 0 ? o->max_model_len : w->max_model_len;
    if (w->max_model_len > 0 && w->max_model_len < length)
        length = w->max_model_len;
    if (length > 0)
        run->max_model_len = length < model_context(m) ? length : model_context(m);
    if (w->max_batch > 0 && (run->max_batch < 0 || w->max_batch < run->max_batch))
        run->max_batch = w->max_batch < run->max_batch_tokens ? w->max_batch : run->max_batch_tokens;
}

static int open_parts(struct opened_model *m, const struct model_place *p, int64_t *bytes, struct err *e)
{
    struct run_options run = p->service->run;
    if (find_files(m, p, e) != 0)
        return -1;
    run.model = m->dir;
    run.max_model_len = -1; /* a model that has fewer positions has fewer */
    if (start_open_model(&run, NULL, &m->config, &m->checkpoint, e) != 0)
        return -1;
    if (wishes_read(&m->wishes, m->dir, p->name, p->n_ranks, e) != 0)
        return -1;
    obey(&m->wishes, &p->service->run, &m->config, &run);
    m->setup = start_service_setup(&run, &m->config);
    if (open_texts(m, p, e) != 0)
        return -1;
    struct limits *l = &m->setup.limits;
    l->sum_pieces = 1; /* the ground, whose sums models share, has the memory for them */
    if (fit_share(&m->config, &m->checkpoint, l, p->n_ranks, p->ops, p->kv_bytes, m->share, e) != 0 ||
        fit_need(&m->config, &m->checkpoint, l, p->n_ranks, p->ops, bytes, e) != 0)
        return -1;
    m->setup.kv_bytes = 0;
    for (int kind = 0; kind < KV_KINDS; kind++)
        m->setup.per_unit[kind] = m->share[kind].per_unit;
    *bytes = m->wishes.memory > *bytes ? m->wishes.memory : *bytes;
    return 0;
}

struct opened_model *opened_model_open(const struct model_place *p, int64_t *bytes, struct err *e)
{
    struct opened_model *m = err_calloc(e, 1, sizeof *m, "model");
    if (m == NULL || open_parts(m, p, bytes, e) == 0)
        return m;
    opened_model_close(m, p->shelf);
    return NULL;
}

void opened_model_units(const struct opened_model *m, struct unit_share share[KV_KINDS])
{
    for (int kind = 0; kind < KV_KINDS; kind++)
        share[kind] = (struct unit_share){m->share[kind].per_unit, m->share[kind].least, m->share[kind].most};
}

void opened_model_close(struct opened_model *m, struct shelf *shelf)
{
    if (m == NULL)
        return;
    checkpoint_close(&m->checkpoint);
    shelf_put(shelf, m->lasting);
    archive_cache_release(m->cache, m->folder);
    free(m);
}
