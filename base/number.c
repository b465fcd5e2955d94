/* base/number.c - see number.h. */
#include "base/number.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A decimal of DBL_DIG digits survives the way to a double and back, so more digits are needed only if no such decimal
 * reads back as the number. Subnormals have fewer than DBL_DIG digits. */
int number_text(char text[NUMBER_BYTES], double x)
{
    int n = 0, most = DBL_DECIMAL_DIG;
    for (int digits = fabs(x) < DBL_MIN ? 1 : DBL_DIG; digits <= most; digits++) {
        n = snprintf(text, NUMBER_BYTES, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    return n;
}

double number_of_float(float x)
{
    char text[NUMBER_BYTES];
    for (int digits = fabsf(x) < FLT_MIN ? 1 : FLT_DIG; digits <= FLT_DECIMAL_DIG; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x)
            return strtod(text, NULL);
    }
    return (double)x; /* not a number */
}
