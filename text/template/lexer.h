/* text/template/lexer.h - a template's source -> tokens, white space control included. */
#ifndef TEXT_TEMPLATE_LEXER_H
#define TEXT_TEMPLATE_LEXER_H

#include "text/template/text.h"

enum token_kind {
    TOKEN_TEXT,
    TOKEN_BLOCK,
    TOKEN_BLOCK_END,
    TOKEN_PRINT,
    TOKEN_PRINT_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
    TOKEN_END
};

struct token {
    enum token_kind kind;
    int line;
    struct text text; /* the characters; for TOKEN_STRING with escapes resolved */
};

/* The last is TOKEN_END. As jinja2 does with trim_blocks and lstrip_blocks: line ends become line feeds, and one at the
 * end of the source is dropped. */
const struct token *lex(struct heap *w, const char *source, size_t bytes);

#endif
