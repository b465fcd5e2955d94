/* coordinator/tasks/finished.h - the results of a finished task, in the structs of protocol/reply.h: for the replies of
 * a server and the lines of a batch. */
#ifndef TASKS_FINISHED_H
#define TASKS_FINISHED_H

#include "coordinator/tasks/task.h"
#include "protocol/reply.h"

/* The split of a request's time, in seconds. */
struct time_split {
    double queue;    /* waiting for its first step */
    double prefill;  /* first step to first token */
    double decode;   /* first token to last */
    double overhead; /* the rest: parsing, tokenizing, making the reply */
    double total;    /* message to last reply */
};

struct finished {
    struct request_times times; /* over all prompts: the first of each */
    struct time_split split;
    struct reply_usage usage;
    struct reply_timing timing;
    struct draft_counts counts; /* over all prompts */
    struct reply_drafts drafts;

    /* finished_choices */
    struct reply_choice *choice; /* [n_choices], each with its own `said` */
    char **made;                 /* [n_choices] texts made for the reply (echo); NULL: the request's own */
    int n_choices;
};

/* Sets task->error to the outcome of the whole task; an existing error (the reason of a cancellation) has
 * precedence. */
void finished_judge(struct task *task);

/* Sets times, usage and drafts. f must not move. */
void finished_measure(struct finished *f, const struct task *task, double now);

/* The choices, which borrow the task's texts. -1: out of memory. */
int finished_choices(struct finished *f, const struct task *task, const struct tokenizer *t);

void finished_close(struct finished *f);

/* The whole reply, or a stream's last event: malloc'ed; NULL: out of memory. Any thread that owns the task. */
char *finished_reply(struct finished *f, struct task *task, const struct tokenizer *t, const char *model,
                     size_t *bytes);

#endif
