/* base/standard_streams.h - standard input, output and error as a program may find them: closed. */
#ifndef BASE_STANDARD_STREAMS_H
#define BASE_STANDARD_STREAMS_H

/* At the start of main: where one is closed, put a descriptor in its place whose use fails. Otherwise the next file or
 * socket that is opened would get its number, and with it the texts that are written there. */
void standard_streams_hold(void);

#endif
