/* coordinator/server/rendezvous.c - see rendezvous.h. */
#include "coordinator/server/rendezvous.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "coordinator/server/server.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char client_suffix[] = ".client";

/* The endpoint as others reach it: "all addresses" stands for this host's name. */
static void public_endpoint(const struct server *s, char *text, size_t bytes)
{
    static const char *const any[] = {"tcp://0.0.0.0:", "tcp://[::]:"};
    char host[256] = "localhost";
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(text, bytes, "%s", s->transport.endpoint);
    for (int i = 0; i < 2; i++)
        if (strncmp(s->transport.endpoint, any[i], strlen(any[i])) == 0)
            (void)snprintf(text, bytes, "tcp://%s:%s", host, s->transport.endpoint + strlen(any[i]));
}

static void client_path(const struct server *s, char *path, size_t bytes)
{
    (void)snprintf(path, bytes, "%s%s", s->setup.o->rendezvous, client_suffix);
}

static int write_files(struct server *s, const char *endpoint, struct err *e)
{
    char host[256] = "localhost", keys[PATH_MAX];
    (void)gethostname(host, sizeof host - 1);
    client_path(s, keys, sizeof keys);
    if (s->has_curve && curve_write_client(&s->curve, keys, e) != 0)
        return -1;
    if (s->has_curve)
        files_mark(&s->keys_file, keys);
    json_t *o = json_pack("{s:s, s:s?, s:s?, s:s, s:i, s:s, s:i, s:i, s:i, s:I}", "endpoint", endpoint, "public_key",
                          s->has_curve ? s->curve.public_key : NULL, "client_keys", s->has_curve ? keys : NULL, "model",
                          s->setup.name, "pid", (int)getpid(), "host", host, "ranks", s->setup.n_ranks, "groups",
                          s->setup.n_replicas, "protocol", PROTOCOL_VERSION, "max_message_bytes",
                          (json_int_t)s->setup.o->max_message_bytes);
    int written = files_replace_json(s->setup.o->rendezvous, o, 0644, e);
    json_decref(o);
    if (written == 0)
        files_mark(&s->rendezvous_file, s->setup.o->rendezvous);
    return written;
}

void rendezvous_ready(struct server *s)
{
    char endpoint[TRANSPORT_ENDPOINT + 256];
    struct err e = {0};
    public_endpoint(s, endpoint, sizeof endpoint);
    if (s->setup.o->rendezvous != NULL && write_files(s, endpoint, &e) != 0) {
        log_warn("--rendezvous: %s", e.text);
        server_stop(s, PROTOCOL_UNAVAILABLE, "the server cannot write its rendezvous file");
        return;
    }
    char sets[60] = "";
    if (models_are_many(&s->models)) {
        const struct deploy_setup *d = &s->models.setup.deploy;
        if (s->setup.n_replicas > 1)
            (void)snprintf(sets, sizeof sets, " in %d sets", s->setup.n_replicas);
        log_note("ready: %d model%s in %s at %s, %d rank%s%s; up to %d loaded at once, %.2f GiB on a rank; %.1f s",
                 s->models.n, s->models.n == 1 ? "" : "s", s->setup.name, endpoint, s->setup.n_ranks,
                 s->setup.n_ranks == 1 ? "" : "s", sets, d->n_slots, (double)d->memory / (1024.0 * 1024 * 1024),
                 seconds_since_exec());
        return;
    }
    (void)snprintf(sets, sizeof sets, ",");
    if (s->setup.n_replicas > 1)
        (void)snprintf(sets, sizeof sets, " in %d sets, each with", s->setup.n_replicas);
    log_note("ready: %s at %s, %d rank%s%s contexts of %d tokens, %d sequences at once, %d KV blocks; %.1f s",
             s->setup.name, endpoint, s->setup.n_ranks, s->setup.n_ranks == 1 ? "" : "s", sets,
             replicas_max_len(&s->replicas, 0), s->replicas.replica[0].max_seqs, s->replicas.replica[0].n_blocks,
             seconds_since_exec());
}

void rendezvous_remove(struct server *s)
{
    char path[PATH_MAX];
    if (s->setup.o->rendezvous == NULL)
        return;
    client_path(s, path, sizeof path);
    files_remove_marked(&s->rendezvous_file, s->setup.o->rendezvous);
    files_remove_marked(&s->keys_file, path);
}
