#!/usr/bin/env bash
# tests/door/test_gateway_clients.sh - official clients against lockstep-gateway, as far as $GATEWAY_PYTHON (python3) has them. With
# GATEWAY_CLIENTS=1, as in CI, they come from the package index into a virtual environment in build/clients, wheels only, if it can be
# reached within three minutes.
. "$(dirname "$0")/gateway.sh"
python=${GATEWAY_PYTHON:-python3}
cd "$root" || exit 1
if [ "${GATEWAY_CLIENTS:-0}" = 1 ] && [ -z "${GATEWAY_PYTHON:-}" ]; then
    wanted=build/clients/$(sha256sum tests/door/clients.txt | head -c 16)
    if [ ! -e "$wanted" ]; then
        rm -rf build/clients
        timeout 180 sh -c 'python3 -m venv build/clients && build/clients/bin/pip install -q --disable-pip-version-check --retries 1 \
            --only-binary :all: -r tests/door/clients.txt' >build/clients.log 2>&1 && touch "$wanted"
    fi
    [ -e "$wanted" ] || skip_all "no clients from the package index: $(tail -n 1 build/clients.log)"
    python=build/clients/bin/python
fi
"$python" -c '' 2>/dev/null || skip_all "$python does not exist"
make_folder
# A context long enough for clients that request 1024 tokens.
cp -r demo/lockstep-stories "$dir/lockstep-stories"
sed -i 's/"max_position_embeddings": 1024/"max_position_embeddings": 16384/' "$dir/lockstep-stories/config.json"
# A template without tools in its output, but with the format of calls of Qwen and others.
sed -i 's/"chat_template": "/&{% if tools %}{% endif %}{# <tool_call> #}/' "$dir/lockstep-stories/tokenizer_config.json"
start_server 2 --model "$dir/lockstep-stories"
start_gateway gateway
timeout 800 "$python" tests/door/gateway_clients.py "$address"
