/* kernels/cuda/step/persistent_one.h - the narrow persistent kernel for 16-bit weights and one token. */
#ifndef STEP_PERSISTENT_ONE_H
#define STEP_PERSISTENT_ONE_H

extern const struct code_kernels code_kernels_one;

#endif
