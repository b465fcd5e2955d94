#!/usr/bin/env bash
# tests/door/test_gateway_smuggling.sh [direct|nginx|haproxy] - request smuggling, against lockstep-gateway alone, or behind the proxy of
# packaging/proxy/ with many clients' requests on the same connections to the gateway.
. "$(dirname "$0")/../cluster/cluster.sh"
which=${1:-direct}
needs_commands python3
[ "$which" = direct ] || needs_commands "$which"
make_folder
cd "$root" || exit 1
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
listen=unix:$dir/http.sock prefix=
[ "$which" = direct ] && listen=127.0.0.1:$port
umask 0 # nginx's workers run as another user
"${lockstep}-gateway" --backend "$dir/none.json" --listen "$listen" --access-log "$dir/log" 2>"$dir/gateway.log" &
gateway=$!
at_end 'kill $gateway 2>/dev/null; wait $gateway'
wait_until 30 grep -qs listening "$dir/gateway.log"
case $which in
nginx)
    # The proxy itself names all requests, whatever clients send.
    sed "s|listen 443 ssl http2|listen 127.0.0.1:$port|; /ssl_certificate/d; s|/run/lockstep-gateway|$dir|; s|/run/lockstep-nginx.pid|$dir/nginx.pid|
         s|default \$http_x_request_id;|default proxy-\$request_id;|; s|\"\" \$request_id;|\"\" proxy-\$request_id;|" packaging/proxy/nginx.conf >"$dir/nginx.conf"
    nginx -p "$dir" -c "$dir/nginx.conf" -g 'daemon off;' 2>"$dir/proxy.log" &
    proxy=$! prefix=proxy-
    ;;
haproxy)
    sed "s|bind :443 ssl.*|bind 127.0.0.1:$port|; s|/run/lockstep-gateway|$dir|; s|+X}o\\\\ |&proxy-|; s| unless { req.hdr(x-request-id) -m found }||
         s|option abortonclose|&\n    http-reuse always|" packaging/proxy/haproxy.cfg >"$dir/haproxy.cfg"
    haproxy -db -f "$dir/haproxy.cfg" 2>"$dir/proxy.log" &
    proxy=$! prefix=proxy-
    ;;
esac
[ -n "${proxy:-}" ] && at_end 'kill $proxy 2>/dev/null; wait $proxy'
wait_until 30 python3 -c "import socket; socket.create_connection(('127.0.0.1', $port))" 2>/dev/null
python3 tests/door/smuggling.py "$which" "$port" "$dir/log" "$prefix"
