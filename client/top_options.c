/* client/top_options.c - see top_options.h. */
#include "client/top_options.h"
#include "base/opt_rows.h"

#define AT(member) offsetof(struct top_options, member)

static const struct opt rows[] = {
    REAL("interval", interval, 0.1, 3600, 1, "seconds between two views (default 1)"),
    FLAG("once", once, "print one view, over one interval, and exit"),
};
const struct opt_rows top_rows = OPT_ROWS(rows);
