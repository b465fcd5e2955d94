/* gateway/exchange/request_log.c - see request_log.h. */
#include "gateway/exchange/request_log.h"
#include "base/json.h"
#include "gateway/exchange/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FORWARDED_BYTES 512 /* of X-Forwarded-For, at most */

static int open_file(const char *path, struct err *e)
{
    int fd = strcmp(path, "-") == 0 ? dup(STDOUT_FILENO)
                                    : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0640);
    if (fd < 0)
        return ERR(e, ERR_IO, "--access-log %.200s: cannot open: %s", path,
                   errno == ENXIO ? "the pipe has no reader" : strerror(errno));
    return fd;
}

int request_log_open(struct request_log *l, const char *path, struct err *e)
{
    return path != NULL ? log_writer_open_path(&l->writer, path, open_file, "--access-log", e) : 0;
}

void request_log_close(struct request_log *l)
{
    log_writer_close(&l->writer);
}

uint64_t request_log_lost(const struct request_log *l)
{
    return l->writer != NULL ? log_writer_lost(l->writer) : 0;
}

static void put_time(json_t *o)
{
    struct timespec now;
    struct tm utc;
    char day[32] = "", text[48];
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &utc) != NULL)
        (void)strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(text, sizeof text, "%s.%03ldZ", day, now.tv_nsec / 1000000);
    (void)json_object_set_new(o, "time", json_string(text));
}

static void put_ms(json_t *o, const char *name, double seconds)
{
    if (seconds >= 0)
        (void)json_object_set_new(o, name, json_real((double)(long long)(seconds * 1e6 + 0.5) / 1e3));
}

/* The header may have any bytes and any length. */
static void put_forwarded(json_t *o, const char *text)
{
    char shown[FORWARDED_BYTES];
    if (text == NULL)
        return;
    (void)snprintf(shown, sizeof shown, "%s", text);
    fault_make_utf8(shown);
    (void)json_object_set_new(o, "forwarded_for", json_string(shown));
}

static void put_generate(json_t *o, const struct tally *t)
{
    if (t->model[0] != '\0')
        (void)json_object_set_new(o, "model", json_string(t->model));
    (void)json_object_set_new(o, "prompt_tokens", json_integer(t->prompt_tokens));
    (void)json_object_set_new(o, "completion_tokens", json_integer(t->completion_tokens));
    put_ms(o, "first_token_ms", t->first_token);
    put_ms(o, "queue_ms", t->queue);
    put_ms(o, "compute_ms", t->compute);
    put_ms(o, "gateway_ms", t->upstream >= 0 ? t->total - t->upstream : -1);
}

void request_log_put(struct request_log *l, const struct request_line *line)
{
    const struct tally *t = line->tally;
    if (l->writer == NULL)
        return;
    json_t *o = json_object();
    put_time(o);
    (void)json_object_set_new(o, "client", json_string(line->client));
    put_forwarded(o, line->forwarded_for);
    if (t->key[0] != '\0')
        (void)json_object_set_new(o, "key", json_string(t->key));
    (void)json_object_set_new(o, "method", json_string(line->method));
    (void)json_object_set_new(o, "path", json_string(line->path));
    (void)json_object_set_new(o, "request_id", json_string(line->id));
    (void)json_object_set_new(o, "status", json_integer(t->status));
    if (t->over_limit)
        (void)json_object_set_new(o, "over_limit", json_true());
    if (t->left)
        (void)json_object_set_new(o, "left", json_true());
    (void)json_object_set_new(o, "bytes_in", json_integer((json_int_t)t->bytes_in));
    (void)json_object_set_new(o, "bytes_out", json_integer((json_int_t)t->bytes_out));
    put_ms(o, "total_ms", t->total);
    if (t->is_generate)
        put_generate(o, t);
    char *text = json_text(o, JSON_COMPACT);
    size_t bytes = text != NULL ? strlen(text) : 0;
    json_decref(o);
    if (text != NULL)
        text[bytes] = '\n'; /* replaces the NUL */
    log_writer_put(l->writer, text, bytes + 1);
}
