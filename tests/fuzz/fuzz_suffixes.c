/* tests/fuzz/fuzz_suffixes.c - libFuzzer target for drafts from a text's own repetitions: for any tokens, the longest
 * end that occurred before is the one that a plain search finds, and each proposed continuation did occur after it. */
#include "coordinator/drafts/suffixes.h"
#include "tests/fuzz/fuzz.h"

#include <stdbool.h>
#include <string.h>

#define MOST 150

/* Tokens between a border and the end are compared like any others: all are of one kind. */
static int longest_end(const int32_t *text, int n)
{
    int best = 0;
    for (int end = n - 1; end > best; end--) {
        int length = 0;
        while (length < end && text[end - 1 - length] == text[n - 1 - length])
            length++;
        best = length > best ? length : best;
    }
    return best;
}

static bool was_there(const int32_t *text, int n, int n_equal, int32_t next)
{
    for (int end = n_equal; end < n; end++)
        if (text[end] == next && memcmp(text + end - n_equal, text + n - n_equal, (size_t)n_equal * sizeof *text) == 0)
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct suffixes *x = NULL;
    struct err e = {0};
    int32_t text[MOST], token[4];
    int n_equal, longest = size > 0 ? 1 + data[0] % 40 : 1;
    must(suffixes_open(&x, MOST, &e) == 0);
    for (int n = 1; n <= MOST && n < (int)size; n++) {
        text[n - 1] = data[n] % 32 - 1;
        suffixes_add(x, text[n - 1]);
        int got = suffixes_follow(x, 1, MOST, 4, token, &n_equal);
        must(n_equal == longest_end(text, n) && got <= 4);
        got = suffixes_follow(x, 1, longest, 4, token, &n_equal);
        must(got == 0 || was_there(text, n, n_equal, token[0]));
    }
    suffixes_close(&x);
    return 0;
}
