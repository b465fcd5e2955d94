/* coordinator/server/access_log.h - one JSON line a message: who asked for what, how it ended, where the time went. No
 * text of prompts unless asked for. The I/O thread's. */
#ifndef SERVER_ACCESS_LOG_H
#define SERVER_ACCESS_LOG_H

#include "base/log_writer.h"
#include "coordinator/metrics/metrics.h"
#include "coordinator/server/clients.h"

struct access_log {
    struct log_writer *writer; /* NULL: none is kept */
    bool with_prompts;
};

/* path: "-" is standard output, NULL: no log. Appended to. A file with prompts has mode 0600. */
int access_log_open(struct access_log *l, const char *path, bool with_prompts, struct err *e);
void access_log_close(struct access_log *l);

/* Lines that could not be written. */
uint64_t access_log_lost(const struct access_log *l);

/* One line for a message that was answered. Never waits. */
void access_log_write(struct access_log *l, const struct task *j, const struct outcome *o);

#endif
