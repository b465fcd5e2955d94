/* coordinator/batch/runner_end.c - when a run ends, and what has to happen now and then until it does. See runner.h. What is
 * decided is in ending.c and pace.c; here it is done. */
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/batch/runner.h"

#include <math.h>

#define WITHDRAW_SECONDS 0.5 /* between two looks at what does not fit any more */

void runner_stop(struct runner *r)
{
    if (r->state >= RUNNER_STOPPING)
        return;
    r->state = RUNNER_STOPPING;
    runner_order_stop(r);
}

void runner_fail(struct runner *r, const struct err *e)
{
    if (r->failure.code == ERR_NONE)
        r->failure = *e;
    runner_stop(r);
}

/* Nothing new; what has not begun comes back. */
static void drain(struct runner *r, double now)
{
    char left[WALLTIME_TEXT_BYTES];
    if (r->state >= RUNNER_DRAINING)
        return;
    r->state = RUNNER_DRAINING;
    runner_order_withdraw(r, NULL);
    runner_hand_out(r);
    outlets_soon(&r->outlets);
    outlets_clear(&r->outlets);
    log_note("draining (%s): what has begun has %s", r->ending.cause, walltime_say(left, r->ending.until - now));
}

/* Results are safe first: the launcher may kill within the second. */
static void cut(struct runner *r)
{
    if (r->state >= RUNNER_STOPPING)
        return;
    runner_files_sync(r);
    outlets_soon(&r->outlets);
    if (r->progress.n_open > 0 || !r->progress.at_end) {
        outlets_clear(&r->outlets);
        log_note("ending (%s): %lld requests under way are left to the next run", r->ending.cause,
                 (long long)r->progress.n_open);
    }
    runner_stop(r);
}

static void obey(struct runner *r, double now)
{
    enum ending_state state = ending_turn(&r->ending, now);
    if (state == ENDING_DRAIN)
        drain(r, now);
    if (state == ENDING_CUT)
        cut(r);
}

void runner_signal(struct runner *r, enum signal_wish wish, bool own)
{
    double now = seconds_now();
    if (wish == WISH_NONE)
        return;
    if (r->state < RUNNER_ENDED)
        runner_files_sync(r);
    if (wish == WISH_TELL && !r->broken)
        runner_tell(r, now);
    if (wish == WISH_FAIL && !r->broken) { /* the process has a moment left; the launcher's signals follow */
        r->broken = true;
        runner_show_failure(r, signals_failure());
    }
    if (r->broken)
        return;
    ending_signal(&r->ending, wish, own, now);
    obey(r, now);
}

/* Of the largest of its prompts, which run at once. */
static double need_of(struct runner *r, const struct job *j)
{
    double need = 0;
    for (int i = 0; i < j->n_groups; i++)
        need = fmax(need, pace_need(&r->pace, (int64_t)j->group[i].prompt.n, j->rules[i].max_tokens));
    return need;
}

bool runner_fits(struct runner *r, const struct line *l)
{
    double now = seconds_now();
    if (isinf(ending_limit(&r->ending)) || ending_fits(&r->ending, need_of(r, l->job), now)) {
        r->n_misfits = 0;
        return true;
    }
    if (++r->n_misfits >= r->window) /* so many in a row: what is further behind need not be read */
        ending_nothing_fits(&r->ending);
    return false;
}

static struct ramp_work work_of(const struct job *j)
{
    struct ramp_work work = {0};
    for (int i = 0; i < j->n_groups; i++) {
        const struct group *g = &j->group[i];
        int n = g->search.num_beams > 1 ? g->search.num_beams : g->n_members;
        work.n_prompt += (double)g->prompt.n;
        work.n_output += (double)n * j->rules[i].max_tokens;
    }
    return work;
}

/* Output tokens that it got. Beams are as long as their best one, about. */
static double made_of(const struct job *j)
{
    double n = 0;
    for (int i = 0; i < j->n_groups; i++) {
        const struct group *g = &j->group[i];
        bool beams = g->search.num_beams > 1;
        for (int k = 0; k < g->n_members && !beams; k++)
            n += (double)g->member[k].output.n;
        n += beams && g->choice != NULL ? (double)g->search.num_beams * (double)g->choice[0]->output.n : 0;
    }
    return n;
}

bool runner_allows(struct runner *r, const struct line *l)
{
    const struct ramp_work work = work_of(l->job);
    double limit = ending_limit(&r->ending);
    return isinf(limit) || ramp_allows(&r->ramp, &work, pace_share(&r->pace), limit - seconds_now());
}

void runner_begin(struct runner *r, const struct line *l)
{
    const struct ramp_work work = work_of(l->job);
    ramp_begin(&r->ramp, &work);
}

void runner_note_steps(struct runner *r, bool decode)
{
    const struct scheduler_stats stats = engines_stats(&r->engines);
    double seconds = 0;
    uint64_t n_steps = engines_steps(&r->engines, &seconds);
    const struct ramp_counts counts = {(double)(stats.n_prompt_tokens - stats.n_prompt_cached),
                                       (double)stats.n_output_tokens, seconds / r->engines.n};
    pace_steps(&r->pace, n_steps, seconds, decode);
    ramp_learn(&r->ramp, &counts);
}

/* Lines wait in the engine for their turn, and meanwhile time passes. Those that have begun stay: they may be faster than it
 * seems, and if not, they are cut at the limit. */
static void withdraw_misfits(struct runner *r, double now)
{
    if (isinf(ending_limit(&r->ending)) || now < r->withdraw_due || r->state != RUNNER_RUNNING)
        return;
    r->withdraw_due = now + WITHDRAW_SECONDS;
    for (struct line *l = r->engaged; l != NULL; l = l->next)
        if (!l->withdrawn && !ending_fits(&r->ending, need_of(r, l->job), now)) {
            l->withdrawn = true;
            runner_order_withdraw(r, l->job);
        }
}

static void learn_pace(struct runner *r, const struct job *j)
{
    for (int i = 0; i < j->n_groups; i++) {
        const struct group *g = &j->group[i];
        const struct request_times *t = &g->times;
        if (j->error.code != 0 || g->choice == NULL || t->first_token <= 0 || t->finished < t->first_token)
            continue;
        pace_learn(&r->pace, &(struct pace_sample){.prefill = t->first_token - t->scheduled,
                                                   .decode = t->finished - t->first_token,
                                                   .n_prompt = (int64_t)g->prompt.n,
                                                   .n_output = (int64_t)g->choice[0]->output.n,
                                                   .max_tokens = j->rules[i].max_tokens});
    }
}

void runner_learn(struct runner *r, const struct line *l, bool finished)
{
    const struct ramp_work work = work_of(l->job);
    ramp_end(&r->ramp, &work, made_of(l->job));
    if (finished)
        learn_pace(r, l->job);
}

long runner_keep_time(struct runner *r)
{
    double now = seconds_now(), wait = 1;
    runner_files_keep(r, now);
    withdraw_misfits(r, now);
    if (r->state == RUNNER_RUNNING || r->state == RUNNER_DRAINING)
        obey(r, now);
    bool all_read = r->progress.at_end || r->state == RUNNER_DRAINING;
    if ((r->state == RUNNER_RUNNING || r->state == RUNNER_DRAINING) && all_read && r->progress.n_open == 0 &&
        r->journal.n_pending == 0)
        runner_stop(r);
    if (r->journal.unsynced > 0 && r->failure.code == ERR_NONE) /* after a failure nothing is synced any more */
        wait = fmin(wait, r->journal.unsynced_at + r->setup.o->sync_seconds - now);
    if (r->state == RUNNER_RUNNING || r->state == RUNNER_DRAINING)
        wait = fmin(wait, fmin(ending_limit(&r->ending), r->ending.until) - now);
    if (!r->broken)
        wait = fmin(wait, outlets_wait(&r->outlets, now));
    return wait > 0 ? (long)(1e3 * wait) + 1 : 0;
}

int runner_status(const struct runner *r)
{
    const struct batch_progress *p = &r->progress;
    bool unfinished =
        r->running && (!p->at_end || p->n_left > 0 || p->n_open > 0); /* open: with the worker at the end */
    return ending_status(unfinished, p->n_failed + p->n_failed_before + p->n_duplicates > 0);
}
