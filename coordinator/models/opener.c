/* coordinator/models/opener.c - see opener.h. */
#include "coordinator/models/opener.h"
#include "coordinator/tasks/mailbox.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The opener's own address as a message ends it. */
static void *run_opener(void *context)
{
    struct opener *o = context;
    for (struct opening *one; (one = mailbox_next(o->end[1], o)) != NULL;) {
        (void)o->source.open(o->source.context, one->model, &one->opened, &one->why);
        (void)mailbox_post(o->end[1], one);
    }
    return NULL;
}

int opener_open(struct opener *o, void *zmq_context, const struct models_source *source, struct err *e)
{
    *o = (struct opener){.source = *source};
    if (mailbox_open(zmq_context, "opener", o->end, e) != 0)
        return -1;
    if (pthread_create(&o->thread, NULL, run_opener, o) != 0)
        return ERR(e, ERR_MEMORY, "cannot start a thread: opener");
    o->running = true;
    return 0;
}

void opener_close(struct opener *o)
{
    if (o->running && mailbox_post(o->end[0], o))
        (void)pthread_join(o->thread, NULL);
    for (struct opening *one; o->running && (one = opener_take(o)) != NULL; free(one)) {
        if (one->opened.handle != NULL)
            o->source.close(o->source.context, one->opened.handle);
        json_decref(one->opened.made_of);
    }
    for (int i = 0; i < 2; i++)
        mailbox_close(&o->end[i]);
    memset(o, 0, sizeof *o);
}

bool opener_ask(struct opener *o, int model, int set)
{
    struct opening *one = calloc(1, sizeof *one);
    if (one == NULL)
        return false;
    one->model = model;
    one->set = set;
    return mailbox_post(o->end[0], one);
}

struct opening *opener_take(struct opener *o)
{
    return mailbox_take(o->end[0]);
}
