/* gateway/api/triton.h - the part of Triton Inference Server's API that deals with text: health, metadata, statistics,
 * generate, the index of its model repository. */
#ifndef API_TRITON_H
#define API_TRITON_H

#include "gateway/exchange/exchange.h"

extern const struct dialect triton_dialect;

void triton_server(struct exchange *x); /* GET /v2 */
void triton_live(struct exchange *x);
void triton_ready(struct exchange *x);

/* Requests about the model tail[0]: */
void triton_model(struct exchange *x);
void triton_model_ready(struct exchange *x);
void triton_config(struct exchange *x);
void triton_stats(struct exchange *x);
void triton_infer(struct exchange *x);
void triton_generate(struct exchange *x);
void triton_generate_stream(struct exchange *x);

void triton_index(struct exchange *x);
void triton_load(struct exchange *x);
void triton_unload(struct exchange *x);

#endif
