/* kernels/cuda/step/persistent_experts_f16.cu - see persistent_experts_kernels.cuh: activations are float16. */
#include "kernels/cuda/step/persistent_experts_kernels.cuh"

const struct expert_kernels expert_kernels_f16 = {open_expert_kernels<__half>, expert_kernels_patience,
                                                  run_expert_kernel<__half>};
