/* coordinator/batch/runner_end.c - the end of a run, and the periodic work until then. See runner.h.
 * ending.c and pace.c decide; this file acts. */
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/batch/runner.h"

#include <math.h>

#define WITHDRAW_SECONDS 0.5 /* between two checks for lines that no longer fit */

void runner_stop(struct runner *r)
{
    if (r->state >= RUNNER_STOPPING)
        return;
    r->state = RUNNER_STOPPING;
    runner_order_stop(r);
}

void runner_fail(struct runner *r, const struct err *e)
{
    if (r->end.failure.code == ERR_NONE)
        r->end.failure = *e;
    runner_stop(r);
}

/* Starts nothing new, and takes back requests that have not begun. */
static void drain(struct runner *r, double now)
{
    char left[WALLTIME_TEXT_BYTES];
    if (r->state >= RUNNER_DRAINING)
        return;
    r->state = RUNNER_DRAINING;
    runner_order_withdraw(r, NULL);
    runner_hand_out(r);
    outlets_soon(&r->view.outlets);
    outlets_clear(&r->view.outlets);
    log_note("draining (%s): running requests have %s", r->end.ending.cause,
             walltime_say(left, r->end.ending.until - now));
}

/* Syncs results first: the launcher may kill within a second. */
static void cut(struct runner *r)
{
    if (r->state >= RUNNER_STOPPING)
        return;
    runner_files_sync(r);
    outlets_soon(&r->view.outlets);
    if (r->progress.n_open > 0 || !r->progress.at_end) {
        outlets_clear(&r->view.outlets);
        log_note("ending (%s): %lld running requests are left to the next run", r->end.ending.cause,
                 (long long)r->progress.n_open);
    }
    runner_stop(r);
}

static void obey(struct runner *r, double now)
{
    enum ending_state state = ending_turn(&r->end.ending, now);
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
    if (wish == WISH_TELL && !r->end.broken)
        runner_tell(r, now);
    if (wish == WISH_FAIL && !r->end.broken) { /* the process has little time left; the launcher's signals follow */
        r->end.broken = true;
        runner_show_failure(r, signals_failure());
        signals_reported();
    }
    if (r->end.broken)
        return;
    ending_signal(&r->end.ending, wish, own, now);
    obey(r, now);
}

/* The largest of its prompts counts, since they run at once. */
static double need_of(struct runner *r, const struct task *task)
{
    double need = 0;
    for (int i = 0; i < task->n_prompts; i++)
        need = fmax(need, pace_need(&r->end.pace, (int64_t)task->choices[i].prompt.n, task->rules[i].max_tokens));
    return need;
}

bool runner_fits(struct runner *r, const struct line *l)
{
    double now = seconds_now();
    if (isinf(ending_limit(&r->end.ending)) || ending_fits(&r->end.ending, need_of(r, l->task), now)) {
        r->end.n_misfits = 0;
        return true;
    }
    if (++r->end.n_misfits >= runner_window(r)) /* number of consecutive misfits after which reading stops */
        ending_nothing_fits(&r->end.ending);
    return false;
}

static struct ramp_work work_of(const struct task *task)
{
    struct ramp_work work = {0};
    for (int i = 0; i < task->n_prompts; i++) {
        const struct choices *set = &task->choices[i];
        int n = set->search.num_beams > 1 ? set->search.num_beams : set->n_members;
        work.n_prompt += (double)set->prompt.n;
        work.n_output += (double)n * task->rules[i].max_tokens;
    }
    return work;
}

/* The number of its output tokens. Beams are about as long as the best one. */
static double made_of(const struct task *task)
{
    double n = 0;
    for (int i = 0; i < task->n_prompts; i++) {
        const struct choices *set = &task->choices[i];
        bool beams = set->search.num_beams > 1;
        for (int k = 0; k < set->n_members && !beams; k++)
            n += (double)set->member[k].output.n;
        n += beams && set->choice != NULL ? (double)set->search.num_beams * (double)set->choice[0]->output.n : 0;
    }
    return n;
}

bool runner_allows(struct runner *r, const struct line *l)
{
    const struct ramp_work work = work_of(l->task);
    double limit = ending_limit(&r->end.ending);
    return isinf(limit) || ramp_allows(&r->end.ramp, &work, pace_share(&r->end.pace), limit - seconds_now());
}

void runner_begin(struct runner *r, const struct line *l)
{
    const struct ramp_work work = work_of(l->task);
    ramp_begin(&r->end.ramp, &work);
}

void runner_note_steps(struct runner *r, bool decode)
{
    const struct scheduler_stats stats = replicas_stats(&r->replicas);
    double seconds = 0;
    uint64_t n_steps = replicas_steps(&r->replicas, &seconds);
    const struct ramp_counts counts = {(double)(stats.n_prompt_tokens - stats.n_prompt_cached),
                                       (double)stats.n_output_tokens, seconds / r->replicas.n_sets};
    pace_steps(&r->end.pace, n_steps, seconds, decode);
    ramp_learn(&r->end.ramp, &counts);
}

/* Lines may have waited too long in the engine's queue. Lines that have begun stay: they may be faster than estimated,
 * and otherwise they are cut at the limit. */
static void withdraw_misfits(struct runner *r, double now)
{
    if (isinf(ending_limit(&r->end.ending)) || now < r->end.withdraw_due || r->state != RUNNER_RUNNING)
        return;
    r->end.withdraw_due = now + WITHDRAW_SECONDS;
    for (struct line *l = r->lines.engaged; l != NULL; l = l->next)
        if (!l->withdrawn && !ending_fits(&r->end.ending, need_of(r, l->task), now)) {
            l->withdrawn = true;
            runner_order_withdraw(r, l->task);
        }
}

static void learn_pace(struct runner *r, const struct task *task)
{
    for (int i = 0; i < task->n_prompts; i++) {
        const struct choices *set = &task->choices[i];
        const struct request_times *t = &set->times;
        if (task->error.code != 0 || set->choice == NULL || t->first_token <= 0 || t->finished < t->first_token)
            continue;
        pace_learn(&r->end.pace, &(struct pace_sample){.prefill = t->first_token - t->scheduled,
                                                       .decode = t->finished - t->first_token,
                                                       .n_prompt = (int64_t)set->prompt.n,
                                                       .n_output = (int64_t)set->choice[0]->output.n,
                                                       .max_tokens = task->rules[i].max_tokens});
    }
}

void runner_learn(struct runner *r, const struct line *l, bool finished)
{
    const struct ramp_work work = work_of(l->task);
    ramp_end(&r->end.ramp, &work, made_of(l->task));
    if (finished)
        learn_pace(r, l->task);
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
        r->files.journal.n_pending == 0)
        runner_stop(r);
    if (r->files.journal.unsynced > 0 &&
        r->end.failure.code == ERR_NONE) /* after a failure nothing is synced any more */
        wait = fmin(wait, r->files.journal.unsynced_at + r->setup.o->sync_seconds - now);
    if (r->state == RUNNER_RUNNING || r->state == RUNNER_DRAINING)
        wait = fmin(wait, fmin(ending_limit(&r->end.ending), r->end.ending.until) - now);
    if (!r->end.broken)
        wait = fmin(wait, outlets_wait(&r->view.outlets, now));
    return wait > 0 ? (long)(1e3 * wait) + 1 : 0;
}

int runner_status(const struct runner *r)
{
    const struct batch_progress *p = &r->progress;
    bool unfinished = r->running && (!p->at_end || p->n_left > 0);
    return ending_status(unfinished, p->n_failed + p->n_failed_before + p->n_duplicates > 0);
}
