/* base/endpoint.c - see endpoint.h. */
#include "base/endpoint.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define HOST_BYTES 256

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Canonical decimal digits, so that what is shown is what is used. */
static bool is_port(const char *port, bool to_bind)
{
    size_t n = strlen(port);
    if (to_bind && (strcmp(port, "*") == 0 || strcmp(port, "0") == 0))
        return true;
    return n > 0 && n <= 5 && strspn(port, "0123456789") == n && port[0] != '0' && strtol(port, NULL, 10) <= 65535;
}

/* "[::1]" or "[fe80::1%eth0]" */
static bool is_ipv6(const char *host)
{
    char text[HOST_BYTES];
    unsigned char address[sizeof(struct in6_addr)];
    size_t n = strlen(host);
    if (n < 4 || host[0] != '[' || host[n - 1] != ']')
        return false;
    memcpy(text, host + 1, n - 2);
    text[n - 2] = '\0';
    char *zone = strchr(text, '%');
    if (zone != NULL && zone[1] == '\0')
        return false;
    if (zone != NULL)
        *zone = '\0';
    return inet_pton(AF_INET6, text, address) == 1;
}

/* A name of a host or of a network interface, or an address in full: "127.1" and "010.0.0.1" mean something else
 * elsewhere. */
static bool is_host(const char *host, bool to_bind)
{
    unsigned char address[sizeof(struct in_addr)];
    size_t n = strlen(host);
    if (to_bind && strcmp(host, "*") == 0)
        return true;
    if (host[0] == '[')
        return is_ipv6(host);
    if (n > 0 && strspn(host, "0123456789.") == n)
        return inet_pton(AF_INET, host, address) == 1;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)host[i]) && strchr("-_.", host[i]) == NULL)
            return false;
    return n > 0 && isalnum((unsigned char)host[0]);
}

static int check_tcp(const char *endpoint, bool to_bind, const char *what, struct err *e)
{
    char host[HOST_BYTES];
    const char *address = endpoint + 6, *colon = strrchr(address, ':');
    size_t n = colon != NULL ? (size_t)(colon - address) : 0;
    if (colon == NULL || (strchr(colon, ']') != NULL))
        return ERR(e, ERR_USAGE, "%s: found \"%.200s\", which has no port, expected tcp://ADDRESS:PORT", what,
                   endpoint);
    if (!is_port(colon + 1, to_bind))
        return ERR(e, ERR_USAGE, "%s: found the port \"%.40s\", expected an integer in [1, 65535]%s", what, colon + 1,
                   to_bind ? ", or * for any free one" : "");
    if (n >= sizeof host)
        return ERR(e, ERR_USAGE, "%s: an address of %zu bytes, at most %zu are accepted", what, n, sizeof host - 1);
    memcpy(host, address, n);
    host[n] = '\0';
    if (is_host(host, to_bind))
        return 0;
    return ERR(e, ERR_USAGE,
               "%s: found the address \"%.200s\", expected a host, an IPv4 address of four numbers or [IPv6]", what,
               host);
}

static int check_ipc(const char *path, const char *what, struct err *e)
{
    struct sockaddr_un address;
    if (path[0] == '\0' || strcmp(path, "@") == 0)
        return ERR(e, ERR_USAGE, "%s: found \"ipc://%s\", expected ipc://PATH", what, path);
    if (strlen(path) >= sizeof address.sun_path)
        return ERR(e, ERR_USAGE, "%s: a path of %zu bytes, at most %zu are accepted for a Unix socket", what,
                   strlen(path), sizeof address.sun_path - 1);
    return 0;
}

int endpoint_check(const char *endpoint, bool to_bind, const char *what, struct err *e)
{
    struct err ignored = {0};
    char with[HOST_BYTES + 16];
    if (begins(endpoint, "tcp://"))
        return check_tcp(endpoint, to_bind, what, e);
    if (begins(endpoint, "ipc://"))
        return check_ipc(endpoint + 6, what, e);
    (void)snprintf(with, sizeof with, "tcp://%s", strlen(endpoint) < HOST_BYTES ? endpoint : "");
    if (strstr(endpoint, "://") == NULL && check_tcp(with, to_bind, what, &ignored) == 0)
        return ERR(e, ERR_USAGE, "%s: found \"%.200s\" without tcp:// in front, expected %.200s", what, endpoint, with);
    if (endpoint[0] == '/')
        return ERR(e, ERR_USAGE, "%s: found \"%.200s\" without ipc:// in front, expected ipc://%.200s", what, endpoint,
                   endpoint);
    return ERR(e, ERR_USAGE, "%s: found \"%.200s\", expected tcp://ADDRESS:PORT or ipc://PATH", what, endpoint);
}

bool endpoint_is_ipv6(const char *endpoint)
{
    return begins(endpoint, "tcp://[");
}

bool endpoint_name(const char *endpoint, char *name, size_t bytes)
{
    const char *host = endpoint + strlen("tcp://");
    if (!begins(endpoint, "tcp://") || host[0] == '[' || strspn(host, "0123456789.") == strcspn(host, ":"))
        return false;
    (void)snprintf(name, bytes, "%.*s", (int)strcspn(host, ":"), host);
    return true;
}

bool endpoint_is_loopback(const char *endpoint)
{
    return begins(endpoint, "tcp://localhost:") || begins(endpoint, "tcp://[::1]:") || begins(endpoint, "tcp://lo:") ||
           (begins(endpoint, "tcp://127.") && strspn(endpoint + 6, "0123456789.") == strcspn(endpoint + 6, ":"));
}
