/* client/interrupt.h - ^C and SIGTERM, polled between messages. */
#ifndef CLIENT_INTERRUPT_H
#define CLIENT_INTERRUPT_H

#include <stdbool.h>

#define INTERRUPT_STATUS 130 /* exit status, by shells' convention */

/* From now on the two signals do not end the process, but interrupt its waiting system calls. A second signal ends
 * it. */
void interrupt_catch(void);

bool interrupt_came(void);

/* Returns whether ^C came since the last call, and resets it. SIGTERM stays set: it is to end the program. */
bool interrupt_take(void);

#endif
