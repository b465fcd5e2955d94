/* tests/support/bad_start.h - tables of damaged inputs: a start must end with one line that names the error. */
#ifndef TESTS_SUPPORT_BAD_START_H
#define TESTS_SUPPORT_BAD_START_H

#define BAD_START_FIXTURE "llama-7-1-tied" /* float32, 2 layers, 7 heads on 1 KV head, tied, vocabulary 101 */

struct bad_start {
    const char *name;
    /* The damage: member `path` of `file` becomes `value` (models_edit); without a path the file becomes the text
     * `value`, or is removed if that is NULL. Then damage(dir) is called, if given. */
    const char *file, *path, *value;
    void (*damage)(const char *dir);
    const char *fixture;     /* instead of BAD_START_FIXTURE */
    int status;              /* enum err_code */
    const char *words[6];    /* the line must contain all of them: file, object, found, expected */
    const char *argument[8]; /* instead of: generate --model DIR --prompt-ids 1,2 --max-tokens 1; "DIR" and "DIR/file"
                                name the folder */
};

/* Runs every case on 1 and on 3 ranks: the documented status, nothing on standard output, exactly one line on standard
 * error, no core file, no process left. An additional case: half of them end within seconds. */
void bad_start_run(const struct bad_start *cases, int n);

#endif
