/* base/opt_rows.h - short notation for rows of an option table (struct opt). The including file defines AT(member), a
 * member's offset in the record that the rows fill. */
#ifndef BASE_OPT_ROWS_H
#define BASE_OPT_ROWS_H

#include "base/opt_table.h"

#define TEXT(name, argument, member, help)                                \
    {                                                                     \
        name, argument, OPT_STRING, AT(member), 0, 0, 0, NULL, help, NULL \
    }
#define FLAG(name, member, help)                                    \
    {                                                               \
        name, NULL, OPT_FLAG, AT(member), 0, 0, 0, NULL, help, NULL \
    }
#define INTEGER(name, member, low, high, missing, help)                      \
    {                                                                        \
        name, "N", OPT_INT, AT(member), low, high, missing, NULL, help, NULL \
    }
#define REAL(name, member, low, high, missing, help)                          \
    {                                                                         \
        name, "X", OPT_REAL, AT(member), low, high, missing, NULL, help, NULL \
    }
#define CHOICE(name, member, choices, help)                                 \
    {                                                                       \
        name, choices, OPT_CHOICE, AT(member), 0, 0, 0, choices, help, NULL \
    }

/* const struct opt_rows serve_rows = OPT_ROWS(rows); */
#define OPT_ROWS(rows)                       \
    {                                        \
        rows, sizeof(rows) / sizeof(rows)[0] \
    }

#endif
