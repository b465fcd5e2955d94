/* coordinator/batch/result.h - turns a finished line of a batch into its line of the output, and finds the id in such a
 * line. */
#ifndef BATCH_RESULT_H
#define BATCH_RESULT_H

#include "coordinator/batch/line.h"

struct result_style {
    bool plain;                        /* compact lines instead of those of the OpenAI batch API */
    const char *model;                 /* its name; all borrowed */
    const struct tokenizer *tokenizer; /* texts of tokens in logprobs */
};

struct result_count {
    int64_t prompt_tokens, cached_tokens, output_tokens;
};

/* malloc'ed, its newline included; NULL: out of memory. If the job failed, l->task->error has been set before.
 * file_name: of the line's file, for errors. */
char *result_line(const struct line *l, const char *file_name, const struct result_style *s, double now, size_t *bytes,
                  struct result_count *count);

#define RESULT_BEGIN "{\"id\":" /* every line of either style begins with this */

/* The id of a line that result_line has made in either style (without its newline), and whether it is an error. false:
 * not such a line. */
bool result_read(const char *line, size_t bytes, char id[LINE_MAX_ID_BYTES + 1], bool *failed);

#endif
