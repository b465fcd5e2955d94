/* kernels/cuda/ops_cuda.c - the table of the GPU's operations. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/inputs.h"
#include "kernels/cuda/persistent_any.h"

enum dtype cuda_act_type(enum dtype weights)
{
    return weights;
}

static const struct async_ops async = {
    .identify = cuda_identify,
    .peer_link = cuda_peer_link,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .host_register = cuda_host_register,
    .host_unregister = cuda_host_unregister,
    .upload_aside = cuda_upload_aside,
    .begin_capture = cuda_begin_capture,
    .end_capture = cuda_end_capture,
    .launch_graph = cuda_launch_graph,
    .free_graph = cuda_free_graph,
    .mark = cuda_mark,
    .passed = cuda_passed,
    .wait_mark = cuda_wait_mark,
    .open_stamps = cuda_open_stamps,
    .close_stamps = cuda_close_stamps,
    .stamp = cuda_stamp,
    .read_stamps = cuda_read_stamps,
    .range_begin = cuda_range_begin,
    .range_end = cuda_range_end,
};

static const struct peer_ops peer = {
    .share = cuda_peer_share,
    .connect = cuda_peer_connect,
    .disconnect = cuda_peer_disconnect,
    .refusal = cuda_peer_refusal,
    .open = cuda_peer_open,
    .close = cuda_peer_close,
    .memory = cuda_peer_memory,
    .attach = cuda_peer_attach,
    .sum = cuda_peer_sum,
    .takes_columns = cuda_peer_takes_columns,
    .gather_columns = cuda_peer_gather_columns,
};

static const struct persistent_ops persistent = {
    .refusal = cuda_any_refusal,
    .sums_bytes = cuda_persistent_sums_bytes,
    .open = cuda_any_open,
    .close = cuda_any_close,
    .max_tokens = cuda_any_max_tokens,
    .memory = cuda_persistent_memory,
    .attach = cuda_any_attach,
    .run = cuda_any_run,
};

const struct input_ops input_ops_cuda = {
    .refusal = cuda_inputs_refusal,
    .rows_as_they_are = CUDA_INPUTS_AS_THEY_ARE,
    .activate = cuda_inputs_activate,
    .norm = cuda_inputs_norm,
};

const struct ops ops_cuda = {
    .name = "cuda",
    .async = &async,
    .peer = &peer,
    .persistent = &persistent,
    .inputs = &input_ops_cuda,
    .shares_host_memory = false,
    .max_head_dim = CUDA_MAX_HEAD_DIM,
#define DEVICE(result, name, parameters)             .name = cuda_##name,
#define STEP(phase, name, parameters, arguments)     .name = cuda_##name,
#define OPTIONAL(phase, name, parameters, arguments) .name = cuda_##name,
#include "kernels/op_list.h"
};
