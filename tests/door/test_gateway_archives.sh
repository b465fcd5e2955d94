#!/usr/bin/env bash
# tests/door/test_gateway_archives.sh - two models in archives behind the gateway, as for callers of SageMaker's
# multi-model endpoints: a hundred invocations of each by boto3 with TargetModel if $GATEWAY_PYTHON (python3) has it,
# otherwise by curl; their metrics; two texts in one request to /predictions.
. "$(dirname "$0")/gateway.sh"
python=${GATEWAY_PYTHON:-python3}
cd "$root" || exit 1
make_folder
mkdir "$dir/models"
for model in one two; do tar -C demo/lockstep-stories -czf "$dir/models/$model.tar.gz" . || exit 1; done
start_server 2 --models-dir "$dir/models" --models-cache "$dir/cache"
start_gateway gateway

body='{"inputs": "Once upon a time", "parameters": {"max_new_tokens": 4, "do_sample": false}}'
right='{"generated_text": ", there was a"}'
if "$python" -c 'import boto3' 2>/dev/null; then
    by=boto3
    log=$("$python" - "http://$address" "$body" "$right" 2>&1 <<'PYTHON'
import json, sys
import boto3
url, body, right = sys.argv[1:]
client = boto3.client("sagemaker-runtime", endpoint_url=url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y")
for model in ("one", "two"):
    for i in range(100):
        answer = client.invoke_endpoint(EndpointName="any", ContentType="application/json", Body=body, TargetModel=model + ".tar.gz")
        found = json.load(answer["Body"])
        if found != json.loads(right):
            sys.exit(f"{model}, invocation {i}: {found}")
PYTHON
    )
    status=$?
else
    by=curl
    log=$(for model in one two; do
        for _ in $(seq 100); do
            curl -s -H "X-Amzn-SageMaker-Target-Model: $model.tar.gz" -H 'Content-Type: application/json' -d "$body" "http://$address/invocations"
            echo
        done
    done | grep -vc '"generated_text": *", there was a"')
    status=$([ "$log" = 0 ] && echo 0 || echo 1)
fi
check "a hundred invocations of each archive by $by" "$log" [ "$status" = 0 ]

metrics=$("${lockstep}-client" metrics --rendezvous "$dir/r.json" 2>&1)
for model in one two; do
    of() { sed -n "s/^$1{model=\"$model\"} //p" <<<"$metrics"; }
    check "Invocations of $model" "$(of Invocations)" [ "$(of Invocations)" = 100 ]
    check "ModelCacheHit of $model" "$(of ModelCacheHit)" [ "$(of ModelCacheHit)" = 99 ]
    for name in ModelLoadingTime ModelLoadingWaitTime ModelDownloadingTime; do
        check "$name of $model" "$(of $name)" grep -qE '^[1-9]' <<<"$(of $name)"
    done
done
check "LoadedModelCount" "$(grep '^LoadedModelCount' <<<"$metrics")" grep -q '^LoadedModelCount.* 2$' <<<"$metrics"

text=$(curl -s -H 'Content-Type: application/json' -d '{"seq_length": 9, "text": ["Once upon a time", "The cat"], "temperature": 0}' \
    "http://$address/predictions/one")
check "two texts to /predictions/one" "$text" grep -qE '^\{"outputs": ?\["Once upon a time, there was a", ?"The cat[^"]*"\]\}$' <<<"$text"
done_testing
