/* base/environment.h - environment variables that are not options (base/opt_table.h reads those). */
#ifndef BASE_ENVIRONMENT_H
#define BASE_ENVIRONMENT_H

/* A variable that controls a library (NCCL_P2P_DISABLE) or that a launcher sets (SLURM_JOB_ID), read in order to follow
 * it and to name it in messages. NULL: not set. */
const char *environment_value(const char *name);

/* Unless the environment says how OpenMP threads wait, make them spin for some ten microseconds only: with libgomp's
 * default of milliseconds they take the cores from other ranks (measured: 20 tokens/s instead of 500 on two busy
 * cores). libgomp reads this when it is loaded, so the program is executed once more, with the same arguments. Returns
 * if that fails. */
void environment_settle_openmp(char **argv);

#endif
