#!/usr/bin/env bash
# tests/door/test_gateway_openai.sh - the official OpenAI client, if $LOCKSTEP_PYTHON (python3) has it: pip install openai
. "$(dirname "$0")/../cluster/cluster.sh"
python=${LOCKSTEP_PYTHON:-python3}
"$python" -c 'import openai' 2>/dev/null || skip_all "$python has no module openai (a virtual environment's: LOCKSTEP_PYTHON)"
make_folder
cd "$root" || exit 1
mpirun -n 2 "$lockstep" serve --model demo/lockstep-stories --endpoint "ipc://$dir/zmq.sock" --rendezvous "$dir/r.json" >"$dir/serve.log" 2>&1 &
server=$!
at_end 'kill $server 2>/dev/null; wait $server'
"${lockstep}-gateway" --backend "$dir/r.json" --listen 127.0.0.1:0 2>"$dir/gateway.log" &
gateway=$!
at_end 'kill $gateway 2>/dev/null; wait $gateway'
for _ in $(seq 300); do grep -q 'is ready' "$dir/gateway.log" && break; sleep 0.1; done
"$python" tests/door/openai_client.py "http://$(sed -n 's/.*listening at //p' "$dir/gateway.log")"
