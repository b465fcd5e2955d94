/* coordinator/server/serve_options.h - options of `serve`. */
#ifndef SERVER_SERVE_OPTIONS_H
#define SERVER_SERVE_OPTIONS_H

#include "coordinator/tasks/service_options.h"

#define SERVE_MAX_MODELS 64 /* loaded at once; plans have numbers for so many */

/* Strings are borrowed from argv or the environment. */
struct serve_options {
    struct service_options service;
    const char *endpoint, *curve_clients, *rendezvous, *access_log;
    int64_t max_connections, max_queue, max_queue_per_client, max_priority, max_message_bytes, max_client_backlog,
        drain_seconds, metrics_names;
    bool insecure, curve, access_log_prompts;
    const char *models_dir,
        *pin; /* several models: their folder; names to be loaded at once, with commas between them */
    int64_t model_memory, max_models; /* bytes of a rank; -1: most of what is free */
    const char *models_cache;         /* where archives are unpacked; NULL: nowhere */
    int64_t models_cache_bytes;       /* -1: most of what is free there */
    int64_t host_cache;               /* bytes of each host's memory for files of unloaded models; 0: none */
    double keep_alive;                /* s; 0: for ever */
};

extern const struct opt_rows serve_rows;

#endif
