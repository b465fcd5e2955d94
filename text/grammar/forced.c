/* text/grammar/forced.c - see forced.h. */
#include "text/grammar/forced.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 256 }; /* bytes of forced text at a time; the rest is found once these have come */

/* The only byte that may come; -1: there are others, or the text may end. */
static int only_byte(const struct machine_state *s)
{
    int n = 0, byte = -1;
    for (int i = 0; i < 4; i++) {
        n += __builtin_popcountll(s->live[i]);
        if (s->live[i] != 0)
            byte = 64 * i + __builtin_ctzll(s->live[i]);
    }
    return n == 1 && !s->complete ? byte : -1;
}

/* The bytes of forced text from a state on; *state becomes the state after them. */
static size_t read_text(struct machine *m, int *state, char *text)
{
    size_t n = 0;
    for (int byte, next; n < MAX_BYTES && (byte = only_byte(&m->state[*state])) >= 0 &&
                         (next = machine_next(m, *state, (unsigned char)byte)) >= 0;
         *state = next)
        text[n++] = (char)byte;
    return n;
}

static bool has_bytes(const struct lexicon *l, const struct token_list *list, const char *text, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < list->n; i++) {
        size_t bytes;
        const unsigned char *token = lexicon_bytes(l, list->id[i], &bytes);
        if (bytes == 0 || bytes > n - at || memcmp(token, text + at, bytes) != 0)
            return false;
        at += bytes;
    }
    return at == n;
}

/* Cuts into the longest tokens, up to the first place where none fits. */
static void cut_longest(struct token_list *list, const struct lexicon *l, const char *text, size_t n)
{
    int32_t *id = realloc(list->id, n * sizeof *id);
    list->n = 0;
    if (id == NULL)
        return;
    list->id = id;
    list->capacity = n;
    for (size_t at = 0, bytes; at < n; at += bytes) {
        int32_t token = lexicon_longest(l, text + at, n - at, &bytes);
        if (token < 0)
            return;
        list->id[list->n++] = token;
    }
}

/* The first place in the text where a token may begin that reaches beyond it; n: there is none. */
static size_t find_border(const struct lexicon *l, struct machine *m, int state, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (lexicon_reaches(l, m, state, text + i, n - i))
            return i;
    return n;
}

static void drop_behind(struct token_list *list, const struct lexicon *l, size_t border)
{
    size_t n = 0, at = 0, bytes;
    for (; n < list->n; n++, at += bytes) {
        (void)lexicon_bytes(l, list->id[n], &bytes);
        if (at + bytes > border)
            break;
    }
    list->n = n;
}

void forced_find(struct forced *f, const struct lexicon *l, struct machine *m, int state)
{
    char text[MAX_BYTES];
    struct err why = {0};
    f->at = f->list.n = 0;
    size_t n = read_text(m, &state, text), border = n > 0 ? find_border(l, m, state, text, n) : 0;
    if (border == 0 || machine_tired(m))
        return;
    if (tokenizer_encode(l->tokenizer, text, n, TOKENIZER_PLAIN, &f->list, &why) != 0 ||
        !has_bytes(l, &f->list, text, n))
        cut_longest(&f->list, l, text, n);
    drop_behind(&f->list, l, border);
}

int forced_copy(struct forced *f, const struct forced *from)
{
    size_t n = from->list.n - from->at;
    f->at = f->list.n = 0;
    if (n > f->list.capacity) {
        int32_t *id = realloc(f->list.id, n * sizeof *id);
        if (id == NULL)
            return -1;
        f->list.id = id;
        f->list.capacity = n;
    }
    for (; f->list.n < n; f->list.n++)
        f->list.id[f->list.n] = from->list.id[from->at + f->list.n];
    return 0;
}

void forced_close(struct forced *f)
{
    token_list_free(&f->list);
    *f = (struct forced){0};
}
