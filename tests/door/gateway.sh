# tests/door/gateway.sh - sourced by tests of the gateway: a server on a Unix socket in $dir, and gateways in front of it.
. "$(dirname "${BASH_SOURCE[0]}")/../cluster/cluster.sh"

# start_server RANKS OPTION...: writes $dir/r.json.
start_server() {
    mpirun -n "$1" "$lockstep" serve "${@:2}" --endpoint "ipc://$dir/zmq.sock" --rendezvous "$dir/r.json" >"$dir/serve.log" 2>&1 &
    at_end "kill $! 2>/dev/null; wait $!"
}

# start_gateway NAME OPTION... -> host:port in $address, when it has found the server; its log is $dir/NAME.log
start_gateway() {
    "${lockstep}-gateway" --backend "$dir/r.json" --listen 127.0.0.1:0 "${@:2}" 2>"$dir/$1.log" &
    at_end "kill $! 2>/dev/null; wait $!"
    wait_until 60 grep -qs 'is ready' "$dir/$1.log"
    address=$(sed -n "s/.*listening at //p" "$dir/$1.log")
}
