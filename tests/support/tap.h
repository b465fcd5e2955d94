/* tests/support/tap.h - results of tests that run under mpirun, one TAP line per case, printed by rank 0. */
#ifndef TESTS_SUPPORT_TAP_H
#define TESTS_SUPPORT_TAP_H

#include <stdbool.h>

/* Collective over MPI_COMM_WORLD: the case passes if `ok` holds on every rank; a rank that failed gives its reason on
 * standard error. All ranks get the verdict, so none leaves the others in a collective. */
bool tap_all(bool ok, const char *reason, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Prints the plan line at the end; returns the exit status: 0 if no case failed. */
int tap_done(void);

#endif
