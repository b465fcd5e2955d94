/* gateway/api/tgi.h - the API of Text Generation Inference: /generate, /generate_stream, /info, and / by `stream`. */
#ifndef API_TGI_H
#define API_TGI_H

#include "gateway/exchange/exchange.h"

extern const struct dialect tgi_dialect;

void tgi_generate(struct exchange *x);
void tgi_generate_stream(struct exchange *x);
void tgi_root(struct exchange *x);
void tgi_info(struct exchange *x);

#endif
