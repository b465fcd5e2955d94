/* base/nearest.c - see nearest.h. */
#include "base/nearest.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

#define MAX_LETTERS 63

static int least(int a, int b, int c)
{
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

int nearest_distance(const char *a, const char *b)
{
    int d[MAX_LETTERS + 1][MAX_LETTERS + 1];
    size_t n = strlen(a), m = strlen(b);
    if (n > MAX_LETTERS || m > MAX_LETTERS)
        return INT_MAX;
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = (int)(i + j);
                continue;
            }
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            d[i][j] = least(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]) &&
                d[i - 2][j - 2] + 1 < d[i][j])
                d[i][j] = d[i - 2][j - 2] + 1;
        }
    return d[n][m];
}

int nearest_limit(const char *word)
{
    size_t n = strlen(word);
    return n >= 5 ? 2 : n >= 3 ? 1 : 0;
}
