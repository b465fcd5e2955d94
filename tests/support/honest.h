/* tests/support/honest.h - a client that requests the same short story repeatedly while others attack the server: every
 * answer must be correct, and each answer's time is recorded. It runs on its own thread. */
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
    atomic_int n;                /* requests that were answered, or given up */
    int n_right;                 /* with the correct story */
    int n_refused;               /* 429 */
    double seconds[HONEST_MOST]; /* of each answer; after honest_stop in ascending order */
    double health;               /* longest time of op health, seconds */
    char wrong[300];             /* the first wrong answer */
};

/* Before the attack: asks once, to learn the correct answer. false: no answer. */
bool honest_start(struct honest *h, const char *endpoint);

/* Waits until it has had this many further answers, or this many seconds have passed. */
void honest_await(struct honest *h, int n, double seconds);

/* Ends it, prints its observations, and checks (case_check) that all answers were correct and, unless sanitizers slow
 * it down, that 99 of 100 took at most this many seconds. */
void honest_stop(struct honest *h, const char *attack, double most_seconds);

#endif
