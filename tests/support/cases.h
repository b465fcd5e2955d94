/* tests/support/cases.h - results of tests that start processes, one TAP line per case. */
#ifndef TESTS_SUPPORT_CASES_H
#define TESTS_SUPPORT_CASES_H

#include <stdbool.h>

void case_begin(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The case fails unless `ok`; the reason is printed then. Returns ok. */
bool case_check(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));

void case_end(void);

/* Reports a case that cannot run here. */
void case_skip(const char *name, const char *reason);

/* Prints the plan line at the end; returns the exit status: 0 if no case failed. */
int cases_done(void);

#endif
