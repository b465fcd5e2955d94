/* client/interrupt.h - ^C and SIGTERM, polled between messages. */
#ifndef CLIENT_INTERRUPT_H
#define CLIENT_INTERRUPT_H

#include <stdbool.h>

#define INTERRUPT_STATUS 130 /* exit status, as shells have it */

/* From here on the two signals no longer end the process, but end what waits in a system call. A second one does. */
void interrupt_catch(void);

bool interrupt_came(void);

/* Whether ^C came since the last look, and be ready for the next one. SIGTERM stays: it came to end the program. */
bool interrupt_take(void);

#endif
