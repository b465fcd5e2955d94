/* gateway/page/page.h - the gateway's own page: a chat and a live view for browsers. Its files are in this folder and
 * are compiled into the program. */
#ifndef PAGE_PAGE_H
#define PAGE_PAGE_H

#include "gateway/exchange/exchange.h"

/* "/" */
void page_start(struct exchange *x);

/* "/page/{}": the page's scripts and styles. */
void page_file(struct exchange *x);

#endif
