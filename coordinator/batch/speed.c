/* coordinator/batch/speed.c - see speed.h. */
#include "coordinator/batch/speed.h"

#include <math.h>

void speed_note(struct speed *s, const struct speed_counts *counts, double now)
{
    if (s->n > 0 && now - s->point[(s->n - 1) % SPEED_POINTS].at < (double)SPEED_SECONDS / (SPEED_POINTS - 1))
        return;
    s->point[s->n++ % SPEED_POINTS] = (struct speed_point){now, *counts};
}

struct speed_counts speed_of(const struct speed *s, const struct speed_counts *counts, double now)
{
    uint64_t oldest = s->n > SPEED_POINTS ? s->n - SPEED_POINTS : 0;
    while (oldest + 1 < s->n && now - s->point[oldest % SPEED_POINTS].at > SPEED_SECONDS)
        oldest++;
    const struct speed_point *from = &s->point[oldest % SPEED_POINTS];
    double seconds = s->n > 0 ? now - from->at : 0;
    if (seconds < 1)
        return (struct speed_counts){NAN, NAN, NAN};
    return (struct speed_counts){(counts->requests - from->counts.requests) / seconds,
                                 (counts->prompt_tokens - from->counts.prompt_tokens) / seconds,
                                 (counts->output_tokens - from->counts.output_tokens) / seconds};
}
