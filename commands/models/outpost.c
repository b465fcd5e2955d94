/* commands/models/outpost.c - see outpost.h. */
#include "commands/models/outpost.h"
#include "rank/world/fatal.h"

#include <stdlib.h>
#include <string.h>

void outpost_share_options(struct outpost *o, const struct service_options *mine, const struct world *w, struct err *e)
{
    struct run_options run = w->rank == 0 ? mine->run : (struct run_options){0};
    const char *config = run.speculative_config;
    if (config != NULL && strlen(config) >= sizeof o->speculative)
        ERR(e, ERR_USAGE, "--speculative-config: %zu bytes, expected less than %zu with several sets of ranks",
            strlen(config), sizeof o->speculative);
    else if (config != NULL)
        memcpy(o->speculative, config, strlen(config) + 1);
    run.model = run.draft_model = run.speculative_config = NULL; /* addresses of another process */
    MPI_CHECK(MPI_Bcast(&run, sizeof run, MPI_BYTE, 0, w->comm));
    MPI_CHECK(MPI_Bcast(o->speculative, sizeof o->speculative, MPI_BYTE, 0, w->comm));
    o->service.run = run;
    o->service.run.speculative_config = o->speculative[0] != '\0' ? o->speculative : NULL;
}

/* ---- the opener's thread ---- */

static int open_model(void *context, int slot, struct opened *opened, struct err *e)
{
    struct outpost *o = context;
    const struct model_order *wanted = &o->wanted[slot];
    const struct model_place place = {.service = &o->service,
                                      .name = wanted->name,
                                      .dir = wanted->dir,
                                      .shelf = &o->shelf,
                                      .ops = o->ops,
                                      .n_ranks = o->n_ranks,
                                      .kv_bytes = o->kv_bytes};
    int64_t bytes = 0;
    struct opened_model *m = opened_model_open(&place, &bytes, e);
    if (m == NULL)
        return -1;
    if (m->config.vocab != wanted->vocab) {
        ERR(e, ERR_INPUT, "%s: a vocabulary of %d tokens, on rank 0 it had %d: the files have changed", wanted->dir,
            m->config.vocab, wanted->vocab);
        opened_model_close(m, &o->shelf);
        return -1;
    }
    opened->handle = m;
    return 0;
}

static void close_model(void *context, void *handle)
{
    struct outpost *o = context;
    opened_model_close(handle, &o->shelf);
}

/* ---- the main thread ---- */

/* A slot has one load at a time, so the opener is done with the slot's earlier request. */
static bool ask(void *context, const struct model_order *order)
{
    struct outpost *o = context;
    o->wanted[order->slot] = *order;
    return opener_ask(&o->opener, order->slot, 0);
}

static struct opening *take_opening(void *context)
{
    return opener_take(&((struct outpost *)context)->opener);
}

static int check_link(void *context, struct err *e)
{
    return leader_link_check(&((struct outpost *)context)->link, e);
}

int outpost_open(struct outpost *o, const struct link_card *card, const struct world *set, const struct ops *ops,
                 size_t kv_bytes, struct err *e)
{
    const struct models_source source = {o, open_model, close_model};
    o->ops = ops;
    o->n_ranks = set->n_ranks;
    o->kv_bytes = kv_bytes;
    o->open = true;
    shelf_open(&o->shelf);
    if (leader_link_open(&o->link, card, set->replica, true, e) != 0 ||
        opener_open(&o->opener, o->link.context, &source, e) != 0)
        return -1;
    struct crew_setup setup = {.n_slots = card->n_slots,
                               .n_units = kv_arena_units(kv_bytes),
                               .control = o->link.control[1],
                               .guesses = card->guesses,
                               .prefix_caching = card->prefix_caching != 0,
                               .max_step = card->max_step,
                               .source = {o, ask, take_opening, close_model},
                               .check = check_link,
                               .check_context = o};
    for (int i = 0; i < card->n_slots; i++)
        setup.mailbox[i] = o->link.slot[i].end[1];
    if (crew_open(&o->crew, &setup, e) != 0)
        return -1;
    return leader_link_start(&o->link, e);
}

void outpost_close(struct outpost *o)
{
    if (!o->open)
        return;
    crew_close(&o->crew);
    if (o->link.running)
        crew_say(&o->crew, (struct model_word){.kind = MODEL_ENDED});
    opener_close(&o->opener);
    leader_link_close(&o->link);
    shelf_close(&o->shelf);
    memset(o, 0, sizeof *o);
}
