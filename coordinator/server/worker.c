/* coordinator/server/worker.c - see worker.h. */
#include "coordinator/server/worker.h"
#include "coordinator/server/mailbox.h"

#include <stdlib.h>
#include <string.h>

static int encode(struct job *j, const struct worker_setup *s)
{
    const struct protocol_generate *g = &j->message.generate;
    int n = g->prompt != NULL ? g->n_prompts : 1;
    j->ids = calloc((size_t)n, sizeof *j->ids);
    if (j->ids == NULL)
        return protocol_fail(&j->error, PROTOCOL_INTERNAL, "", "out of host memory");
    for (j->n_ids = 0; j->n_ids < n;) {
        struct token_list *ids = &j->ids[j->n_ids];
        if (protocol_encode(g, j->n_ids++, s->tokenizer, s->chat, s->model->vocab, s->bos, ids, &j->error) != 0)
            return -1;
    }
    return 0;
}

static void work(struct job *j, const struct worker_setup *s)
{
    struct err e = {0};
    if (!j->parsed)
        job_parse(j, s->model);
    if (j->error.code != 0)
        return;
    if (j->message.op == PROTOCOL_GENERATE || j->message.op == PROTOCOL_TOKENIZE)
        (void)encode(j, s);
    else if (j->message.op == PROTOCOL_DETOKENIZE &&
             tokenizer_decode(s->tokenizer, j->message.ids.id, j->message.ids.n, j->message.skip_special_tokens,
                              &j->text, &j->text_bytes, &e) != 0)
        (void)protocol_fail(&j->error, PROTOCOL_INTERNAL, "", "%s", e.text);
}

/* A message that is the worker itself ends it. */
static void *run(void *context)
{
    struct worker *w = context;
    for (;;) {
        (void)mailbox_wait(w->end[1], -1);
        void *message = mailbox_take(w->end[1]);
        if (message == w)
            return NULL;
        if (message == NULL)
            continue;
        work(message, &w->setup);
        (void)mailbox_post(w->end[1], message);
    }
}

int worker_open(struct worker *w, void *zmq_context, const char *name, const struct worker_setup *setup, struct err *e)
{
    memset(w, 0, sizeof *w);
    w->setup = *setup;
    if (mailbox_open(zmq_context, name, w->end, e) != 0)
        return -1;
    if (pthread_create(&w->thread, NULL, run, w) != 0)
        return ERR(e, ERR_MEMORY, "cannot start a thread: %s", name);
    w->running = true;
    return 0;
}

void worker_close(struct worker *w)
{
    if (w->running && mailbox_post(w->end[0], w))
        (void)pthread_join(w->thread, NULL);
    w->running = false;
    for (int i = 0; i < 2; i++)
        mailbox_close(&w->end[i]);
}
