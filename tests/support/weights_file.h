/* tests/support/weights_file.h - for libraries that are preloaded into ranks: whether a descriptor reads weights. */
#ifndef TESTS_SUPPORT_WEIGHTS_FILE_H
#define TESTS_SUPPORT_WEIGHTS_FILE_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Returns whether the descriptor's file is named *.safetensors. */
static inline bool reads_weights(int fd)
{
    char link[64], path[4096];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 12)
        return false;
    path[n] = '\0';
    return strcmp(path + n - 12, ".safetensors") == 0;
}

#endif
