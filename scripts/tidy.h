/* scripts/tidy.h - included before every file that clang-tidy checks, for its analyzer, which does not follow calls
 * into other files: it states that a recorded failure has a code, and that ERR() is -1. Never compiled into
 * programs. */
#include "base/err.h"

#undef ERR
#define ERR(e, which, ...) (err_set((e), (which), __FILE__, __LINE__, __VA_ARGS__), (e)->code = (which), -1)
