/* rank/watch/verdict.c - see verdict.h. */
#include "rank/watch/verdict.h"
#include "rank/watch/lifeline.h"

#include <stdio.h>

/* Has this rank a deadline, and has it passed? */
static bool is_late(const struct watch_view *view, int n, int self, double timeout)
{
    const struct watch_view *me = &view[self];
    if (me->activity == RANK_OUTSIDE || me->activity == RANK_COORDINATES || me->stalled < timeout)
        return false;
    if (me->activity != RANK_AWAITS_PLAN || me->rank == me->leader)
        return true;
    for (int i = 0; i < n; i++) /* it may take long, but must be alive; if it is not visible, its own host judges */
        if (view[i].rank == me->leader)
            return view[i].silent >= timeout;
    return false;
}

int verdict_find(const struct watch_view *view, int n, int self, double timeout)
{
    int most_silent = self;
    if (!is_late(view, n, self, timeout))
        return -1;
    for (int i = 0; i < n; i++)
        if (i != self && view[i].leader == view[self].leader && view[i].silent > view[most_silent].silent)
            most_silent = i;
    if (view[most_silent].silent >= timeout / 2)
        return most_silent;
    for (int i = 0; i < n; i++) /* a rank that still works while others wait for it */
        if (view[i].leader == view[self].leader && view[i].activity == RANK_WORKS && view[i].stalled >= timeout / 2)
            return i;
    return self;
}

static const char *activity_words(enum rank_activity activity)
{
    static const char *const words[] = {"outside of steps", "between steps",           "waiting for the plan",
                                        "computing",        "waiting in a collective", "waiting for the device"};
    return activity >= 0 && (size_t)activity < sizeof words / sizeof words[0] ? words[activity] : "?";
}

static void say_last(char *text, size_t bytes, const struct lifeline_state *s)
{
    static const char *const words[] = {"none yet", "the plan's broadcast", "all-reduce", "all-gather"};
    const char *word = s->last >= 0 && (size_t)s->last < sizeof words / sizeof words[0] ? words[s->last] : "?";
    if (s->last == COLLECTIVE_NONE)
        (void)snprintf(text, bytes, "%s", word);
    else if (s->last == COLLECTIVE_PLAN)
        (void)snprintf(text, bytes, "%s of step %llu", word, (unsigned long long)s->last_step);
    else
        (void)snprintf(text, bytes, "%s %u of step %llu", word, s->n_last, (unsigned long long)s->last_step);
}

void verdict_say_gone(char *text, size_t bytes, bool lost, const struct lifeline_state *state, const char *device)
{
    char what[100], where[60] = "its last state is not known", last[80];
    if (lost)
        (void)snprintf(what, sizeof what, "its host has not answered for %d s (lost, or the network is cut)",
                       LIFELINE_LOST_SECONDS);
    else
        (void)snprintf(what, sizeof what, "its process ended without a word (killed? out of memory?)");
    if (state != NULL && state->activity == RANK_OUTSIDE)
        (void)snprintf(where, sizeof where, "%s", activity_words(RANK_OUTSIDE));
    else if (state != NULL)
        (void)snprintf(where, sizeof where, "step %llu, %s", (unsigned long long)state->step,
                       activity_words((enum rank_activity)state->activity));
    if (state != NULL)
        say_last(last, sizeof last, state);
    (void)snprintf(text, bytes, "%s: %s%s%s; device %s", what, where, state != NULL ? "; last collective: " : "",
                   state != NULL ? last : "", device);
}

void verdict_say(char *text, size_t bytes, const struct watch_view *culprit, bool is_self, double timeout)
{
    char what[160];
    if (culprit->silent >= timeout / 2)
        (void)snprintf(what, sizeof what, "no sign of life for %.0f s, it was %s", culprit->silent,
                       activity_words(culprit->activity));
    else if (is_self && culprit->activity != RANK_WORKS)
        (void)snprintf(what, sizeof what, "%s, and no rank of this host appears to be at fault",
                       activity_words(culprit->activity));
    else
        (void)snprintf(what, sizeof what, "still %s", activity_words(culprit->activity));
    (void)snprintf(text, bytes, "step %llu has made no progress for %.4g s (--step-timeout): %s",
                   (unsigned long long)culprit->step, timeout, what);
}
