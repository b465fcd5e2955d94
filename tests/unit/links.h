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
    struct task *j = task_open(number, NULL, false, seconds_now());
    struct request_rules *r = &j->message.generate.rules;
    struct token_list prompt = {calloc(3, sizeof(int32_t)), 3, 3};
    struct err e = {0};
    prompt.id[0] = (int32_t)(number % 1000);
    r->sampling = (struct sampling){.top_p = 1, .repetition_penalty = 1};
    r->max_tokens = n;
    r->skip_special = true;
    j->message.generate.search = (struct search){.n = 1, .num_beams = 1};
    j->n_choices = 1;
    j->rules = calloc(1, sizeof *j->rules);
    j->choices = calloc(1, sizeof *j->choices);
    j->work.progress = calloc(1, sizeof *j->work.progress);
    j->rules[0] = *r;
    assert_int_equal(choices_open(&j->choices[0], &j->message.generate.search, &j->rules[0], &prompt, &e), 0);
    j->choices[0].owner = j;
    j->n_prompts = 1;
    return j;
}

#endif
