/* kernels/cpu/each_isa.h - includes the file that ISA_CODE names once for each instruction set, with ISA the width of
 * its vectors in bits (see vector_isa.h). */
#define ISA 128
#include ISA_CODE
#undef ISA
#if defined(__x86_64__)
#define ISA 256
#include ISA_CODE
#undef ISA
#define ISA 512
#include ISA_CODE
#undef ISA
#endif
#undef ISA_CODE
