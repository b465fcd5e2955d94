/* base/number.h - numbers as text: the fewest digits that read back as the same number, 0.004 and not
 * 0.0040000000000000001. */
#ifndef BASE_NUMBER_H
#define BASE_NUMBER_H

#define NUMBER_BYTES 32

/* Formats like %g, with as many digits as are needed. Returns the length. */
int number_text(char text[NUMBER_BYTES], double x);

/* The double with the shortest decimal that reads back as this float: 0.1, not 0.10000000149011612. */
double number_of_float(float x);

#endif
