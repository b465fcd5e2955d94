/* coordinator/server/access_log.c - see access_log.h. */
#include "coordinator/server/access_log.h"
#include "base/json.h"
#include "protocol/reply_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PROMPT_BYTES  4096                /* of a prompt, at most */
#define PROMPTS_BYTES ((size_t)128 << 10) /* of all prompts of a message: even escaped far less than the queue holds */
#define ID_BYTES      8                   /* bytes counted per token id */

/* Opened without blocking, also on a pipe without a reader. A file or pipe with prompts is accessible to its owner
 * only. */
static int open_file(const char *path, bool with_prompts, struct err *e)
{
    struct stat s;
    int fd = strcmp(path, "-") == 0
                 ? dup(STDOUT_FILENO)
                 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, with_prompts ? 0600 : 0640);
    if (fd < 0)
        return ERR(e, ERR_IO, "--access-log %.200s: cannot open: %s", path,
                   errno == ENXIO ? "the pipe has no reader" : strerror(errno));
    if (with_prompts && fstat(fd, &s) == 0 && (S_ISREG(s.st_mode) || S_ISFIFO(s.st_mode)) && (s.st_mode & 077) != 0 &&
        strcmp(path, "-") != 0) {
        (void)close(fd);
        return ERR(e, ERR_USAGE, "--access-log %.200s: found mode %04o, expected 0600: it gets prompts", path,
                   (unsigned)s.st_mode & 07777);
    }
    return fd;
}

static int open_plain(const char *path, struct err *e)
{
    return open_file(path, false, e);
}

static int open_secret(const char *path, struct err *e)
{
    return open_file(path, true, e);
}

int access_log_open(struct access_log *l, const char *path, bool with_prompts, struct err *e)
{
    *l = (struct access_log){.with_prompts = with_prompts};
    if (path == NULL)
        return 0;
    return log_writer_open_path(&l->writer, path, with_prompts ? open_secret : open_plain, "--access-log", e);
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
static json_t *client_name(const struct channel_name *p)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)p->number);
    return json_string(text);
}

static void add_generate(json_t *o, const struct task *task, const struct outcome *out)
{
    const struct protocol_generate *g = &task->message.generate;
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

/* The first `most` bytes of a text, without a partial character at the end. */
static size_t whole_characters(const char *text, size_t bytes, size_t most)
{
    size_t n = bytes < most ? bytes : most;
    while (n > 0 && n < bytes && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    return n;
}

/* The beginning of a prompt in its original form, text or ids. Returns the bytes counted for it. */
static size_t add_prompt(json_t *list, const struct protocol_prompt *p, size_t room)
{
    size_t most = room < PROMPT_BYTES ? room : PROMPT_BYTES, bytes = 0;
    if (p->text != NULL) {
        bytes = whole_characters(p->text, p->bytes, most);
        (void)json_array_append_new(list, reply_string(p->text, bytes));
        return bytes;
    }
    json_t *ids = json_array();
    for (size_t i = 0; i < p->n_ids && bytes + ID_BYTES <= most; i++, bytes += ID_BYTES)
        (void)json_array_append_new(ids, json_integer(p->id[i]));
    (void)json_array_append_new(list, ids);
    return bytes;
}

/* A truncation is visible: n_prompts counts all prompts, prompt_lengths has the full length (bytes, or ids) of each
 * that is here. */
static void add_prompts(json_t *o, const struct protocol_generate *g)
{
    json_t *list = json_array(), *lengths = json_array();
    bool is_chat = g->prompt == NULL;
    int n = is_chat ? g->n_turns : g->n_prompts;
    size_t room = PROMPTS_BYTES;
    for (int i = 0; i < n && room >= ID_BYTES; i++) {
        const struct protocol_prompt p =
            is_chat ? (struct protocol_prompt){.text = g->turn[i].content, .bytes = g->turn[i].bytes} : g->prompt[i];
        room -= add_prompt(list, &p, room);
        (void)json_array_append_new(lengths, json_integer((json_int_t)(p.text != NULL ? p.bytes : p.n_ids)));
    }
    (void)json_object_set_new(o, "prompts", list);
    (void)json_object_set_new(o, "prompt_lengths", lengths);
    (void)json_object_set_new(o, "n_prompts", json_integer(n));
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

void access_log_write(struct access_log *l, const struct task *task, const struct outcome *out)
{
    char now[48];
    if (l->writer == NULL)
        return;
    time_now(now, sizeof now);
    json_t *o = json_object();
    (void)json_object_set_new(o, "time", json_string(now));
    if (task->ticket.client != NULL)
        (void)json_object_set_new(o, "client", client_name(&task->ticket.client->channel));
    if (task->party != 0 && task->ticket.party != NULL)
        (void)json_object_set_new(o, "on_behalf_of", json_string(task->ticket.party->name));
    (void)json_object_set_new(o, "op", json_string(protocol_op_name(task->message.op)));
    if (task->request_id[0] != '\0')
        (void)json_object_set_new(o, "request_id", json_string(task->request_id));
    (void)json_object_set_new(o, "code", json_integer(out->code));
    if (task->error.code != 0 && task->error.field[0] != '\0')
        (void)json_object_set_new(o, "field", json_string(task->error.field));
    (void)json_object_set_new(o, "message_bytes", json_integer((json_int_t)task->message_bytes));
    (void)json_object_set_new(o, "total_ms", milliseconds(out->time.total));
    if (task->message.op == PROTOCOL_GENERATE)
        add_generate(o, task, out);
    if (l->with_prompts && task->parsed && task->message.op == PROTOCOL_GENERATE)
        add_prompts(o, &task->message.generate);
    char *line = json_text(o, JSON_COMPACT);
    size_t bytes = line != NULL ? strlen(line) : 0;
    json_decref(o);
    if (line != NULL)
        line[bytes] = '\n'; /* in place of the NUL */
    log_writer_put(l->writer, line, bytes + 1);
}
