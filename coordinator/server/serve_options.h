/* coordinator/server/serve_options.h - options of `serve`. */
#ifndef SERVER_SERVE_OPTIONS_H
#define SERVER_SERVE_OPTIONS_H

#include "coordinator/models/models_options.h"
#include "coordinator/tasks/service_options.h"

/* Strings are borrowed from argv or the environment. */
struct serve_options {
    struct service_options service;
    const char *endpoint, *curve_clients, *rendezvous, *access_log;
    int64_t max_connections, max_queue, max_queue_per_client, max_queue_per_party, max_priority, max_message_bytes,
        max_client_backlog, drain_seconds, metrics_names;
    bool insecure, curve, access_log_prompts;
    struct models_options models;
    const char *pin;   /* names of models to be loaded at once, with commas between them */
    double keep_alive; /* s; 0: forever */
};

extern const struct opt_rows serve_rows;

#endif
