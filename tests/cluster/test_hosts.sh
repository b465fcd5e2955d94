#!/usr/bin/env bash
# tests/cluster/test_hosts.sh - jobs over two hosts, which are network namespaces (hosts.sh): the same text as on one host; a
# killed rank and a lost host are named, nothing is left on either side; a short break of the network is survived.
. "$(dirname "$0")/cluster.sh"
. "$(dirname "$0")/hosts.sh"
hosts_start

short=(generate --model "$model" --prompt "Once upon a time" --max-tokens 40 --temperature 0.8 --seed 7)
long=(generate --model "$model" --prompt Once --max-tokens 100000 --ignore-eos --kv-cache-memory-bytes 2G
    --progress never --output "$dir/story")

same_text() {
    local one two
    one=$(OMPI_MCA_btl=self,vader timeout 30 mpirun -q -np 4 "$lockstep" "${short[@]}" 2>&1)
    two=$(timeout 30 "${launch[@]}" -np 4 "$lockstep" "${short[@]}" 2>"$dir/err")
    [ -n "$one" ] && [ "$one" = "$two" ] && ok "2 hosts of 2 ranks tell the same story as one of 4" ||
        not_ok "2 hosts of 2 ranks tell the same story as one of 4" "$one / $two / $(cat "$dir/err")"
}

# A story on all four ranks, under way. -> $pid, $mark
start_story() {
    mark=hosts-$$-$1
    : >"$dir/out"
    LOCKSTEP_TEST_MARK=$mark "${launch[@]}" -x LOCKSTEP_TEST_MARK -np 4 "$lockstep" serve --model "$model" \
        --endpoint ipc://"$dir/socket" --rendezvous "$dir/server.json" --max-model-len 512 >"$dir/out" 2>"$dir/err" &
    pid=$!
    at_end "kill -9 $pid 2>/dev/null"
}
