/* tests/support/reports.h - collects the tasks in a model side's reports, for tests of that side. */
#ifndef TESTS_SUPPORT_REPORTS_H
#define TESTS_SUPPORT_REPORTS_H

struct task;

/* Takes all reports out of a mailbox's end. Each finished task goes to back[its number], which must be empty. Returns
 * the number of these tasks. */
int reports_take(void *end, struct task **back);

#endif
