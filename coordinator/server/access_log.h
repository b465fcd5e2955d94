/* coordinator/server/access_log.h - one JSON line per message: client, request, outcome, and the split of the time.
 * Texts of prompts only on request. Used by the I/O thread only. */
#ifndef SERVER_ACCESS_LOG_H
#define SERVER_ACCESS_LOG_H

#include "base/log_writer.h"
#include "coordinator/metrics/metrics.h"
#include "coordinator/server/clients.h"

struct access_log {
    struct log_writer *writer; /* NULL: no log */
    bool with_prompts;
};

/* path: "-" is standard output, NULL: no log. Appended to. A file with prompts has mode 0600. */
int access_log_open(struct access_log *l, const char *path, bool with_prompts, struct err *e);
void access_log_close(struct access_log *l);

/* Lines that could not be written. */
uint64_t access_log_lost(const struct access_log *l);

/* Writes one line for an answered message. Never blocks. */
void access_log_write(struct access_log *l, const struct task *task, const struct outcome *o);

#endif
