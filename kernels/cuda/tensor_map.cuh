/* kernels/cuda/tensor_map.cuh - encodes tensor maps, which describe arrays to box copies, through the driver. Host
 * only */
#ifndef KERNELS_CUDA_TENSOR_MAP_CUH
#define KERNELS_CUDA_TENSOR_MAP_CUH

#include "kernels/cuda/device.cuh"

#include <cudaTypedefs.h>

static inline PFN_cuTensorMapEncodeTiled_v12000 find_encoder(struct queue *q)
{
    PFN_cuTensorMapEncodeTiled_v12000 encode = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    CUDA_TRY(q, cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault,
                                                 &found));
#else
    CUDA_TRY(q, cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", (void **)&encode, cudaEnableDefault, &found));
#endif
    if (found != cudaDriverEntryPointSuccess || encode == nullptr)
        ERR(&q->err, ERR_UNSUPPORTED, "the driver has no cuTensorMapEncodeTiled");
    return encode;
}

#endif
