/* tests/e2e/no_names.c - preloaded into clients: hosts below .invalid as a resolver might answer. "unknown": there is
 * no such host. "passing": a temporary failure. "silent": no answer ever. "comes": unknown at first, later
 * 127.0.0.1. */
#include <dlfcn.h>
#include <netdb.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

typedef int (*lookup_fn)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
    static atomic_int n_comes;
    lookup_fn real = (lookup_fn)dlsym(RTLD_NEXT, "getaddrinfo");
    if (node == NULL)
        return real(node, service, hints, list);
    while (strcmp(node, "silent.invalid") == 0)
        (void)pause();
    if (strcmp(node, "passing.invalid") == 0)
        return EAI_AGAIN;
    if (strcmp(node, "unknown.invalid") == 0)
        return EAI_NONAME;
    if (strcmp(node, "comes.invalid") == 0 && atomic_fetch_add(&n_comes, 1) == 0)
        return EAI_NONAME;
    return real(strcmp(node, "comes.invalid") == 0 ? "127.0.0.1" : node, service, hints, list);
}
