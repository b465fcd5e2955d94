/* tests/support/scheduled.h - a scheduler as the client of the step loop, until it has no more work. */
#ifndef TESTS_SUPPORT_SCHEDULED_H
#define TESTS_SUPPORT_SCHEDULED_H

#include "coordinator/schedule/scheduler.h"

/* For struct loop_client, whose context is a struct scheduler. Returns its next plan, or PLAN_STOP. */
int scheduled_next(void *scheduler, struct plan *plan, struct err *e);
int scheduled_accept(void *scheduler, const struct step_result *result, struct err *e);

#endif
