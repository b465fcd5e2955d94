#!/usr/bin/env bash
# tests/door/test_gateway_page.sh - the gateway's page in Chromium (Debian's package chromium). PICTURES=FOLDER keeps screenshots.
. "$(dirname "$0")/../cluster/cluster.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip_all "chromium is not installed"
needs_commands python3
make_folder
cd "$root" || exit 1
# A model whose stories do not end.
sed -i 's/"eos_token_id": [0-9]*/"eos_token_id": 2047/' "$model"/config.json "$model"/generation_config.json
mpirun -n 2 "$lockstep" serve --model "$model" --endpoint "ipc://$dir/zmq.sock" --rendezvous "$dir/r.json" >"$dir/serve.log" 2>&1 &
server=$!
at_end 'kill $server 2>/dev/null; wait $server'
(umask 077 && echo open-sesame >"$dir/keys")
start_gateway() { # NAME OPTION... -> its address in $address
    "${lockstep}-gateway" --backend "$dir/r.json" --listen 127.0.0.1:0 "${@:2}" 2>"$dir/$1.log" &
    at_end "kill $! 2>/dev/null; wait $!"
    wait_until 60 grep -qs 'is ready' "$dir/$1.log"
    address=http://$(sed -n 's/.*listening at //p' "$dir/$1.log")
}
start_gateway open && open=$address
start_gateway guarded --api-keys "$dir/keys" && guarded=$address
python3 tests/door/page.py "$browser" "$open" "$guarded" open-sesame "$dir/profile" ${PICTURES:+"$PICTURES"}
