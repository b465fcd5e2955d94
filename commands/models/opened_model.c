/* commands/models/opened_model.c - see opened_model.h. */
#include "commands/models/opened_model.h"
#include "commands/models/identity.h"
#include "rank/instance/fit.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* From the shelf, if the files are the same as before. */
static int open_texts(struct opened_model *m, const struct serve_options *o, const char *dir, const char *name,
                      struct shelf *shelf, struct err *e)
{
    m->setup.identity = identity_of_folder(dir);
    m->lasting = shelf_take(shelf, name, m->setup.identity);
    if (m->lasting != NULL)
        return 0;
    m->lasting = err_calloc(e, 1, sizeof *m->lasting, "model");
    if (m->lasting == NULL || texts_open(&m->lasting->texts, dir, name, o->service.chat_template, &m->config, e) != 0)
        return -1;
    m->lasting->identity = m->setup.identity; /* from now on it is worth keeping */
    (void)snprintf(m->lasting->archive, sizeof m->lasting->archive, "%s.tar.gz", name);
    m->lasting->texts.served.model.path = m->lasting->archive;
    return 0;
}

static int open_parts(struct opened_model *m, const struct serve_options *o, const char *name, struct shelf *shelf,
                      const struct ops *ops, int n_ranks, int64_t *bytes, struct err *e)
{
    char dir[PATH_MAX];
    struct run_options run = o->service.run;
    int n = snprintf(dir, sizeof dir, "%s/%s", o->models_dir, name);
    if (n < 0 || n >= (int)sizeof dir)
        return ERR(e, ERR_INPUT, "%s: the path is too long", name);
    run.model = dir;
    run.max_model_len = -1; /* a model that has fewer positions has fewer */
    if (start_open_model(&run, NULL, &m->config, &m->checkpoint, e) != 0)
        return -1;
    if (o->service.run.max_model_len > 0)
        run.max_model_len = o->service.run.max_model_len < model_context(&m->config) ? o->service.run.max_model_len
                                                                                     : model_context(&m->config);
    m->setup = start_service_setup(&run, &m->config);
    if (open_texts(m, o, dir, name, shelf, e) != 0)
        return -1;
    return fit_need(&m->config, &m->checkpoint, &m->setup.limits, n_ranks, ops, &m->setup.kv_bytes, bytes, e);
}

struct opened_model *opened_model_open(const struct serve_options *o, const char *name, struct shelf *shelf,
                                       const struct ops *ops, int n_ranks, int64_t *bytes, struct err *e)
{
    struct opened_model *m = err_calloc(e, 1, sizeof *m, "model");
    if (m == NULL || open_parts(m, o, name, shelf, ops, n_ranks, bytes, e) == 0)
        return m;
    opened_model_close(m, shelf);
    return NULL;
}

void opened_model_close(struct opened_model *m, struct shelf *shelf)
{
    if (m == NULL)
        return;
    checkpoint_close(&m->checkpoint);
    shelf_put(shelf, m->lasting);
    free(m);
}
