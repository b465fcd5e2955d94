/* tests/unit/orders.h - requests for the model side (coordinator/tasks) on a device of paper, and their outputs. */
#ifndef TESTS_UNIT_ORDERS_H
#define TESTS_UNIT_ORDERS_H

#include "tests/unit/unit.h"

#include "coordinator/tasks/mailbox.h"
#include "coordinator/tasks/steps.h"
#include "tests/support/paper.h"

#include <stdio.h>
#include <stdlib.h>
#include <zmq.h>

#define ORDERS_VOCAB   50
#define ORDERS_MAX_LEN 64

static inline void orders_post(void *end, struct order order)
{
    struct order *o = malloc(sizeof *o);
    *o = order;
    assert_true(mailbox_post(end, o));
}

/* Submits a greedy request whose prompt is three tokens that depend on its number, and which does not end by itself. */
static inline void orders_submit(void *end, uint64_t number, int max_tokens)
{
    static const struct served served = {.model = {.name = "paper", .vocab = ORDERS_VOCAB}};
    const int32_t prompt[3] = {(int32_t)(number % ORDERS_VOCAB), 2, 3};
    char text[200];
    zmq_msg_t body;
    int n = snprintf(text, sizeof text,
                     "{\"prompt\": [%d, 2, 3], \"max_tokens\": %d, \"ignore_eos\": true, \"temperature\": 0}",
                     (int)prompt[0], max_tokens);
    assert_int_equal(zmq_msg_init_size(&body, (size_t)n), 0);
    memcpy(zmq_msg_data(&body), text, (size_t)n);
    struct task *task = task_open(number, &body, false, 0);
    task->served = &served;
    task_read(task);
    task_check(task);
    assert_int_equal(task->error.code, 0);
    task->ids = calloc(1, sizeof *task->ids);
    task->n_ids = 1;
    task->ids[0] = (struct token_list){.id = malloc(sizeof prompt), .n = 3, .capacity = 3};
    memcpy(task->ids[0].id, prompt, sizeof prompt);
    assert_int_equal(task_prepare(task, ORDERS_MAX_LEN, 1 << 20, 1), 0);
    orders_post(end, (struct order){.kind = ORDER_SUBMIT, .task = task});
}

/* Expects the first tokens that the device gives after this prompt; returns their number. */
static inline int orders_check_output(const struct task *task)
{
    const struct request *r = task->choices[0].choice[0];
    int32_t token[ORDERS_MAX_LEN] = {(int32_t)(task->number % ORDERS_VOCAB), 2, 3};
    for (int i = 0; i < (int)r->output.n; i++) {
        struct sampled s;
        token[3 + i] = paper_next(token, 3 + i, 3, &task->rules[0].sampling, ORDERS_VOCAB, &s);
        assert_int_equal(r->output.id[i], token[3 + i]);
    }
    return (int)r->output.n;
}

#endif
