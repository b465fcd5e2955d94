/* coordinator/serve.h - `lockstep serve` on rank 0: the I/O thread with its socket (coordinator/server/server.h) and the main
 * thread's scheduler (coordinator/server/steps.h), seen by main.c as the two functions of a loop's client. */
#ifndef COORDINATOR_SERVE_H
#define COORDINATOR_SERVE_H

#include "coordinator/groups/hub.h"
#include "coordinator/server/server.h"
#include "partition/model.h"
#include "rank/rank_stats.h"

struct serve {
    const struct options *o; /* borrowed */
    struct tokenizer *tokenizer;
    struct chat_template *chat; /* NULL: none that we know */
    char name[256];             /* of the model */
    int rope_changes_at;
    struct server server;
    struct steps steps;
    struct hub hub; /* the other groups, if there are any */
};

/* Read tokenizer and chat template, open the socket: from now on clients hear that the model is being loaded. Rank 0. */
int serve_open(struct serve *v, const struct options *o, const struct model_config *m, int n_ranks, struct err *e);

/* The model is loaded. */
int serve_start(struct serve *v, const struct limits *l, struct err *e);

/* The functions of struct loop_client; and what all ranks measured. context: the struct serve. */
int serve_next(void *context, struct plan *plan, struct err *e);
int serve_accept(void *context, const struct step_result *result, struct err *e);
void serve_signal(void *context, enum signal_wish wish);
void serve_ranks(void *context, const struct rank_report *report);

/* After the loop has ended: send what is left, end the threads. Returns the exit status; *e says if a group was lost meanwhile.
 * Safe on a zeroed struct. */
int serve_close(struct serve *v, struct err *e);

#endif
