/* tests/support/reports.c - see reports.h. */
#include "tests/support/reports.h"
#include "coordinator/tasks/mailbox.h"
#include "coordinator/tasks/steps.h"

#include <stdio.h>
#include <stdlib.h>

int reports_take(void *end, struct task **back)
{
    struct report *r;
    int n = 0;
    while ((r = mailbox_take(end)) != NULL) {
        for (struct task *task = r->done; task != NULL; task = task->work.next, n++) {
            if (back[task->number] != NULL) {
                (void)fprintf(stderr, "task %llu came back twice\n", (unsigned long long)task->number);
                abort();
            }
            back[task->number] = task;
        }
        steps_report_free(r);
    }
    return n;
}
