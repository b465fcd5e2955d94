/* commands/models/beside.c - see beside.h. */
#include "commands/models/beside.h"
#include "base/clock.h"

#include <string.h>

#define MOST_TOKENS 1024 /* of a request: the context that it reads stays small */

const char *meanwhile_name(enum meanwhile what)
{
    static const char *const name[N_MEANWHILE] = {"alone", "token", "read", "unload", "begin", "commit"};
    return name[what];
}

int beside_start(struct beside *b, int batch, int n_prompt, const struct limits *l, int vocab, struct err *e)
{
    int most = l->max_len - n_prompt, at_once = l->max_seqs < l->max_batch_tokens ? l->max_seqs : l->max_batch_tokens;
    if (batch > at_once)
        return ERR(e, ERR_USAGE, "--batch %d: the model of --beside runs %d sequences at once at most", batch, at_once);
    if (most < 1)
        return ERR(e, ERR_USAGE, "--n-prompt %d: expected fewer than the %d tokens of the model of --beside", n_prompt,
                   l->max_len);
    b->running = true;
    b->newest = -1;
    return traffic_open(&b->traffic, batch, n_prompt, most < MOST_TOKENS ? most : MOST_TOKENS, l, vocab, e);
}

void beside_close(struct beside *b)
{
    traffic_close(&b->traffic);
    memset(b, 0, sizeof *b);
}

int beside_plan(struct beside *b, struct plan *p, struct err *e)
{
    double now = seconds_now();
    if (!traffic_busy(&b->traffic)) {
        b->newest = -1;
        if (traffic_queue(&b->traffic, now, e) != 0)
            return -1;
    }
    traffic_plan(&b->traffic, p, now);
    return 0;
}

/* A step that fed prompts is the beginning of what is measured: all sequences run from it on. */
int beside_accept(struct beside *b, const struct step_result *result, struct err *e)
{
    double now = seconds_now();
    if (result->n_sampled == b->traffic.n_requests) {
        if (b->newest >= 0)
            durations_add(&b->between[b->went_on], now - b->newest);
        b->newest = now;
        b->went_on = MEANWHILE_NOTHING;
    }
    return traffic_accept(&b->traffic, result, now, e);
}

void beside_note(struct beside *b, enum meanwhile what)
{
    b->went_on = what > b->went_on ? what : b->went_on;
}

void beside_forget(struct beside *b)
{
    memset(b->between, 0, sizeof b->between);
}

void beside_add_up(const struct beside *b, enum meanwhile first, enum meanwhile last, struct durations *all)
{
    memset(all, 0, sizeof *all);
    for (int i = (int)first; i <= (int)last; i++)
        durations_merge(all, &b->between[i]);
}
