/* plan/load_phases.c - see load_phases.h. */
#include "plan/load_phases.h"

const char *load_phase_name(enum load_phase phase)
{
    static const char *const name[N_LOAD_PHASES] = {"open",   "begin",  "memory", "read",  "upload",
                                                    "commit", "choose", "record", "warmup"};
    return name[phase];
}
