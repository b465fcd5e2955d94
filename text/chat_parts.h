/* text/chat_parts.h - the parts of a struct chat_template; for text/chat*.c only. */
#ifndef TEXT_CHAT_PARTS_H
#define TEXT_CHAT_PARTS_H

#include "text/chat.h"

struct chat_source { /* the text of a template */
    char name[64];   /* "default", "tool_use", ... */
    char *text;      /* owned */
    size_t bytes;
};

struct chat_sources {
    struct chat_source item[CHAT_MAX_TEMPLATES];
    int n;
};

struct chat_template {
    struct jinja *usual, *with_tools; /* with_tools may be NULL: as usual */
    enum calls_format calls[2];       /* of these two */
    bool thinks[2];                   /* likewise */
    bool takes_parts[2];              /* likewise: content may be a list of text parts */
    json_t *tokens;                   /* {"bos_token": "<s>", ...} */
    char name[64];
};

/* All templates of a checkpoint; config: its tokenizer_config.json, or NULL. Close in any case. */
int chat_sources_read(struct chat_sources *s, const char *model_dir, const json_t *config, struct err *e);
/* One from a file. */
int chat_sources_file(struct chat_sources *s, const char *path, const char *name, struct err *e);
const struct chat_source *chat_sources_find(const struct chat_sources *s, const char *name);
void chat_sources_close(struct chat_sources *s);

/* The special tokens by their names, an object of strings: those of tokenizer_config.json (config, or NULL) and, unless
 * that has an "added_tokens_decoder", as files of transformers since 4.34 do, of special_tokens_map.json, which then
 * take precedence. The caller frees it, also after a failure. */
json_t *chat_tokens_read(const char *model_dir, const json_t *config, struct err *e);

/* The pieces in one, malloc'ed and NUL-terminated; NULL: out of memory. */
char *chat_text(const struct jinja_text *text, size_t *bytes);

/* chat_continue.c: a copy of the messages, whose last one has a text or text parts, with a mark behind it; NULL: out of
 * memory. */
json_t *chat_mark_end(const json_t *messages);
/* Cuts the chat that was rendered from that copy where the mark is. messages: without it. false: the template leaves
 * out the last message's text or its end. */
bool chat_cut_end(struct jinja_text *text, const json_t *messages);

#endif
