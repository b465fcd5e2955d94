/* client/lines.c - see lines.h. */
#include "client/lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef LOCKSTEP_EDIT
#include <editline/readline.h>
#endif

bool lines_at_terminal(void)
{
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

static char *read_plain(struct err *e)
{
    char *line = NULL;
    size_t capacity = 0;
    errno = 0;
    ssize_t n = getline(&line, &capacity, stdin);
    if (n < 0) {
        if (ferror(stdin) != 0 && errno != EINTR)
            ERR(e, ERR_IO, "standard input: cannot read: %s", strerror(errno));
        if (errno == EINTR)
            clearerr(stdin);
        free(line);
        return NULL;
    }
    if (line[n - 1] == '\n')
        line[n - 1] = '\0';
    return line;
}

char *lines_read(const char *prompt, struct err *e)
{
    if (!lines_at_terminal())
        return read_plain(e);
#ifdef LOCKSTEP_EDIT
    char *line = readline(prompt);
    if (line != NULL && *line != '\0')
        (void)add_history(line);
    return line;
#else
    (void)fputs(prompt, stdout);
    (void)fflush(stdout);
    return read_plain(e);
#endif
}
