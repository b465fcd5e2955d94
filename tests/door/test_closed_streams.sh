#!/usr/bin/env bash
# tests/door/test_closed_streams.sh - standard input, output or error closed, as by <&- or by what starts a daemon:
# nothing waits for them, a failure names them, and their texts go to no other file.
. "$(dirname "$0")/../cluster/cluster.sh"
make_folder
cd "$dir" || exit 1
echo '{"id": "a", "prompt": "Once", "max_tokens": 2}' >in
batch=(timeout $((20 * $(crowding))) "$lockstep" batch --model "$model" --plain)

# ends NAME STATUS WORDS: status and standard error of the last command.
ends() {
    local status=$? said=no
    grep -q "$3" err && said=yes
    check "$1" "status $status, expected $2 and \"$3\": $(cat err)" [ $status = "$2" -a $said = yes ]
}

"${batch[@]}" --input - --output closed.out <&- 2>err
ends "batch: requests from a closed standard input" 5 "cannot read: Bad file descriptor"
"${batch[@]}" --input in --output - >&- 2>err
ends "batch: results to a closed standard output" 5 "cannot write: Bad file descriptor"
"${batch[@]}" --input in --output out <&- >&- 2>&-
check "batch without any: only results in its file" "$(cat out)" [ "$(wc -l <out)" = 1 -a "$(grep -c '^{"id":"a"' out)" = 1 ]
"$lockstep" inspect --model "$model" >&- 2>err
ends "inspect: closed standard output" 5 "standard output: cannot write"
"$lockstep-client" --version >&- 2>err
ends "lockstep-client: closed standard output" 5 "cannot write to standard output"
done_testing
