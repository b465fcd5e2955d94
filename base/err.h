/* base/err.h - one failure: a code that is also the exit status, and one line for the person at the terminal. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

/* Exit status of every subcommand; `lockstep --help` and README.md list them. */
enum err_code {
    ERR_NONE = 0,
    ERR_REQUEST = 1,     /* the run finished, but at least one request failed */
    ERR_USAGE = 2,       /* an option is unknown, missing, malformed or out of range */
    ERR_INPUT = 3,       /* a file or a prompt is malformed or contradicts another */
    ERR_UNSUPPORTED = 4, /* well formed, but something that Lockstep does not implement */
    ERR_IO = 5,          /* the operating system refused to open, read or write */
    ERR_MEMORY = 6,      /* host or device memory does not suffice */
    ERR_DEVICE = 7,      /* an accelerator failed */
    ERR_COMM = 8,        /* MPI or NCCL failed, or a rank is gone */
    ERR_PREFLIGHT = 9,   /* preflight found an unhealthy node */
    ERR_INTERNAL = 70,   /* internal error: please report it */
    ERR_RESUME = 75      /* the job was told to end before all was done: start it again (EX_TEMPFAIL) */
};

#define ERR_TEXT_BYTES 640

struct err {
    enum err_code code; /* ERR_NONE: nothing has failed */
    char text[ERR_TEXT_BYTES];
};

/* Record a failure. The first failure wins; later ones are dropped. Control characters that came from outside input
 * are replaced by '?', so that the message stays ONE line. ERR_INTERNAL carries file:line. Returns -1, so that
 * `return ERR(e, ...)` reads well. */
#define ERR(e, code, ...) err_set((e), (code), __FILE__, __LINE__, __VA_ARGS__)

int err_set(struct err *e, enum err_code code, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Allocation that reports: n elements of size bytes, zeroed; NULL (and *e set to ERR_MEMORY) on failure or overflow.
 * n == 0 gives a valid pointer. The caller frees with free(). */
void *err_calloc(struct err *e, unsigned long n, unsigned long size, const char *what);

/* A short name for a code, e.g. "usage error"; never NULL. */
const char *err_code_name(enum err_code code);

#endif
