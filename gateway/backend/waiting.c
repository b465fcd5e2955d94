/* gateway/backend/waiting.c - see waiting.h. */
#include "gateway/backend/waiting.h"
#include "base/log.h"

#include <string.h>
#include <sys/stat.h>

#define WAIT_SECONDS 5 /* without a ready backend until the log says so */

static const char *state_text(const struct backend *b)
{
    if (b->state == BACKEND_BROKEN)
        return "cannot be used";
    if (b->state == BACKEND_DRAINS)
        return "takes nothing new";
    return b->connection.up ? "loads its model" : "does not answer";
}

/* Says of a file or folder that has led to no backend why. */
static void say_source(const struct pool *p, const char *source)
{
    struct stat s;
    size_t n = strlen(source);
    for (const struct backend *b = p->first; b != NULL; b = b->next)
        if (strncmp(b->name, source, n) == 0)
            return;
    log_warn("no backend is ready, requests get 503: %s %s", source,
             stat(source, &s) != 0 ? "does not exist" : "has no file *.json");
}

void waiting_watch(struct pool *p)
{
    if (pool_n_ready(p) > 0) {
        p->was_ready = p->loop->now;
        p->said_waiting = false;
    }
    if (p->said_waiting || p->loop->now - p->was_ready < WAIT_SECONDS)
        return;
    p->said_waiting = true;
    for (const struct backend *b = p->first; b != NULL; b = b->next)
        log_warn("no backend is ready, requests get 503: backend %s %s", b->name, state_text(b));
    for (int i = 0; i < p->n_sources; i++)
        say_source(p, p->source[i]);
}
