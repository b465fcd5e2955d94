/* tests/unit/letters.h - a byte-level tokenizer of a few letters: "a" to "z" are ids 0 to 25, "ab" is 26, space is 27,
 * the special tokens <bos> and <eos> are 28 and 29; 30 and 31 are the two bytes of an e with acute accent. */
#ifndef TESTS_UNIT_LETTERS_H
#define TESTS_UNIT_LETTERS_H

#include "text/tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

enum { LETTER_AB = 26, LETTER_BLANK, LETTER_BOS, LETTER_EOS, LETTER_BYTE_C3, LETTER_BYTE_A9, N_LETTERS };

static inline size_t letters_json(char *text, size_t bytes)
{
    size_t n = (size_t)snprintf(
        text, bytes,
        "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": ["
        "{\"id\": 28, \"content\": \"<bos>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
        "\"normalized\": false, \"special\": true}, "
        "{\"id\": 29, \"content\": \"<eos>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
        "\"normalized\": false, \"special\": true}], \"normalizer\": null, "
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}, "
        "\"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"}, "
        "\"model\": {\"type\": \"BPE\", \"merges\": [\"a b\"], \"vocab\": {\"ab\": 26, \"\\u0120\": 27, \"<bos>\": 28, "
        "\"<eos>\": 29, \"\\u00c3\": 30, \"\\u00a9\": 31");
    for (int i = 0; i < 26; i++)
        n += (size_t)snprintf(text + n, bytes - n, ", \"%c\": %d", 'a' + i, i);
    return n + (size_t)snprintf(text + n, bytes - n, "}}}");
}

static inline struct tokenizer *letters_open(void)
{
    char text[2048];
    struct tokenizer *t = NULL;
    struct err e = {0};
    size_t bytes = letters_json(text, sizeof text);
    if (tokenizer_open_memory(&t, text, bytes, "letters", &e) != 0)
        fprintf(stderr, "%s\n", e.text);
    return t;
}

#endif
