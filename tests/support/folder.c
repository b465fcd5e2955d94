/* tests/support/folder.c - see folder.h. */
#include "tests/support/folder.h"
#include "tests/support/files.h"

#include <stdio.h>

char folder[256];

const char *folder_path(const char *name)
{
    static char path[4][600];
    static int next;
    next = (next + 1) % 4;
    (void)snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

int folder_set_up(void **state)
{
    (void)state;
    files_make_dir(folder);
    return 0;
}

int folder_tear_down(void **state)
{
    (void)state;
    files_remove_dir(folder);
    return 0;
}
