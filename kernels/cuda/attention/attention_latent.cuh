/* kernels/cuda/attention/attention_latent.cuh - attention of all heads over one KV head whose keys are its values, as
 * latent attention has it: heads of LATENT_DIM elements, too wide for the other kernels on the tensor cores. Compiled
 * in attention_latent.cu. */
#ifndef ATTENTION_ATTENTION_LATENT_CUH
#define ATTENTION_ATTENTION_LATENT_CUH

#include "kernels/cuda/attention/attention_decode.cuh"

#define LATENT_DIM 576

/* Lets the kernels have as much shared memory as they want. *fits: whether that is at most `most` bytes, what a block
 * can have. */
cudaError_t latent_open(size_t most, bool *fits);

/* a: as the decode kernel wants it, of one KV head, k_cache == v_cache. Enqueued. */
template <typename T>
void latent_launch(struct queue *q, bool early, const attention_args<T> &a, dim3 grid);

#endif
