/* coordinator/tasks/lanes.c - see lanes.h. */
#include "coordinator/tasks/lanes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int lanes_open(struct lanes *l, int n, void *control, struct err *e)
{
    *l = (struct lanes){.n = n, .control = control};
    l->lane = err_calloc(e, (size_t)n, sizeof *l->lane, "lanes");
    l->item = err_calloc(e, (size_t)n + 1, sizeof *l->item, "lanes");
    return e->code == ERR_NONE ? 0 : -1;
}

int lanes_share(struct lanes *l, int n_units, struct err *e)
{
    return units_open(&l->units, n_units, e);
}

void lanes_close(struct lanes *l)
{
    for (int i = 0; l->lane != NULL && i < l->n; i++)
        lanes_end(l, i);
    free(l->lane);
    free(l->item);
    units_close(&l->units);
    memset(l, 0, sizeof *l);
}

int lanes_start(struct lanes *l, int i, void *mailbox, const struct scheduler_setup *setup,
                const struct unit_share *share, struct err *e)
{
    struct lane *x = &l->lane[i];
    struct scheduler_setup mine = *setup;
    x->open = true;
    x->shares = share != NULL;
    x->served = l->clock;
    if (x->shares) {
        if (units_join(&l->units, i, x->steps.scheduler.blocks, share, mine.source, e) != 0)
            return -1;
        mine.limits.n_blocks = share[KV_MAIN].most * share[KV_MAIN].per_unit;
        mine.limits.n_window_blocks = share[KV_WINDOWED].most * share[KV_WINDOWED].per_unit;
    }
    return steps_open(&x->steps, mailbox, &mine, e);
}

void lanes_end(struct lanes *l, int i)
{
    if (l->lane[i].open) {
        steps_close(&l->lane[i].steps);
        if (l->lane[i].shares)
            units_leave(&l->units, i);
    }
    l->lane[i].open = false;
}

bool lanes_busy(const struct lanes *l)
{
    bool busy = false;
    for (int i = 0; i < l->n; i++)
        busy = busy || (l->lane[i].open && scheduler_busy(&l->lane[i].steps.scheduler));
    return busy;
}

struct steps *lanes_first(struct lanes *l)
{
    for (int i = 0; i < l->n; i++)
        if (l->lane[i].open)
            return &l->lane[i].steps;
    return NULL;
}

/* Processes the orders of all lanes. Returns whether the end is among them. */
static bool hear_all(struct lanes *l)
{
    bool stopping = false;
    for (int i = 0; i < l->n; i++) {
        struct lane *x = &l->lane[i];
        if (!x->open)
            continue;
        stopping = steps_hear(&x->steps) || stopping;
        if (x->steps.idle && scheduler_busy(&x->steps.scheduler)) /* idle time gives no credit */
            x->served = fmax(x->served, l->clock);
        x->tried = false;
    }
    return stopping;
}

static struct lane *next_lane(struct lanes *l)
{
    struct lane *next = NULL;
    for (int i = 0; i < l->n; i++) {
        struct lane *x = &l->lane[i];
        if (x->open && !x->tried && (next == NULL || x->served < next->served))
            next = x;
    }
    return next;
}

/* Sleep until there is an order. */
static void sleep_long(struct lanes *l, bool hurry)
{
    int n = 0;
    for (int i = 0; i < l->n; i++)
        if (l->lane[i].open) {
            l->item[n++] = (zmq_pollitem_t){.socket = l->lane[i].steps.mailbox, .events = ZMQ_POLLIN};
            hurry = hurry || scheduler_busy(&l->lane[i].steps.scheduler);
        }
    if (l->control != NULL)
        l->item[n++] = (zmq_pollitem_t){.socket = l->control, .events = ZMQ_POLLIN};
    (void)zmq_poll(l->item, n, hurry ? 1 : STEPS_IDLE_MS);
}

int lanes_stop(struct lanes *l, struct plan *plan, struct err *e)
{
    plan->kind = PLAN_STOP;
    for (int i = 0; i < l->n; i++)
        if (l->lane[i].open && steps_stop(&l->lane[i].steps, plan, e) != 0)
            return -1;
    return 0;
}

/* A lane's next plan, with the arena's block numbers. */
static int plan_lane(struct lanes *l, struct lane *x, struct plan *plan, struct err *e)
{
    int i = (int)(x - l->lane);
    if (!x->shares)
        return steps_plan(&x->steps, plan, e);
    units_note(&l->units, i, scheduler_busy(&x->steps.scheduler));
    x->steps.n_units = units_held(&l->units, i);
    if (steps_plan(&x->steps, plan, e) != 0)
        return -1;
    units_number(&l->units, i, plan);
    return 0;
}

int lanes_next(struct lanes *l, struct plan *plan, bool hurry, struct err *e)
{
    uint64_t step = plan->step;
    int awaits = -1; /* a lane whose last results are outstanding: an empty plan collects them */
    if (hear_all(l))
        return lanes_stop(l, plan, e);
    for (struct lane *x; (x = next_lane(l)) != NULL;) {
        x->tried = true;
        plan_reset(plan, step);
        plan->model = (int32_t)(x - l->lane);
        if (plan_lane(l, x, plan, e) != 0)
            return -1;
        if (plan->n_seqs > 0) {
            l->clock = x->served;
            x->served += plan->n_tokens;
            return 0;
        }
        awaits = x->steps.n_outstanding > 0 ? plan->model : awaits;
    }
    if (awaits < 0) {
        sleep_long(l, hurry);
        return PLAN_IDLE;
    }
    plan->model = awaits;
    return 0;
}

void lanes_masks(struct lanes *l, struct plan *plan)
{
    scheduler_masks(&l->lane[plan->model].steps.scheduler, plan);
}

int lanes_accept(struct lanes *l, const struct step_result *result, struct err *e)
{
    int lane = l->n == 1 ? 0 : result->model; /* a single one plans for its draft model, too */
    return steps_accept(&l->lane[lane].steps, result, e);
}
