/* gateway/backend/pool.c - see pool.h. Files are polled four times a second: inotify does not see changes by other
 * machines on a shared file system, where jobs write theirs. */
#include "gateway/backend/pool.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/backend/pool_parts.h"
#include "gateway/backend/residence.h"
#include "gateway/backend/waiting.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#define TICK_SECONDS      0.25
#define HEALTH_SECONDS    1
#define MODELS_SECONDS    5
#define SILENCE_SECONDS   30 /* for a backend with a live connection */
#define MESSAGES_A_TURN   512
#define TURN_SECONDS      0.02 /* of messages of one backend per round: large ones take time */
#define HEALTH_ID         "!health"
#define MODELS_ID         "!models"
#define DEFAULT_MAX_BYTES ((size_t)16 << 20)

bool backend_takes(const struct backend *b)
{
    return b->state == BACKEND_READY && !b->retired && !b->connection.gone;
}

const json_t *backend_model(const struct backend *b, const char *model)
{
    const json_t *list = json_object_get(b->models, "models"), *m;
    size_t i;
    json_array_foreach(list, i, m)
    {
        const char *id = json_string_value(json_object_get(m, "id"));
        if (id != NULL && (model[0] == '\0' || strcmp(id, model) == 0))
            return m;
    }
    return NULL;
}

bool backend_is_shared(const struct backend *b)
{
    const json_t *first = json_array_get(json_object_get(b->models, "models"), 0);
    return json_object_get(first, "pinned") != NULL; /* a server of one model does not report it */
}

void pool_refresh(struct pool *p)
{
    for (struct backend *b = p->first; b != NULL; b = b->next)
        b->asked_models = -MODELS_SECONDS;
}

int pool_n_ready(const struct pool *p)
{
    int n = 0;
    for (const struct backend *b = p->first; b != NULL; b = b->next)
        n += backend_takes(b);
    return n;
}

/* The step polls after every round: a readable descriptor of ZeroMQ only wakes the loop. */
static void wake(struct fd_watch *w, uint32_t events)
{
    (void)w;
    (void)events;
}

static void ask_op(struct backend *b, const char *op, const char *id)
{
    struct err e = {0};
    json_t *message = json_pack("{s:s, s:s}", "op", op, "request_id", id);
    (void)connection_send(&b->connection, message, &e);
    json_decref(message);
}

static void ask_health(struct backend *b)
{
    b->asked = b->pool->loop->now;
    ask_op(b, "health", HEALTH_ID);
}

static void set_state(struct backend *b, bool ready)
{
    enum backend_state before = b->state;
    b->state = ready ? BACKEND_READY : BACKEND_DRAINS;
    if (before != b->state)
        log_note("backend %s is %s", b->name, ready ? "ready" : "taking nothing new");
}

static void take_health(struct backend *b, const json_t *reply)
{
    const char *state = json_string_value(json_object_get(reply, "state"));
    b->heard = b->pool->loop->now;
    if (b->models != NULL)
        set_state(b, state != NULL && strcmp(state, "ready") == 0);
}

void backend_refused(struct backend *b)
{
    set_state(b, false);
}

static void ask_models(struct backend *b)
{
    b->asked_models = b->pool->loop->now;
    b->list_asked = b->n_lists == 0 ? b->pool->loop->now : b->list_asked;
    b->n_lists++;
    ask_op(b, "models", MODELS_ID);
}

static void take_models(struct backend *b, json_t *reply)
{
    const json_t *most = json_object_get(reply, "max_message_bytes");
    bool first = b->models == NULL;
    b->n_lists--;
    if (!json_is_array(json_object_get(reply, "models")))
        return; /* an error: ask again */
    json_decref(b->models);
    b->models = json_incref(reply);
    b->max_message_bytes = json_is_integer(most) ? (size_t)json_integer_value(most) : DEFAULT_MAX_BYTES;
    residence_listed(b, b->list_asked);
    if (first)
        ask_health(b);
}

/* A model that was loaded, unloaded or pinned: its state is known before the list is asked for again. */
static void take_model(struct backend *b, const json_t *reply)
{
    json_t *list = json_object_get(b->models, "models"), *model = json_object_get(reply, "model");
    const char *name = json_string_value(json_object_get(model, "id"));
    for (size_t i = 0; name != NULL && i < json_array_size(list); i++) {
        const char *id = json_string_value(json_object_get(json_array_get(list, i), "id"));
        if (id != NULL && strcmp(id, name) == 0)
            (void)json_array_set(list, i, model);
    }
    if (name != NULL)
        residence_told(b, name);
}

static void take_reply(struct backend *b, json_t *reply)
{
    const char *id = json_string_value(json_object_get(reply, "request_id"));
    const char *op = json_string_value(json_object_get(reply, "op"));
    if (id == NULL || (op != NULL && strcmp(op, "cancel") == 0))
        return;
    if (strcmp(id, HEALTH_ID) == 0) {
        take_health(b, reply);
    } else if (strcmp(id, MODELS_ID) == 0) {
        take_models(b, reply);
    } else {
        struct call *c = call_find(b->pool, id);
        take_model(b, reply);
        if (c != NULL && c->backend == b)
            call_reply(b->pool, c, reply);
    }
}

static void unwatch(struct backend *b)
{
    loop_unwatch(b->pool->loop, &b->messages);
    loop_unwatch(b->pool->loop, &b->state_changes);
    connection_drop(&b->connection);
}

static void remove_backend(struct pool *p, struct backend *b)
{
    struct backend **at = &p->first;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    p->n_backends--;
    unwatch(b);
    json_decref(b->models);
    json_decref(b->sent);
    loop_bury(p->loop, b);
}

/* Its descriptors are closed by ZeroMQ, so they are taken out of the loop before. */
static int connect_backend(struct backend *b, struct err *e)
{
    const struct connection_setup setup = {.endpoint = b->is_file ? NULL : b->name,
                                           .rendezvous = b->is_file ? b->name : NULL,
                                           .client_key = b->pool->client_key};
    b->state = BACKEND_CONNECTS;
    b->connection = (struct connection){0};
    if (connection_begin(&b->connection, &setup, e) != 0)
        return -1;
    connection_descriptors(&b->connection, &b->messages.fd, &b->state_changes.fd);
    return loop_watch(b->pool->loop, &b->messages, EPOLLIN, e) == 0
               ? loop_watch(b->pool->loop, &b->state_changes, EPOLLIN, e)
               : -1;
}

static struct backend *add_backend(struct pool *p, const char *name, bool is_file, const struct file_mark *mark)
{
    struct err e = {0};
    struct backend *b = p->n_backends < POOL_MAX_BACKENDS ? calloc(1, sizeof *b) : NULL;
    if (b == NULL) {
        if (!p->said_full)
            log_warn("backend %s is ignored: at most %d are used", name, POOL_MAX_BACKENDS);
        p->said_full = true;
        return NULL;
    }
    *b = (struct backend){.next = p->first,
                          .pool = p,
                          .is_file = is_file,
                          .mark = *mark,
                          .messages = {.fd = -1, .ready = wake},
                          .state_changes = {.fd = -1, .ready = wake},
                          .max_message_bytes = DEFAULT_MAX_BYTES,
                          .heard = p->loop->now};
    (void)snprintf(b->name, sizeof b->name, "%s", name);
    p->first = b;
    p->n_backends++;
    if (connect_backend(b, &e) != 0) {
        b->state = BACKEND_BROKEN;
        log_warn("backend %s: %s", name, e.text);
        unwatch(b);
    }
    return b;
}

/* It hung up, or is silent: its calls fail or are retried elsewhere, and a new connection is tried. */
static void lose_backend(struct backend *b, const char *why)
{
    struct pool *p = b->pool;
    struct err e = {0};
    (b->first != NULL ? log_warn : log_note)("backend %s: %s", b->name, why);
    p->n_lost++;
    b->connection.gone = true; /* prevents its choice */
    while (b->first != NULL)
        call_lost(p, b->first, why);
    unwatch(b);
    json_decref(b->models);
    json_decref(b->sent);
    b->models = b->sent = NULL;
    b->n_lists = 0;
    b->heard = p->loop->now;
    if (b->retired || connect_backend(b, &e) == 0)
        return;
    b->state = BACKEND_BROKEN;
    unwatch(b);
}

static void say_unresolved(struct backend *b)
{
    if (b->said_unresolved || b->connection.host.why[0] == '\0')
        return;
    log_warn("backend %s: %s; the gateway tries again every %d s", b->name, b->connection.host.why, RESOLVE_AGAIN);
    b->said_unresolved = true;
}

/* Handles its next message; true: there may be more. */
static bool hear_backend(struct backend *b)
{
    struct err e = {0};
    json_t *reply = NULL;
    int n = 0;
    double until = seconds_now() + TURN_SECONDS;
    bool was_up = b->connection.up;
    connection_look(&b->connection);
    say_unresolved(b);
    if (!was_up && b->connection.up) {
        b->heard = b->pool->loop->now;
        b->said_unresolved = false;
        ask_models(b);
    }
    for (; n < MESSAGES_A_TURN && seconds_now() < until && (reply = connection_take(&b->connection, &e)) != NULL; n++) {
        take_reply(b, reply);
        json_decref(reply);
    }
    if (e.code != ERR_NONE)
        lose_backend(b, e.text);
    else if (b->connection.gone && n == 0)
        lose_backend(b, "the backend is gone");
    return n > 0;
}

static bool hear_all(struct loop_step *s)
{
    struct pool *p = (struct pool *)((char *)s - offsetof(struct pool, step));
    bool more = false;
    for (struct backend *b = p->first, *next; b != NULL; b = next) {
        next = b->next;
        if (b->state != BACKEND_BROKEN)
            more = hear_backend(b) || more;
        if (b->retired && b->first == NULL)
            remove_backend(p, b);
    }
    return more;
}

static struct backend *find_file(const struct pool *p, const char *path)
{
    struct backend *b = p->first;
    while (b != NULL && (b->retired || !b->is_file || strcmp(b->name, path) != 0))
        b = b->next;
    return b;
}

static bool same_mark(const struct file_mark *a, const struct file_mark *b)
{
    return a->known == b->known && a->device == b->device && a->inode == b->inode &&
           a->written.tv_sec == b->written.tv_sec && a->written.tv_nsec == b->written.tv_nsec;
}

/* A new or replaced file is another job's. */
static void look_at_file(struct pool *p, const char *path)
{
    struct file_mark mark = {0};
    struct backend *b = find_file(p, path);
    files_mark(&mark, path);
    if (b != NULL && !same_mark(&mark, &b->mark))
        b->retired = true;
    if (mark.known && (b == NULL || b->retired))
        (void)add_backend(p, path, true, &mark);
}

static bool is_rendezvous_name(const char *name)
{
    size_t n = strlen(name);
    return name[0] != '.' && n > 5 && strcmp(name + n - 5, ".json") == 0;
}

static void look_at_folder(struct pool *p, const char *folder)
{
    char path[512];
    DIR *d = opendir(folder);
    for (struct dirent *entry; d != NULL && (entry = readdir(d)) != NULL;)
        if (is_rendezvous_name(entry->d_name) &&
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < (int)sizeof path)
            look_at_file(p, path);
    if (d != NULL)
        (void)closedir(d);
}

static bool is_endpoint(const char *source)
{
    return strncmp(source, "tcp://", 6) == 0 || strncmp(source, "ipc://", 6) == 0;
}

static void look_at_sources(struct pool *p)
{
    struct stat s;
    for (int i = 0; i < p->n_sources; i++) {
        if (is_endpoint(p->source[i]))
            continue;
        if (stat(p->source[i], &s) == 0 && S_ISDIR(s.st_mode))
            look_at_folder(p, p->source[i]);
        else
            look_at_file(p, p->source[i]);
    }
    for (struct backend *b = p->first; b != NULL; b = b->next) /* files whose folders are gone */
        if (b->is_file && !b->retired && stat(b->name, &s) != 0)
            b->retired = true;
}

static void come(struct due *d)
{
    struct pool *p = (struct pool *)((char *)d - offsetof(struct pool, tick));
    look_at_sources(p);
    for (struct backend *b = p->first; b != NULL; b = b->next) {
        double now = p->loop->now;
        if (b->state == BACKEND_BROKEN || !b->connection.up)
            continue;
        if (now - b->heard > SILENCE_SECONDS)
            lose_backend(b, "the backend no longer answers");
        else if (now - b->asked_models >= MODELS_SECONDS)
            ask_models(b);
        else if (b->models != NULL && now - b->asked >= HEALTH_SECONDS)
            ask_health(b);
    }
    waiting_watch(p);
    due_set(p->loop, &p->ticks, &p->tick);
}

int pool_open(struct pool *p, struct loop *l, const char *const *sources, int n, const char *client_key, struct err *e)
{
    const struct file_mark none = {0};
    if (n > POOL_MAX_SOURCES)
        return ERR(e, ERR_USAGE, "--backend: found %d, at most %d are accepted", n, POOL_MAX_SOURCES);
    p->loop = l;
    p->client_key = client_key;
    p->n_sources = n;
    p->was_ready = l->now;
    p->step = (struct loop_step){.run = hear_all};
    p->ticks = (struct due_list){.seconds = TICK_SECONDS, .come = come};
    loop_add_step(l, &p->step);
    loop_add_list(l, &p->ticks);
    for (int i = 0; i < n; i++) {
        p->source[i] = sources[i];
        if (is_endpoint(sources[i]) && add_backend(p, sources[i], false, &none)->state == BACKEND_BROKEN)
            return ERR(e, ERR_USAGE, "--backend %s: cannot connect to it", sources[i]);
    }
    come(&p->tick);
    return 0;
}

void pool_close(struct pool *p)
{
    while (p->first != NULL) {
        struct backend *b = p->first;
        while (b->first != NULL)
            call_cancel(b->first);
        remove_backend(p, b);
    }
}
