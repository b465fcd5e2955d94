#!/bin/sh
# Runs one fuzzer for some seconds, and prints the result as one line of TAP. Usage: tests/fuzz/run.sh BUILD_DIR NAME SECONDS
set -u
build=$1 name=$2 seconds=$3
seeds=tests/fuzz/corpus/${name#fuzz_}
words=tests/fuzz/${name#fuzz_}.dict
log=$build/fuzz/$name.log
mkdir -p "$build/fuzz/corpus-$name"
set -- "$build/fuzz/corpus-$name"
[ -d "$seeds" ] && set -- "$@" "$seeds"
[ -e "$words" ] && set -- "-dict=$words" "$@"
if "$build/fuzz/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 \
    -artifact_prefix="$build/fuzz/$name-" "$@" >"$log" 2>&1; then
    echo "ok 1 - $name: $(sed -n 's/stat::number_of_executed_units: *//p' "$log") inputs in $seconds s"
else
    tail -30 "$log"
    echo "not ok 1 - $name: see $log"
    exit 1
fi
