/* gateway/exchange/fault_names.c - a fault's field under the name that the client's API has for it. */
#include "gateway/exchange/fault.h"

#include <stdio.h>
#include <string.h>

/* Does the name fit the pattern, whose "[]" stands for any index? The rest of the name behind it, NULL: no. index: the
 * last index, "[7]". */
static const char *fit_name(const char *pattern, const char *name, char index[16])
{
    while (*pattern != '\0') {
        if (*pattern != *name)
            return NULL;
        if (*pattern == '[') {
            size_t n = strspn(name + 1, "0123456789");
            if (n == 0 || n > 12 || name[n + 1] != ']')
                return NULL;
            (void)snprintf(index, 16, "%.*s", (int)n + 2, name);
            pattern += 2;
            name += n + 2;
        } else {
            pattern++;
            name++;
        }
    }
    return *name == '\0' || *name == '.' || *name == '[' ? name : NULL;
}

static void rename_to(struct fault *f, const struct fault_name *n, const char *index, const char *rest)
{
    const struct fault old = *f;
    size_t plain = strcspn(n->ours, "["), told = strlen(f->param);
    bool indexed = n->ours[plain] != '\0';
    (void)snprintf(f->param, sizeof f->param, "%.*s%s%s%.80s", (int)plain, n->ours, indexed ? index : "",
                   indexed ? n->ours + plain + 2 : "", n->whole ? "" : old.param + (rest - f->param));
    if (strncmp(old.message, old.param, told) == 0 && old.message[told] == ':')
        (void)snprintf(f->message, sizeof f->message, "%.120s%.380s", f->param, old.message + told);
}

void fault_rename(struct fault *f, const struct fault_name *names, size_t n)
{
    char index[16] = "";
    for (size_t i = 0; i < n; i++) {
        const char *rest = fit_name(names[i].theirs, f->param, index);
        if (rest != NULL) {
            rename_to(f, &names[i], index, rest);
            return;
        }
    }
}
