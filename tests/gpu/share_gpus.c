/* tests/gpu/share_gpus.c - preloaded into ranks that outnumber the GPUs, in front of the CUDA runtime's functions that
 * name a device: $SHARE_GPUS devices appear to exist, several of which are the same GPU, in turn. The driver gives
 * ranks that share a GPU slices of time (milliseconds), so the data that they wait for arrives, but late: this shows
 * the results of 3 and 4 ranks on one GPU, not their speed. NCCL, which has its own copy of the runtime, refuses ranks
 * of one GPU within a host: it is told that they are on different hosts, and its messages use sockets. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEXT_(f) ((__typeof__(&(f)))dlsym(RTLD_NEXT, #f))
#define NEXT(f)  NEXT_(f) /* expands names that the runtime's headers redefine */

static int n_real(void)
{
    int n = 0;
    return NEXT(cudaGetDeviceCount)(&n) == cudaSuccess && n > 0 ? n : 1;
}

static int n_seeming(void)
{
    const char *text = getenv("SHARE_GPUS");
    return text != NULL ? atoi(text) : n_real();
}

cudaError_t cudaGetDeviceCount(int *n)
{
    cudaError_t rc = NEXT(cudaGetDeviceCount)(n);
    if (rc == cudaSuccess && *n > 0)
        *n = n_seeming();
    return rc;
}

cudaError_t cudaSetDevice(int device)
{
    const char *rank = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    char host[32];
    (void)snprintf(host, sizeof host, "host-%d", (rank != NULL ? atoi(rank) : 0) / n_real());
    (void)setenv("NCCL_HOSTID", host, 1);
    (void)setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    return NEXT(cudaSetDevice)(device % n_real());
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    return NEXT(cudaDeviceGetAttribute)(value, attribute, device % n_real());
}

/* The first bytes of the UUID identify the device: ranks compare them. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    cudaError_t rc = NEXT(cudaGetDeviceProperties)(properties, device % n_real());
    if (rc == cudaSuccess)
        properties->uuid.bytes[0] ^= (char)(device / n_real());
    return rc;
}

/* The address' last digit, the device's function, is 0 for a GPU. */
cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device)
{
    cudaError_t rc = NEXT(cudaDeviceGetPCIBusId)(id, bytes, device % n_real());
    if (rc == cudaSuccess)
        id[strlen(id) - 1] = (char)('0' + device / n_real());
    return rc;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id)
{
    char real[64];
    (void)snprintf(real, sizeof real, "%s", id);
    size_t n = strlen(real);
    int copy = n > 0 ? real[n - 1] - '0' : 0;
    if (n > 0)
        real[n - 1] = '0';
    cudaError_t rc = NEXT(cudaDeviceGetByPCIBusId)(device, real);
    if (rc == cudaSuccess)
        *device += copy * n_real();
    return rc;
}

cudaError_t cudaDeviceCanAccessPeer(int *reaches, int device, int peer)
{
    *reaches = 1;
    return device % n_real() == peer % n_real()
               ? cudaSuccess
               : NEXT(cudaDeviceCanAccessPeer)(reaches, device % n_real(), peer % n_real());
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int device, int peer)
{
    *value = 1;
    return device % n_real() == peer % n_real()
               ? cudaSuccess
               : NEXT(cudaDeviceGetP2PAttribute)(value, attribute, device % n_real(), peer % n_real());
}

/* Each of them gets an equal part. */
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all)
{
    cudaError_t rc = NEXT(cudaMemGetInfo)(free_bytes, all);
    size_t sharers = (size_t)((n_seeming() + n_real() - 1) / n_real());
    if (rc == cudaSuccess) {
        *free_bytes /= sharers;
        *all /= sharers;
    }
    return rc;
}
