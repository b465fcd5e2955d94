/* tests/support/digest.h - digests of bytes (FNV-1a, 64 bits), and whether all ranks have the same ones. */
#ifndef TESTS_SUPPORT_DIGEST_H
#define TESTS_SUPPORT_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIGEST_BEGIN 0xcbf29ce484222325u

/* Returns the digest of what `hash` stands for (DIGEST_BEGIN: nothing), followed by these bytes. */
uint64_t digest_add(uint64_t hash, const void *data, size_t bytes);

/* Returns whether all ranks of MPI_COMM_WORLD give the same digest. Collective. */
bool digest_same_everywhere(uint64_t hash);

#endif
