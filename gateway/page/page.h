/* gateway/page/page.h - the gateway's own page: a chat and a live view for browsers. Its files lie in this folder and
 * are part of the program. */
#ifndef PAGE_PAGE_H
#define PAGE_PAGE_H

#include "gateway/exchange/exchange.h"

/* "/" */
void page_start(struct exchange *x);

/* "/page/{}": what the page is made of. */
void page_file(struct exchange *x);

#endif
