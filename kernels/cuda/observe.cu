/* kernels/cuda/observe.cu - clocks in the queue, and ranges on a profiler's timeline. */
#include "kernels/cuda/device.cuh"

#include <stdlib.h>

int cuda_open_stamps(struct queue *q, int n)
{
    struct cuda_state *s = cuda_state(q);
    for (int set = 0; set < 2; set++) {
        s->stamp[set] = (void **)err_calloc(&q->err, (size_t)n, sizeof *s->stamp[set], "clocks");
        for (int i = 0; s->stamp[set] != NULL && i < n; i++) {
            cudaEvent_t event = NULL;
            CUDA_TRY(q, cudaEventCreateWithFlags(&event, cudaEventDefault));
            s->stamp[set][i] = event;
        }
    }
    s->n_stamps = n;
    return q->err.code == ERR_NONE ? 0 : -1;
}

void cuda_close_stamps(struct queue *q)
{
    struct cuda_state *s = cuda_state(q);
    for (int set = 0; set < 2; set++) {
        for (int i = 0; s->stamp[set] != NULL && i < s->n_stamps; i++)
            if (s->stamp[set][i] != NULL)
                CUDA_TRY(q, cudaEventDestroy((cudaEvent_t)s->stamp[set][i]));
        free(s->stamp[set]);
        s->stamp[set] = NULL;
    }
    s->n_stamps = 0;
}

/* While recording, only an external event becomes a node that records the time at every launch; otherwise that flag is
 * refused. */
void cuda_stamp(struct queue *q, int set, int i)
{
    cudaEvent_t event = (cudaEvent_t)cuda_state(q)->stamp[set][i];
    CUDA_TRY(q, cudaEventRecordWithFlags(event, cuda_stream(q),
                                         cuda_state(q)->recording ? cudaEventRecordExternal : cudaEventRecordDefault));
}

void cuda_read_stamps(struct queue *q, int set, int n, double *seconds)
{
    void *const *event = cuda_state(q)->stamp[set];
    for (int i = 0; i + 1 < n; i++) {
        float ms = 0;
        CUDA_TRY(q, cudaEventElapsedTime(&ms, (cudaEvent_t)event[i], (cudaEvent_t)event[i + 1]));
        seconds[i] = 1e-3 * (double)ms;
    }
}

void cuda_range_begin(const char *name, int64_t number)
{
    nvtxEventAttributes_t range = {};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = name;
    range.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    range.payload.llValue = number;
    nvtxRangePushEx(&range);
}

void cuda_range_end(void)
{
    nvtxRangePop();
}
