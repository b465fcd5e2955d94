/* commands/models/opened_model.c - see opened_model.h. */
#include "commands/models/opened_model.h"
#include "rank/instance/fit.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where its files are: for an archive, when it is unpacked. dir: PATH_MAX bytes. */
static int find_files(struct opened_model *m, const struct model_place *p, char *dir, struct err *e)
{
    int n = snprintf(dir, PATH_MAX, "%s/%s", p->o->models_dir, p->archive != NULL ? p->archive : p->name);
    if (n < 0 || n >= PATH_MAX)
        return ERR(e, ERR_INPUT, "%s: the path is too long", p->name);
    (void)snprintf(m->archive, sizeof m->archive, "%s%s", p->name,
                   p->archive != NULL ? p->archive + strlen(p->name) : ".tar.gz");
    if (p->archive == NULL)
        return 0;
    char archive[PATH_MAX];
    memcpy(archive, dir, (size_t)n + 1);
    m->cache = p->cache;
    m->folder = archive_cache_take(p->cache, archive, p->name, dir, &m->unpacking, e);
    return m->folder != NULL ? 0 : -1;
}

static int open_parts(struct opened_model *m, const struct model_place *p, int64_t *bytes, struct err *e)
{
    char dir[PATH_MAX];
    struct run_options run = p->o->service.run;
    if (find_files(m, p, dir, e) != 0)
        return -1;
    run.model = dir;
    run.max_model_len = -1; /* a model that has fewer positions has fewer */
    if (start_open_model(&run, NULL, &m->config, &m->checkpoint, e) != 0 ||
        texts_open(&m->texts, dir, p->name, p->o->service.chat_template, &m->config, e) != 0)
        return -1;
    m->texts.served.model.path = m->archive;
    if (p->o->service.run.max_model_len > 0)
        run.max_model_len = p->o->service.run.max_model_len < model_context(&m->config)
                                ? p->o->service.run.max_model_len
                                : model_context(&m->config);
    m->setup = start_service_setup(&run, &m->config);
    return fit_need(&m->config, &m->checkpoint, &m->setup.limits, p->n_ranks, p->ops, &m->setup.kv_bytes, bytes, e);
}

struct opened_model *opened_model_open(const struct model_place *p, int64_t *bytes, struct err *e)
{
    struct opened_model *m = err_calloc(e, 1, sizeof *m, "model");
    if (m == NULL || open_parts(m, p, bytes, e) == 0)
        return m;
    opened_model_close(m);
    return NULL;
}

void opened_model_close(struct opened_model *m)
{
    if (m == NULL)
        return;
    checkpoint_close(&m->checkpoint);
    texts_close(&m->texts);
    archive_cache_release(m->cache, m->folder);
    free(m);
}
