/* commands/run/generate.c - see generate.h. */
#include "commands/run/generate.h"
#include "commands/generate.h"
#include "commands/models/generate_models.h"
#include "commands/start/start.h"
#include "commands/texts.h"
#include "rank/measure/meter.h"
#include "rank/measure/ranks_pace.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"

static int open_generate(struct generate *g, struct texts *texts, const struct generate_options *o,
                         struct model_config *m, struct checkpoint *c, struct err *e)
{
    const struct generate_model model = {.config = m, .texts = texts};
    if (start_open_folder(&o->run, "generate", m, c, e) != 0 || texts_open_steps(texts, o->run.model, "", m, e) != 0)
        return -1;
    return generate_open(g, o, &model, e);
}

static int run_one(struct world *w, const struct generate_options *o, struct err *e)
{
    struct instance_setup setup = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct generate g = {0};
    struct texts texts = {0};
    struct instance instance;
    struct draft_model draft = {0};
    struct meter meter;
    const struct loop_client client = {
        .context = &g, .next = generate_next, .accept = generate_accept, .masks = generate_masks};
    int status = 0;
    if (w->rank == 0 && open_generate(&g, &texts, o, &m, &c, e) == 0) {
        setup = start_setup_of(&o->run, &m, g.longest, g.n, o->prompt_logprobs >= 0);
        if (start_open_draft_model(&draft, &setup, &o->run, &m, e) == 0)
            (void)texts_check_draft_model(texts.tokenizer, &o->run, e);
    }
    fatal_agree(w, e);
    instance_open_drafted(&instance, &draft, w, &m, &c, &setup, e);
    ranks_pace_say(&instance.engine, w->n_ranks, true);
    if (w->rank == 0)
        (void)generate_start(&g, &setup.limits, e);
    (void)meter_open(&meter, &instance.engine, METER_INTERVAL, generate_report, &g, e);
    fatal_agree(w, e);
    instance_run(&instance, &draft, &client, e);
    meter_close(&meter);
    if (w->rank == 0)
        status = generate_status(&g, e);
    fatal_agree(w, e);
    MPI_CHECK(MPI_Bcast(&status, 1, MPI_INT, 0, w->comm));
    generate_close(&g);
    texts_close(&texts);
    instance_close(&draft.instance);
    instance_close(&instance);
    return status;
}

int run_generate(struct world *w, const struct generate_options *o, struct err *e)
{
    int many = w->rank == 0 && o->model_switch != NULL;
    MPI_CHECK(MPI_Bcast(&many, 1, MPI_INT, 0, w->comm));
    return many ? generate_models(w, o, e) : run_one(w, o, e);
}
