/* kernels/cuda/rope.cu - the rotary embedding's angles. */
#include "kernels/cuda/device.cuh"

/* The frequency of pair j in a sequence of n tokens. */
__device__ static float frequency(const struct rope &rope, int j, int n)
{
    if (rope.growth == ROPE_FIXED || n <= rope.long_from)
        return rope.inv_freq[j];
    if (rope.growth == ROPE_LONG)
        return rope.inv_freq_long[j];
    double dims = rope.dims, factor = rope.factor;
    double stretch = factor * n / rope.long_from - (factor - 1.0);
    double base = rope.theta * pow(stretch, dims / (dims - 2.0));
    return (float)pow(base, -2.0 * j / dims);
}

__global__ void rope_kernel(float *cos_sin, const __grid_constant__ struct rope rope, const int32_t *pos,
                            const int32_t *rope_len)
{
    int t = blockIdx.x, pairs = rope.dims / 2;
    after_previous();
    float *row = cos_sin + (size_t)t * rope.dims;
    for (int j = threadIdx.x; j < pairs; j += blockDim.x) {
        float s, c;
        sincosf((float)pos[t] * frequency(rope, j, rope_len[t]), &s, &c);
        row[j] = c * rope.attention_scaling;
        row[pairs + j] = s * rope.attention_scaling;
    }
}

void cuda_rope_table(struct queue *q, float *cos_sin, const struct rope *rope, const int32_t *pos,
                     const int32_t *rope_len, int n_tokens)
{
    nvtx_range range("rope_table");
    if (n_tokens == 0)
        return;
    launch(q, rope_kernel, dim3((unsigned)n_tokens), dim3(64), 0, cos_sin, *rope, pos, rope_len);
}
