/* text/chat_format.h - the chat formats that are built in, as data; for coordinator/chat*.c only. */
#ifndef TEXT_CHAT_FORMAT_H
#define TEXT_CHAT_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#define CHAT_MAX_DIGESTS 6
#define CHAT_MAX_ROLES   3

enum chat_kind {
    CHAT_TURNS,     /* each turn between the two texts of its role */
    CHAT_INST,      /* [INST] user [/INST] assistant, strictly in turns; SYSTEM_FIRST: as <<SYS>> */
    CHAT_REASONING, /* CHAT_TURNS; what the assistant thought stays only in turns behind the last question (Qwen3) */
};

enum chat_system {
    SYSTEM_NEVER,
    SYSTEM_FIRST,
    SYSTEM_LAST
}; /* which turn of the user begins with the system's words */

struct chat_role {
    const char *role; /* NULL: any. Its name stands between `before` and `middle`, if there is a `middle` */
    const char *before, *middle, *after;
    bool eos; /* the end-of-text token between the words and `after` */
};

/* Texts are NULL where there is none. */
struct chat_format {
    const char *name;
    enum chat_kind kind;
    bool bos;                   /* the begin-of-text token first */
    bool trim;                  /* no white space around what the turns say */
    bool forgets;               /* the assistant's thoughts, up to </think>, are always removed */
    bool system_first;          /* the template brings the system's words to the front: no other turn is the system's */
    const char *default_system; /* stands first where the first turn is not the system's */
    const char *preface, *date; /* the system always speaks: preface, date (NULL: today), then */
    const char *preface_separator; /* this, what the first turn has it say, and */
    const char *preface_end;       /* this */
    const char *generation;        /* opens the assistant's turn */
    struct chat_role role[CHAT_MAX_ROLES];
    struct chat_inst {            /* CHAT_INST */
        const char *open, *close; /* around what the user says */
        bool bos_each;            /* the begin-of-text token before every `open` instead */
        enum chat_system system;
        const char *before, *behind; /* around what the assistant says; then the end-of-text token, and */
        const char *end;             /* this */
        bool trim_answer;            /* no white space around what the assistant says */
    } inst;
    uint64_t digest[CHAT_MAX_DIGESTS]; /* of templates that say exactly this without tools; 0: no more */
};

/* All of them; the last has a name of NULL. */
extern const struct chat_format chat_formats[];

#endif
