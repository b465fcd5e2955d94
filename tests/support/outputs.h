/* tests/support/outputs.h - standard output of a program that must succeed, in a test of cases. */
#ifndef TESTS_SUPPORT_OUTPUTS_H
#define TESTS_SUPPORT_OUTPUTS_H

/* Runs lockstep on this number of ranks. The case fails unless its status is 0. The caller frees the text. */
char *case_output(int ranks, const char *const *arguments);

#endif
