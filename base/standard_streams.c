/* base/standard_streams.c - see standard_streams.h. */
#include "base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

void standard_streams_hold(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) /* open() returns the lowest number that is free, which is this one */
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}
