/* scripts/tidy.h - included before every file that clang-tidy looks at, for its analyzer, which follows no call into
 * another file: a failure that is recorded has a code from then on, and ERR() is -1. Nothing is compiled with it. */
#include "base/err.h"

#undef ERR
#define ERR(e, which, ...) (err_set((e), (which), __FILE__, __LINE__, __VA_ARGS__), (e)->code = (which), -1)
