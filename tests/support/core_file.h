/* tests/support/core_file.h - tells which process left a core file in a folder. */
#ifndef TESTS_SUPPORT_CORE_FILE_H
#define TESTS_SUPPORT_CORE_FILE_H

#include <stdbool.h>

/* Tells whether `dir` has the core file of a process other than Open MPI's launcher. Open MPI 4.1's mpirun itself
 * sometimes dies of a segmentation fault in PMIx_Finalize while it ends a job whose standard output nobody reads; the
 * tested program does not cause that. A core file without a readable name counts as the program's. */
bool core_file_of_program(const char *dir);

#endif
