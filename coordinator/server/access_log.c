/* coordinator/server/access_log.c - see access_log.h. */
#include "coordinator/server/access_log.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PROMPT_BYTES 4096 /* of a prompt, at most */

/* Opened so that nothing waits, also not for somebody who reads a pipe. With prompts in it a file, or a
 * pipe, is its owner's alone. */
static int open_file(const char *path, bool with_prompts, struct err *e)
{
    struct stat s;
    int fd = strcmp(path, "-") == 0
                 ? dup(STDOUT_FILENO)
                 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, with_prompts ? 0600 : 0640);
    if (fd < 0)
        return ERR(e, ERR_IO, "--access-log %.200s: cannot open: %s", path,
                   errno == ENXIO ? "nobody reads this pipe" : strerror(errno));
    if (with_prompts && fstat(fd, &s) == 0 && (S_ISREG(s.st_mode) || S_ISFIFO(s.st_mode)) && (s.st_mode & 077) != 0 &&
        strcmp(path, "-") != 0) {
        (void)close(fd);
        return ERR(e, ERR_USAGE, "--access-log %.200s: found mode %04o, expected 0600: it gets prompts", path,
                   (unsigned)s.st_mode & 07777);
    }
    return fd;
}

int access_log_open(struct access_log *l, const char *path, bool with_prompts, struct err *e)
{
    *l = (struct access_log){.with_prompts = with_prompts};
    int fd = path != NULL ? open_file(path, with_prompts, e) : -1;
    return fd >= 0 ? log_writer_open(&l->writer, fd, "--access-log", e) : path == NULL ? 0 : -1;
}

void access_log_close(struct access_log *l)
{
    log_writer_close(&l->writer);
}

uint64_t access_log_lost(const struct access_log *l)
{
    return l->writer != NULL ? log_writer_lost(l->writer) : 0;
}

static json_t *milliseconds(double seconds)
{
    return json_real((double)(long long)(seconds * 1e6 + 0.5) / 1e3);
}

/* The number of its connection. */
static json_t *client_name(const struct peer *p)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)p->number);
    return json_string(text);
}

static void add_generate(json_t *o, const struct job *j, const struct outcome *out)
{
    const struct protocol_generate *g = &j->message.generate;
    (void)json_object_set_new(o, "stream", json_boolean(g->stream));
    (void)json_object_set_new(o, "prompt_tokens", json_integer(out->n_prompt));
    (void)json_object_set_new(o, "cached_tokens", json_integer(out->n_cached));
    (void)json_object_set_new(o, "completion_tokens", json_integer(out->n_output));
    (void)json_object_set_new(o, "first_token_ms", milliseconds(out->first_token));
    (void)json_object_set_new(o, "queue_ms", milliseconds(out->time.queue));
    (void)json_object_set_new(o, "prefill_ms", milliseconds(out->time.prefill));
    (void)json_object_set_new(o, "decode_ms", milliseconds(out->time.decode));
    (void)json_object_set_new(o, "overhead_ms", milliseconds(out->time.overhead));
}

static void add_prompts(json_t *o, const struct protocol_generate *g)
{
    json_t *list = json_array();
    for (int i = 0; i < (g->prompt != NULL ? g->n_prompts : g->n_turns); i++) {
        const char *text = g->prompt != NULL ? g->prompt[i].text : g->turn[i].content;
        size_t all = g->prompt != NULL ? g->prompt[i].bytes : g->turn[i].bytes;
        size_t bytes = all < PROMPT_BYTES ? all : PROMPT_BYTES;
        while (text != NULL && bytes > 0 && bytes < all && ((unsigned char)text[bytes] & 0xC0) == 0x80)
            bytes--; /* not within a character */
        json_t *shown = text == NULL ? json_null() : json_stringn(text, bytes);
        (void)json_array_append_new(list, shown != NULL ? shown : json_string("(no UTF-8)"));
    }
    (void)json_object_set_new(o, "prompts", list);
}

static void time_now(char *text, size_t bytes)
{
    struct timespec now;
    struct tm utc;
    char day[32] = "";
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &utc) != NULL)
        (void)strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(text, bytes, "%s.%03ldZ", day, now.tv_nsec / 1000000);
}

void access_log_write(struct access_log *l, const struct job *j, const struct outcome *out)
{
    char now[48];
    if (l->writer == NULL)
        return;
    time_now(now, sizeof now);
    json_t *o = json_object();
    (void)json_object_set_new(o, "time", json_string(now));
    if (j->client != NULL)
        (void)json_object_set_new(o, "client", client_name(&j->client->peer));
    (void)json_object_set_new(o, "op", json_string(protocol_op_name(j->message.op)));
    if (j->request_id[0] != '\0')
        (void)json_object_set_new(o, "request_id", json_string(j->request_id));
    (void)json_object_set_new(o, "code", json_integer(out->code));
    if (j->error.code != 0 && j->error.field[0] != '\0')
        (void)json_object_set_new(o, "field", json_string(j->error.field));
    (void)json_object_set_new(o, "message_bytes", json_integer((json_int_t)j->message_bytes));
    (void)json_object_set_new(o, "total_ms", milliseconds(out->time.total));
    if (j->message.op == PROTOCOL_GENERATE)
        add_generate(o, j, out);
    if (l->with_prompts && j->parsed && j->message.op == PROTOCOL_GENERATE)
        add_prompts(o, &j->message.generate);
    char *line = json_text(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
    size_t bytes = line != NULL ? strlen(line) : 0;
    json_decref(o);
    if (line != NULL)
        line[bytes] = '\n'; /* in place of the NUL */
    log_writer_put(l->writer, line, bytes + 1);
}
