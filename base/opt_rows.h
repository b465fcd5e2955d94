/* base/opt_rows.h - rows of an option table (struct opt), written short. Whoever includes this defines AT(member), a member's
 * offset in the record that the table fills. */
#ifndef BASE_OPT_ROWS_H
#define BASE_OPT_ROWS_H

#include "base/opt_table.h"

#define TEXT(name, argument, member, commands, help)                                \
    {                                                                               \
        name, argument, OPT_STRING, AT(member), commands, 0, 0, 0, NULL, help, NULL \
    }
#define FLAG(name, member, commands, help)                                    \
    {                                                                         \
        name, NULL, OPT_FLAG, AT(member), commands, 0, 0, 0, NULL, help, NULL \
    }
#define INTEGER(name, member, commands, low, high, missing, help)                      \
    {                                                                                  \
        name, "N", OPT_INT, AT(member), commands, low, high, missing, NULL, help, NULL \
    }
#define REAL(name, member, commands, low, high, missing, help)                          \
    {                                                                                   \
        name, "X", OPT_REAL, AT(member), commands, low, high, missing, NULL, help, NULL \
    }
#define CHOICE(name, member, commands, choices, help)                                 \
    {                                                                                 \
        name, choices, OPT_CHOICE, AT(member), commands, 0, 0, 0, choices, help, NULL \
    }

#endif
