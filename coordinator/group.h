/* coordinator/group.h - one prompt and what was asked for it: `n` choices, the n best of `best_of`, or beam search. A group
 * is a handful of requests of the scheduler; with n = 1 it is one. This is what a server queues. Rank 0 only. */
#ifndef COORDINATOR_GROUP_H
#define COORDINATOR_GROUP_H

#include "coordinator/beam.h"
#include "coordinator/scheduler.h"

#define GROUP_MAX_CHOICES 128 /* n and best_of */

struct search {
    int n;         /* choices wanted */
    int best_of;   /* sequences sampled: the n of them with the best mean log-probability a token are the choices; 0: n.
                      Sequence i samples with seed + i */
    int num_beams; /* 1: no beam search */
    struct beam_rules beam;
};

/* Is this possible with these rules? If not, *field names the field that is at fault. */
int search_check(const struct search *how, const struct request_rules *rules, const char **field, struct err *e);

struct group {
    void *owner;                       /* the caller's */
    const struct request_rules *rules; /* borrowed until group_close */
    struct search search;
    struct token_list prompt; /* owned */
    int priority;
    double deadline;
    enum finish_reason finish; /* of the whole: FINISH_NONE while anything is under way; FINISH_STOP when all is done */
    /* [search.n] once finished, best first where they are ranked, else in order of their seeds; a choice's own finish is in
     * it. Before that, without best_of and beams, choice[i] is sequence i as far as it has come. */
    struct request **choice;

    /* The group's own. */
    struct scheduler *scheduler;
    struct request *member;                     /* [n_members] */
    int n_members, n_added, n_finished, n_held; /* n_held: members that the scheduler still refers to */
    struct request_rules *member_rules;         /* [n_members] rules with the member's seed */
    struct beam_search *beam;                   /* NULL: none */
};

struct group_events {
    /* Choice i has one more token or has ended. Not called with best_of > n or beams, whose choices are known at the end. */
    void (*on_choice)(void *context, struct group *g, int i);
    /* All choices are there, or the group was cancelled or timed out (with what there was). */
    void (*on_finish)(void *context, struct group *g);
    /* group_close is allowed from now on. */
    void (*on_release)(void *context, struct group *g);
    void *context;
};

/* The prompt moves into the group. search_check has passed. */
int group_open(struct group *g, const struct search *how, const struct request_rules *rules, struct token_list *prompt,
               struct err *e);

/* Queue it; g->priority and g->deadline are set. Returns 0, SCHEDULER_FULL, or -1 and *e. */
int group_submit(struct group *g, struct scheduler *s, double now, struct err *e);

/* End it with what there is, without a call of on_finish. */
void group_cancel(struct group *g, enum finish_reason why, double now);

void group_close(struct group *g);

/* A scheduler all of whose requests belong to groups calls these: setup.on_progress = group_on_progress, setup.on_release =
 * group_on_release, setup.context = a struct group_events. */
void group_on_progress(void *events, struct request *r);
void group_on_release(void *events, struct request *r);

#endif
