/* tests/support/honest.c - see honest.h. */
#include "tests/support/honest.h"
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/process.h"
#include "tests/support/talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#define QUESTION "{\"prompt\": \"Once upon a time\", \"max_tokens\": 8, \"temperature\": 0}"
#define PATIENCE 60.0

static char *story_of(const json_t *reply)
{
    const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
    return json_dumps(json_object_get(choice, "token_ids"), JSON_COMPACT);
}

static void ask_story(struct honest *h, struct talk *t)
{
    double asked = seconds_now();
    talk_say(t, "%s", QUESTION);
    json_t *reply = talk_hear(t, PATIENCE);
    char *story = story_of(reply);
    int n = atomic_load(&h->n);
    h->seconds[n] = seconds_now() - asked;
    h->n_refused += talk_number(reply, "code") == 429;
    if (story != NULL && strcmp(story, h->story) == 0)
        h->n_right++;
    else if (h->wrong[0] == '\0')
        (void)snprintf(h->wrong, sizeof h->wrong, "after %.1f s: %.0f %s", h->seconds[n], talk_number(reply, "code"),
                       reply != NULL ? talk_text(reply, "error/message") : "no answer");
    atomic_store(&h->n, n + 1);
    free(story);
    json_decref(reply);
}

static void ask_health(struct honest *h, struct talk *t)
{
    double asked = seconds_now();
    talk_say(t, "{\"op\": \"health\"}");
    json_decref(talk_hear(t, PATIENCE));
    double took = seconds_now() - asked;
    h->health = took > h->health ? took : h->health;
}

static void *talk_on(void *context)
{
    struct honest *h = context;
    const struct timespec pause = {0, 5000000};
    struct talk t;
    talk_open(&t, ZMQ_DEALER, h->endpoint, NULL, NULL);
    while (!atomic_load(&h->stop) && atomic_load(&h->n) < HONEST_MOST) {
        ask_story(h, &t);
        ask_health(h, &t);
        (void)nanosleep(&pause, NULL);
    }
    talk_close(&t);
    return NULL;
}

bool honest_start(struct honest *h, const char *endpoint)
{
    memset(h, 0, sizeof *h);
    h->endpoint = endpoint;
    json_t *reply = talk_ask(endpoint, QUESTION);
    h->story = story_of(reply);
    json_decref(reply);
    if (!case_check(h->story != NULL, "the honest client got no answer before the attack"))
        return false;
    return case_check(pthread_create(&h->thread, NULL, talk_on, h) == 0, "no thread");
}

void honest_await(struct honest *h, int n, double seconds)
{
    const struct timespec pause = {0, 2000000};
    int until = atomic_load(&h->n) + n;
    for (double end = seconds_now() + seconds; atomic_load(&h->n) < until && seconds_now() < end;)
        (void)nanosleep(&pause, NULL);
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

void honest_stop(struct honest *h, const char *attack, double most_seconds)
{
    atomic_store(&h->stop, true);
    (void)pthread_join(h->thread, NULL);
    int n = atomic_load(&h->n);
    qsort(h->seconds, (size_t)n, sizeof h->seconds[0], ascending);
    double p99 = n > 0 ? h->seconds[(n - 1) * 99 / 100] : 0;
    printf("# %s: honest client %d of %d answered correctly, %d refused, p50 %.0f ms, p99 %.0f ms, health at worst "
           "%.0f ms\n",
           attack, h->n_right, n, h->n_refused, n > 0 ? 1e3 * h->seconds[n / 2] : 0, 1e3 * p99, 1e3 * h->health);
    case_check(n > 0 && h->n_right == n, "%d of %d are correct; the first wrong one: %s", h->n_right, n, h->wrong);
    case_check(process_in_time(p99, most_seconds) || process_sanitized(), "p99 is %.3f s, expected %.3f s", p99,
               most_seconds);
    case_check(process_in_time(h->health, most_seconds) || process_sanitized(), "health took %.3f s, expected %.3f s",
               h->health, most_seconds);
    free(h->story);
    h->story = NULL;
}
