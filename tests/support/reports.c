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
        for (struct task *j = r->done; j != NULL; j = j->work.next, n++) {
            if (back[j->number] != NULL) {
                (void)fprintf(stderr, "task %llu came back twice\n", (unsigned long long)j->number);
                abort();
            }
            back[j->number] = j;
        }
        steps_report_free(r);
    }
    return n;
}
