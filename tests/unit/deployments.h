/* tests/unit/deployments.h - what holds for a set of ranks and its models after every event, for random schedules. */
#ifndef TESTS_UNIT_DEPLOYMENTS_H
#define TESTS_UNIT_DEPLOYMENTS_H

#include "coordinator/deploy/deploy.h"
#include "tests/unit/unit.h"

#define GIB ((int64_t)1 << 30)

/* users: how many clients use each of the models. n_open: loads under way. */
static inline void deployments_check(const struct deploy *d, const int *users, int n_open)
{
    int64_t used = 0;
    int n_resident = 0, units = 0;
    for (int i = 0; i < d->setup.n_models; i++) {
        const struct deployment *m = &d->model[i];
        assert_int_equal(m->n_users, users[i]);
        assert_true(m->n_users == 0 || m->state == DEPLOY_READY);
        assert_true(m->n_waiters == 0 || (m->state != DEPLOY_KNOWN && m->state != DEPLOY_FAILED));
        for (int k = 0; k < i; k++)
            assert_true(m->slot < 0 || m->slot != d->model[k].slot);
        used += m->slot >= 0 ? m->bytes : 0;
        units += m->slot >= 0 ? m->units : 0;
        n_resident += m->slot >= 0;
    }
    assert_true(used == d->used && used <= d->setup.memory);
    assert_true(units == d->used_units && units <= d->setup.units);
    assert_true(n_resident == d->n_resident && n_resident <= d->setup.n_slots);
    assert_true(n_open <= 1);
}

#endif
