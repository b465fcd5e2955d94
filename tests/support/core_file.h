/* tests/support/core_file.h - which process left a core file in a folder. */
#ifndef TESTS_SUPPORT_CORE_FILE_H
#define TESTS_SUPPORT_CORE_FILE_H

#include <stdbool.h>

/* Whether `dir` holds the core file of a process other than Open MPI's launcher. Open MPI 4.1's mpirun itself sometimes
 * dies of a segmentation fault in PMIx_Finalize while it ends a job whose standard output nobody reads; that is not the
 * tested program's doing. A core file that cannot be read as one counts as the program's. */
bool core_file_of_program(const char *dir);

#endif
