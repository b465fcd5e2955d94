/* tests/fuzz/fuzz.h - what every libFuzzer target has: its entry, and a claim. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process if a claim is wrong, so that libFuzzer saves the input. */
static inline void must(bool good)
{
    if (!good)
        abort();
}

#endif
