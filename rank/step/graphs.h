/* rank/step/graphs.h - decode steps recorded at start or at their second run: one graph for each of a series of batch
 * sizes, in the measured faster one of the two ways to run a step. A batch between two sizes runs as the larger one,
 * the rest of it empty. */
#ifndef STEP_GRAPHS_H
#define STEP_GRAPHS_H

#include "base/choices.h"
#include "rank/step/engine.h"

/* Run every size once, record it, and choose; with `ways` only sizes without measurements are run (see engine_open).
 * Data of sequences is not touched. Does nothing without ops->async. Collective; a failure ends the job in here. */
int graphs_open(struct engine *g, enum step_choice choice, struct step_ways *ways, struct err *e);
void graphs_close(struct engine *g);

/* The graphs for a decode step of this many sequences, which may not be recorded yet; NULL: none. */
struct decode_graph *graphs_find(const struct engine *g, int n_seqs, enum decode_kind kind);

/* "decode steps: one persistent operation for 1 to 4, separate operations for 5 to 64 sequences". decode[n]:
 * ascending. */
void graphs_summary(char *text, size_t bytes, const struct decode_graph *decode, int n);

/* Record to->n_tokens tokens in the way that to->persistent says, with the memory of that flight. */
void graphs_record(struct engine *g, struct decode_graph *to, int flight);

/* Forget the graphs that have the clocks of a profile. No step may be under way. */
void graphs_drop_profiled(struct engine *g);

#endif
