/* tests/support/scheduled.c - see scheduled.h. */
#include "tests/support/scheduled.h"

int scheduled_next(void *scheduler, struct plan *plan, struct err *e)
{
    (void)e;
    if (!scheduler_busy(scheduler))
        plan->kind = PLAN_STOP;
    else
        scheduler_plan(scheduler, plan, 0);
    return 0;
}

int scheduled_accept(void *scheduler, const struct step_result *result, struct err *e)
{
    return scheduler_accept(scheduler, result, 0, e);
}
