/* tests/support/fixture.c - see fixture.h. */
#include "tests/support/fixture.h"
#include "partition/checkpoint.h"
#include "rank/world/fatal.h"

#include <stdio.h>

void fixture_open(struct instance *i, struct world *w, const char *name, const struct instance_setup *setup)
{
    char dir[256];
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup own = *setup;
    (void)snprintf(dir, sizeof dir, "tests/parity/fixtures/%s", name);
    if (w->rank == 0 && model_config_read(&m, dir, &e) == 0)
        (void)checkpoint_open(&c, dir, &e);
    fatal_agree(w, &e);
    instance_open(i, w, &m, &c, &own, &e);
}
