#!/usr/bin/env bash
# tests/cluster/test_hosts.sh - jobs over two hosts, which are network namespaces (hosts.sh): the same text as on one
# host; a killed rank and a lost host are named, no process is left on either side, a batch's journal is intact and can
# be resumed; a short network outage is survived.
. "$(dirname "$0")/cluster.sh"
. "$(dirname "$0")/hosts.sh"
hosts_start

same_text() {
    local one two name="2 hosts of 2 ranks tell the same story as one of 4"
    local story=(generate --model "$model" --prompt "Once upon a time" --max-tokens 40 --temperature 0.8 --seed 7)
    one=$(OMPI_MCA_btl=self,vader timeout 120 mpirun -np 4 "$lockstep" "${story[@]}" 2>&1)
    two=$(timeout 120 "${launch[@]}" -np 4 "$lockstep" "${story[@]}" 2>"$dir/err")
    check "$name" "$one / $two / $(cat "$dir/err")" [ -n "$one" -a "$one" = "$two" ]
}

start() { # COMMAND OPTIONS...: on 4 ranks -> $pid, $mark
    mark=hosts-$$-$n_cases
    rm -f "$dir/out" "$dir/err"
    LOCKSTEP_TEST_MARK=$mark "${launch[@]}" -x LOCKSTEP_TEST_MARK -np 4 "$lockstep" "$@" --model "$model" \
        >"$dir/out" 2>"$dir/err" &
    pid=$!
}
start_story() { # and waits until it is under way
    begin_story start generate --prompt Once --max-tokens 100000 --ignore-eos --kv-cache-memory-bytes 2G --progress always
}
killed_rank() { # RANK HOST
    local victim
    start_story
    victim=$(grep -lsazx "OMPI_COMM_WORLD_RANK=$1" $(marked "$mark" | sed 's|.*|/proc/&/environ|') | cut -d/ -f3)
    kill -9 $victim
    check_end "rank $1 on $2 is killed" "$1" "$2" "its process ended without a word" 10 "8 137"
}

# A batch is running: its finished results stay.
lost_host() {
    local i
    for ((i = 0; i < 120; i++)); do echo "{\"id\":\"p$i\",\"prompt\":\"Once upon a day $i\",\"max_tokens\":24}"; done >"$dir/in"
    start batch --input "$dir/in" --output "$dir/results" --plain --max-batch 8
    wait_until 30 larger "$dir/results" 1000
    hosts_link h2 down
    check_end "the link to h2 is cut" '[23]' h2 "its host has not answered for" 15 "8 205"
    hosts_link h2 up
    check_journal
}

check_journal() {
    local name="the batch whose host was lost resumes on one host" before status
    before=$(wc -l <"$dir/results")
    OMPI_MCA_btl=self,vader timeout 240 mpirun -np 2 "$lockstep" batch --model "$model" --input "$dir/in" \
        --output "$dir/results" --plain >"$dir/out" 2>"$dir/err"
    status=$?
    echo "# $before results before, $(wc -l <"$dir/results") after"
    check "$name" "status $status, $before results before: $(cat "$dir/err")" [ $status = 0 -a "$before" -gt 0 -a "$before" -lt 120 ]
    check "every id once" "$(wc -l <"$dir/results") lines" [ "$(grep -o '"id":"p[0-9]*"' "$dir/results" | sort -u | wc -l)" = 120 -a \
        "$(wc -l <"$dir/results")" = 120 ]
}

short_break() {
    local before begun name="the link to h2 is cut for 5 s: the story goes on"
    start_story
    hosts_link h2 down
    sleep 5 # the outage under test
    before=$(stat -c %s "$dir/out")
    hosts_link h2 up
    begun=$(now)
    wait_until 10 larger "$dir/out" $((before + 300)) || :
    echo "# went on within $(since "$begun") s"
    check "$name" "$(cat "$dir/err")" larger "$dir/out" $((before + 300))
    kill -TERM $pid
    wait_until 10 ended
    wait $pid 2>/dev/null
    wait_until 5 none_marked "$mark"
}

same_text
killed_rank 3 h2
killed_rank 0 h1
lost_host
short_break
done_testing
