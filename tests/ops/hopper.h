/* tests/ops/hopper.h - is the tested device a GPU for which Hopper's kernels are written? */
#ifndef TESTS_OPS_HOPPER_H
#define TESTS_OPS_HOPPER_H

#include "tests/ops/check.h"

/* Names are "NVIDIA H100 80GB HBM3", "NVIDIA GH200 480GB". */
static inline bool is_hopper(void)
{
    static const char *const names[] = {" H100", " H20", " H200", " H800", " GH200"};
    char id[100], model[sizeof id];
    if (!backend_is_device())
        return false;
    backend_real_ops()->async->identify(backend_real_queue(), id, model, sizeof model);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strstr(model, names[i]) != NULL)
            return true;
    return false;
}

#endif
