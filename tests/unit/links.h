/* tests/unit/links.h - rank 0's side of links to other replicas, and a task to send; for tests of links. */
#ifndef TESTS_UNIT_LINKS_H
#define TESTS_UNIT_LINKS_H

#include "tests/unit/unit.h"

#include "base/clock.h"
#include "coordinator/replicas/hub.h"
#include "coordinator/tasks/mailbox.h"

#include <stdlib.h>
#include <zmq.h>

#define PATIENT 20.0 /* seconds, for messages that should come at once */

struct rank0 {
    void *context;
    struct replicas replicas;
    struct hub hub;
    struct link_card card;
};

/* Returns the next report of this replica; drops figures that arrive meanwhile. */
static inline struct report *hear(struct rank0 *r, int replica)
{
    for (double until = seconds_now() + PATIENT; seconds_now() < until;) {
        int from = -1;
        struct report *report = replicas_take(&r->replicas, &from);
        if (from == replica)
            return report;
        steps_report_free(report);
        (void)mailbox_wait(r->replicas.replica[replica].end[0], 100);
    }
    return NULL;
}

/* Makes a task of one prompt of three tokens and n of output; without text, since none is read. */
static inline struct task *make_task(uint64_t number, int n)
{
    struct task *task = task_open(number, NULL, false, seconds_now());
    struct request_rules *r = &task->message.generate.rules;
    struct token_list prompt = {calloc(3, sizeof(int32_t)), 3, 3};
    struct err e = {0};
    prompt.id[0] = (int32_t)(number % 1000);
    r->sampling = (struct sampling){.top_p = 1, .repetition_penalty = 1};
    r->max_tokens = n;
    r->skip_special = true;
    task->message.generate.search = (struct search){.n = 1, .num_beams = 1};
    task->n_choices = 1;
    task->rules = calloc(1, sizeof *task->rules);
    task->choices = calloc(1, sizeof *task->choices);
    task->work.progress = calloc(1, sizeof *task->work.progress);
    task->rules[0] = *r;
    assert_int_equal(choices_open(&task->choices[0], &task->message.generate.search, &task->rules[0], &prompt, &e), 0);
    task->choices[0].owner = task;
    task->n_prompts = 1;
    return task;
}

#endif
