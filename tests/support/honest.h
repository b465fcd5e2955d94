/* tests/support/honest.h - a client that asks for the same short story again and again while others attack the server:
 * every answer must be right, and each answer's time is recorded. It runs on a thread of its own. */
#ifndef TESTS_SUPPORT_HONEST_H
#define TESTS_SUPPORT_HONEST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define HONEST_MOST 10000

struct honest {
    const char *endpoint; /* borrowed */
    char *story;          /* the expected answer; owned */
    pthread_t thread;
    atomic_bool stop;
    atomic_int n;                /* questions answered, or given up */
    int n_right;                 /* with the right story */
    int n_refused;               /* 429 */
    double seconds[HONEST_MOST]; /* of each answer; after honest_stop in ascending order */
    double health;               /* longest time of op health */
    char wrong[300];             /* the first answer that was not right */
};

/* Before the attack: asks once, to get the right answer. false: no answer. */
bool honest_start(struct honest *h, const char *endpoint);

/* Wait until it has had this many further answers, or this many seconds. */
void honest_await(struct honest *h, int n, double seconds);

/* Ends it, prints what it has seen, and checks (case_check) that all answers were right and, unless sanitizers slow it
 * down, that 99 of 100 took at most this many seconds. */
void honest_stop(struct honest *h, const char *attack, double most_seconds);

#endif
