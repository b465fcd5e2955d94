/* commands/models/model_folder.c - see model_folder.h. */
#include "commands/models/model_folder.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int find_one(struct model_folder *m, const char *option, const char *given, size_t bytes, struct err *e)
{
    char path[PATH_MAX];
    if (bytes >= sizeof path)
        return ERR(e, ERR_INPUT, "--%s: the path of a folder is too long", option);
    memcpy(path, given, bytes);
    path[bytes] = '\0';
    if (realpath(path, m->dir) == NULL)
        return ERR(e, ERR_INPUT, "--%s: %.300s: no such folder", option, path);
    char *slash = strrchr(m->dir, '/');
    *slash = '\0';
    m->name = slash + 1;
    return 0;
}

static int count(const char *list, int most, const char *option, struct err *e)
{
    int n = 1;
    for (const char *at = list; *at != '\0'; at++)
        n += *at == ',';
    bool empty = *list == '\0' || *list == ',' || strstr(list, ",,") != NULL || list[strlen(list) - 1] == ',';
    return n <= most && !empty
               ? n
               : ERR(e, ERR_USAGE, "--%s: found \"%.200s\", expected at most %d folders with commas between them",
                     option, list, most);
}

int model_folders_find(struct model_folder *folder, int least, int most, const char *option, const char *list,
                       struct err *e)
{
    int n = count(list, most, option, e);
    if (n >= 0 && n < least)
        return ERR(e, ERR_USAGE, "--%s: found \"%.200s\", expected %d folders with a comma between them", option, list,
                   least);
    for (int i = 0; i < n; i++) {
        size_t bytes = strcspn(list, ",");
        if (find_one(&folder[i], option, list, bytes, e) != 0)
            return -1;
        list += bytes + 1;
    }
    return n;
}
