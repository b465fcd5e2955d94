/* coordinator/schedule/step_model.c - see step_model.h. */
#include "coordinator/schedule/step_model.h"

#include <math.h>

#define KEPT   0.98 /* decay of the sums per step of the kind: the last 50 count most */
#define ROUNDS 8    /* iterations of the fit after every step, from the previous result */
#define UP \
    1.05 /* growth of the margin after a step that took longer; 49 others undo it, so one step in 50
                         takes longer */
#define DOWN     (1 / 49.0)
#define MOST     4  /* margin */
#define FEW      32 /* tokens, before any prompt was measured */
#define IN_TILES 64 /* granularity of prompt tokens: kernels compute whole tiles */

/* In this order the fit attributes time that it cannot separate: the first terms get all of it, so that prompts seem
 * too slow rather than too fast. */
static void terms_of(const struct step_work *work, double term[STEP_TERMS])
{
    term[0] = work->tokens;
    term[1] = work->pairs;
    term[2] = work->rows;
    term[3] = work->keys;
    term[4] = 1;
}

static double cost_of(const struct step_model *m, const struct step_work *work)
{
    double term[STEP_TERMS], sum = 0;
    terms_of(work, term);
    for (int i = 0; i < STEP_TERMS; i++)
        sum += m->cost[i] * term[i];
    return sum;
}

static void add_to_sums(struct step_sums *sums, const double term[STEP_TERMS], double expected, double seconds)
{
    double whole = fmax(expected, seconds), weight = 1 / (whole * whole);
    for (int i = 0; i < STEP_TERMS; i++) {
        for (int k = 0; k < STEP_TERMS; k++)
            sums->product[i][k] = KEPT * sums->product[i][k] + weight * term[i] * term[k];
        sums->time[i] = KEPT * sums->time[i] + weight * term[i] * seconds;
    }
}

/* Coordinate descent: each cost in turn gets its best nonnegative value given the others. */
static void fit(struct step_model *m)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < STEP_TERMS; i++) {
            double error = m->sums[0].time[i] + m->sums[1].time[i];
            double square = m->sums[0].product[i][i] + m->sums[1].product[i][i];
            for (int k = 0; k < STEP_TERMS; k++)
                error -= (m->sums[0].product[i][k] + m->sums[1].product[i][k]) * m->cost[k];
            if (square > 0)
                m->cost[i] = fmax(0, m->cost[i] + error / square);
        }
}

static double margin_of(const struct step_model *m)
{
    return m->margin > 0 ? m->margin : 1;
}

static void judge(struct step_model *m, double expected, double seconds)
{
    double margin = margin_of(m);
    margin *= seconds > margin * expected ? UP : pow(UP, -DOWN);
    m->margin = fmin(fmax(margin, 1), MOST);
}

void step_model_add(struct step_model *m, const struct step_work *work, bool bounded, double seconds)
{
    double term[STEP_TERMS], expected = cost_of(m, work);
    bool prompts = work->tokens > 0;
    if (!(seconds > 0))
        return;
    if (bounded && prompts && m->n_with_prompts > 0)
        judge(m, expected, seconds);
    terms_of(work, term);
    /* After a delay of the host the results of two steps arrive together, and the second one seems to have taken no
     * time. */
    seconds = fmax(seconds, expected / 2);
    add_to_sums(&m->sums[prompts], term, expected, seconds);
    m->n_with_prompts += prompts;
    fit(m);
}

double step_model_seconds(const struct step_model *m, const struct step_work *work)
{
    return margin_of(m) * cost_of(m, work);
}

struct step_work step_work_with(const struct step_work *work, int pos, int n)
{
    struct step_work sum = *work;
    sum.tokens += n;
    sum.pairs += (double)n * (pos + 0.5 * (n + 1));
    return sum;
}

int step_model_fit(const struct step_model *m, const struct step_work *work, int pos, int n, double seconds)
{
    int low = 0, high = n;
    if (m->n_with_prompts == 0)
        return n < FEW ? n : FEW;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        struct step_work with = step_work_with(work, pos, middle);
        if (step_model_seconds(m, &with) <= seconds)
            low = middle;
        else
            high = middle - 1;
    }
    return low < n && low > IN_TILES ? low - low % IN_TILES : low;
}
