/* gateway/exchange/process_counts.h - what Prometheus' own libraries report of a process, under their names. */
#ifndef EXCHANGE_PROCESS_COUNTS_H
#define EXCHANGE_PROCESS_COUNTS_H

#include "gateway/loop/bytes.h"

#include <stdint.h>

/* started: seconds since 1970. Figures that the system does not tell are left out. */
void process_counts_write(int64_t started, struct bytes *to);

#endif
