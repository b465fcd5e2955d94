/* kernels/cuda/attention/attention_latent.cuh - attention of all heads over one KV head whose keys are also its values,
 * as in latent attention: heads of LATENT_DIM elements, too wide for the other tensor-core kernels. Compiled in
 * attention_latent.cu. */
#ifndef ATTENTION_ATTENTION_LATENT_CUH
#define ATTENTION_ATTENTION_LATENT_CUH

#include "kernels/cuda/attention/attention_decode.cuh"

#define LATENT_DIM        576
#define LATENT_MIN_BLOCKS 8 /* of the cache in a part */

/* Lets the kernels use as much shared memory as they need. *fits: whether that is at most `most` bytes, the limit of a
 * block. */
cudaError_t latent_open(size_t most, bool *fits);

/* a: as for the decode kernel, with one KV head and k_cache == v_cache. Enqueued. */
template <typename T>
void latent_launch(struct queue *q, bool early, const attention_args<T> &a, dim3 grid);

#endif
