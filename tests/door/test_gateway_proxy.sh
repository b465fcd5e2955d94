#!/usr/bin/env bash
# tests/door/test_gateway_proxy.sh - the configurations of packaging/proxy/, each in front of lockstep-gateway and a server: TLS,
# HTTP/2, streams that are not buffered, clients that leave.
. "$(dirname "$0")/gateway.sh"
needs_commands curl openssl
make_folder
cd "$root" || exit 1
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
cat "$dir/cert.pem" "$dir/key.pem" >"$dir/both.pem"

start_server 1 --model "$model"
"${lockstep}-gateway" --backend "$dir/r.json" --listen "unix:$dir/http.sock" --access-log "$dir/access.log" >"$dir/gateway.log" 2>&1 &
gateway=$!
at_end 'kill $gateway 2>/dev/null; wait $gateway'
direct() { curl -sm 20 --unix-socket "$dir/http.sock" "$@"; }
for _ in $(seq 300); do direct -fo /dev/null http://x/health && break; sleep 0.1; done

running() { direct http://x/metrics | sed -n 's/^lockstep_num_requests_running{.*} //p'; }

# proxied NAME PORT: the checks behind a proxy.
proxied() {
    local name=$1 url=https://127.0.0.1:$2 text
    for _ in $(seq 100); do curl -skfo /dev/null "$url/health" && break; sleep 0.1; done
    text=$(curl -skm 30 "$url/v1/completions" -w ' %{http_version}' -d '{"prompt": "Once upon a time", "max_tokens": 3, "temperature": 0}')
    check "$name: a completion by HTTP/2" "$text" grep -q 'there was.* 2$' <<<"$text"
    text=$(curl -skm 30 -D - "$url/v1/completions" -d '{"prompt": "Hi", "nonsense": 1}')
    check "$name: an error is unchanged, and has the request's id" "$text" grep -qi '^x-request-id: ..*' <<<"$text"
    text=$(curl -sk "$url/v1/models" -o /dev/null -D - -H "X-Request-Id: mine-$name")
    check "$name: a request keeps its client's id" "$text" grep -qi "^x-request-id: mine-$name" <<<"$text"
    check "$name: the log has the client's address" "$(tail -2 "$dir/access.log")" \
        grep -q "\"forwarded_for\":\"127.0.0.1\".*\"mine-$name\"" "$dir/access.log"
    # A story that does not end: its first event arrives while the rest is generated, and disconnecting ends it.
    curl -skNm 60 "$url/v1/completions" -d '{"prompt": "Once", "max_tokens": 900000, "ignore_eos": true, "stream": true}' >"$dir/stream" &
    for _ in $(seq 300); do grep -qs '^data: {' "$dir/stream" && break; sleep 0.1; done
    check "$name: the first event of a stream that goes on" "$(head -c 300 "$dir/stream")" grep -q '^data: {' "$dir/stream"
    kill $!
    wait $! 2>/dev/null
    for _ in $(seq 100); do [ "$(running)" = 0 ] && break; sleep 0.1; done
    check "$name: a client that left is cancelled" "running: $(running)" [ "$(running)" = 0 ]
    text=$(printf 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n' |
        timeout 5 openssl s_client -quiet -connect "127.0.0.1:$2" 2>/dev/null | head -1)
    check "$name: two lengths are refused, or one is dropped" "$text" grep -q '^HTTP/1.1 400' <<<"$text"
}

if command -v nginx >/dev/null; then
    nginx_port=$(port)
    sed "s|listen 443|listen 127.0.0.1:$nginx_port|; s|/run/lockstep-gateway|$dir|; s|/etc/ssl/lockstep|$dir|; s|/run/lockstep-nginx.pid|$dir/nginx.pid|" \
        packaging/proxy/nginx.conf >"$dir/nginx.conf"
    nginx -p "$dir" -c "$dir/nginx.conf" -g 'daemon off;' 2>"$dir/nginx.log" &
    nginx=$!
    at_end 'kill $nginx 2>/dev/null; wait $nginx'
    chmod 777 "$dir/http.sock" && chmod 755 "$dir"
    proxied nginx "$nginx_port"
else
    ok "nginx # SKIP not installed"
fi
if command -v haproxy >/dev/null; then
    haproxy_port=$(port)
    sed "s|bind :443|bind 127.0.0.1:$haproxy_port|; s|/run/lockstep-gateway|$dir|; s|/etc/ssl/lockstep|$dir|" packaging/proxy/haproxy.cfg >"$dir/haproxy.cfg"
    haproxy -db -f "$dir/haproxy.cfg" 2>"$dir/haproxy.log" &
    haproxy=$!
    at_end 'kill $haproxy 2>/dev/null; wait $haproxy'
    proxied haproxy "$haproxy_port"
else
    ok "haproxy # SKIP not installed"
fi
done_testing
