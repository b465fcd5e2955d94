/* gateway/api/sagemaker.h - the API of a SageMaker container, and that of an endpoint's clients: /invocations,
 * /endpoints/{name}/invocations[-response-stream], /models/{name}/invoke. The body's form selects the API. */
#ifndef API_SAGEMAKER_H
#define API_SAGEMAKER_H

#include "gateway/exchange/exchange.h"

extern const struct dialect sagemaker_dialect;

void sagemaker_invocations(struct exchange *x);
void sagemaker_invoke(struct exchange *x);
void sagemaker_endpoint(struct exchange *x);
void sagemaker_endpoint_stream(struct exchange *x);

#endif
