/* coordinator/batch/line.h - one line of the input: a task for the workers and the engine, and what its result
 * belongs to. Lines of the OpenAI batch API {"custom_id", "method", "url", "body"}, or plain objects: what
 * docs/protocol.md calls a generate, with "id". */
#ifndef BATCH_LINE_H
#define BATCH_LINE_H

#include "coordinator/batch/input.h"
#include "coordinator/tasks/task.h"

#define LINE_MAX_ID_BYTES 512

struct line {
    struct task *task;   /* owned; its `owner` is the line */
    int file;            /* index of its file in struct inputs */
    int64_t number, end; /* as in struct input_line */
    size_t bytes;        /* of its text, for bounds on what is under way */
    char *id;            /* owned; where the line has none of its own: FILE:LINE */
    bool id_is_number;
    bool nameless;    /* an object that has no id: FILE:LINE is all that tells its result from others */
    bool in_body;     /* the request is a member of the line, "body" */
    bool chat;        /* the result is a chat's */
    char *text;       /* owned; [bytes] while it is not known which model it is for; NULL: it is checked */
    char *model_name; /* owned; as it stands in such a line; NULL: none does */
    int model;        /* its number, among several */

    /* The runner's, while the engine has it. */
    struct line *previous, *next;
    bool withdrawn;     /* the engine was told to give it back unless it has begun */
    bool asks, entered; /* of several models: it waits for its own, uses it, */
    int set;            /* on this set of ranks */
    bool out;           /* it was held, and is no more */
};

struct line_rules {                /* shared by all lines; borrowed, constant */
    const struct served *served;   /* NULL: that depends on the line */
    const struct json_t *defaults; /* of fields that a line does not have, by canonical name */
};

/* Never fails for what the line says: that is in task->error. file_name is for a line without an id. If the model
 * depends on the line, only id and model_name are read here, and line_check does the rest. NULL: out of memory. */
struct line *line_open(const struct input_line *from, const char *file_name, const struct line_rules *rules,
                       uint64_t number, double now);
void line_close(struct line *l);

/* The model is known: check the text, which is given back. task->error says what is wrong. */
void line_check(struct line *l, const struct line_rules *rules);

/* An error was found after line_open: name its field as it stands in the line. */
void line_name_field(struct line *l);

/* 64 bits that follow from --seed and the id alone. */
uint64_t line_hash(uint64_t seed, const char *id);

/* The seed of a line that does not name one. 53 bits: every JSON library keeps them. */
uint64_t line_seed(uint64_t seed, const char *id);

#endif
