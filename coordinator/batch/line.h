/* coordinator/batch/line.h - one line of the input: a task for the workers and the engine, and the identity of its
 * result. Lines of the OpenAI batch API {"custom_id", "method", "url", "body"}, or plain objects: what docs/protocol.md
 * calls a generate, with "id". */
#ifndef BATCH_LINE_H
#define BATCH_LINE_H

#include "coordinator/batch/input.h"
#include "coordinator/tasks/task.h"

#define LINE_MAX_ID_BYTES 512

struct line {
    struct task *task;   /* owned; its `owner` is the line */
    int file;            /* index of its file in struct inputs */
    int64_t number, end; /* as in struct input_line */
    size_t bytes;        /* bytes of its text, for the bound on lines under way */
    char *id;            /* owned; FILE:LINE if the line has none of its own */
    bool id_is_number;
    bool nameless;    /* a valid object without an id: only FILE:LINE identifies its result */
    bool in_body;     /* the request is a member of the line, "body" */
    bool chat;        /* the result is a chat's */
    char *text;       /* owned; [bytes] until the model is known; NULL: the line has been checked */
    char *model_name; /* owned; the name in a line of several models; NULL: none */
    int model;        /* the model's number, with several models */

    /* Used by the runner while the engine has the line. */
    struct line *previous, *next;
    bool withdrawn;     /* the engine was told to return it unless it has begun */
    bool asks, entered; /* several models: it waits for its model, uses it, */
    int set;            /* on this set of ranks */
    bool out;           /* it was held, but is no longer */
};

struct line_rules {                /* shared by all lines; borrowed, constant */
    const struct served *served;   /* NULL: depends on the line */
    const struct json_t *defaults; /* values of missing fields, by canonical name */
};

/* Errors in the line are recorded in task->error, not returned. file_name is for lines without an id. If the model
 * depends on the line, only id and model_name are read here, and line_check does the rest. NULL: out of memory. */
struct line *line_open(const struct input_line *from, const char *file_name, const struct line_rules *rules,
                       uint64_t number, double now);
void line_close(struct line *l);

/* To be called once the model is known: checks the text and frees it. Errors are recorded in task->error. */
void line_check(struct line *l, const struct line_rules *rules);

/* For an error found after line_open: names its field as in the line. */
void line_name_field(struct line *l);

/* 64 bits derived only from --seed and the id. */
uint64_t line_hash(uint64_t seed, const char *id);

/* The seed of a line that does not name one. 53 bits: every JSON library keeps them. */
uint64_t line_seed(uint64_t seed, const char *id);

#endif
