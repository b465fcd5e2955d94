/* client/send_options.c - see send_options.h. */
#include "client/send_options.h"
#include "base/opt_rows.h"

#define AT(member) offsetof(struct send_options, member)

static const struct opt rows[] = {
    TEXT("file", "FILE", file,
         "the requests: JSON lines, or one JSON text over many lines; - reads them from standard input"),
    INTEGER("max-concurrency", max_concurrency, 1, 1 << 20, 16, "requests open at once (default 16)"),
};
const struct opt_rows send_rows = OPT_ROWS(rows);
