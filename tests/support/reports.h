/* tests/support/reports.h - collects the tasks in a model side's reports, for tests of that side. */
#ifndef TESTS_SUPPORT_REPORTS_H
#define TESTS_SUPPORT_REPORTS_H

struct task;

/* Takes all reports out of a mailbox's end. Each task that is done goes to back[its number], where none was before.
 * Returns the number of those tasks. */
int reports_take(void *end, struct task **back);

#endif
