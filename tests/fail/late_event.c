/* tests/fail/late_event.c - preloaded into the ranks: Open MPI's own thread comes late to the event that MPI_Init leaves to it,
 * as if it had got no processor for LATE_SECONDS. Its handler reads OMPI_SHOW_MODEL_CALLBACK from the environment: there it is
 * held. That it was held is told in the file $LATE_EVENT_MARK. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LATE_SECONDS 0.6

extern char **environ;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *value_of(const char *name)
{
    size_t n = strlen(name);
    for (char **e = environ; e != NULL && *e != NULL; e++)
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
            return *e + n + 1;
    return NULL;
}

char *getenv(const char *name)
{
    const char *mark = value_of("LATE_EVENT_MARK");
    if (strcmp(name, "OMPI_SHOW_MODEL_CALLBACK") == 0 && mark != NULL) {
        int file = open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        (void)close(file);
        for (double end = now() + LATE_SECONDS; now() < end;)
            continue;
    }
    return value_of(name);
}
