/* tests/support/fixture.h - a model of the parity tests, ready to run. */
#ifndef TESTS_SUPPORT_FIXTURE_H
#define TESTS_SUPPORT_FIXTURE_H

#include "rank/instance/instance.h"

/* Opens the fixture of this name; a failure ends the job. Collective over w. */
void fixture_open(struct instance *i, struct world *w, const char *name, const struct instance_setup *setup);

#endif
