#!/bin/sh
# Runs one fuzzer and prints the result as one line of TAP. Usage: tests/fuzz/run.sh BUILD_DIR NAME seconds|inputs COUNT
#
# "seconds" searches from a random seed and keeps the inputs that it finds. "inputs" starts from a fixed seed and ends after this number of
# inputs, however fast the machine is, so that a commit is judged by its own changes rather than by luck.
set -u
build=$1 name=$2 unit=$3 count=$4
seeds=tests/fuzz/corpus/${name#fuzz_}
words=tests/fuzz/${name#fuzz_}.dict
log=$build/fuzz/$name.log
learnt=$build/fuzz/corpus-$name
limit=-max_total_time=$count how="from a random seed"
if [ "$unit" = inputs ]; then
    learnt=$build/fuzz/corpus-$name-fixed
    limit=-runs=$count how="from seed 1"
    rm -rf "$learnt"
fi
mkdir -p "$learnt"
export FUZZ_SEEDS="$learnt" # for a fuzzer that makes its seeds
set -- "$learnt"
[ -d "$seeds" ] && set -- "$@" "$seeds"
[ -e "$words" ] && set -- "-dict=$words" "$@"
[ "$unit" = inputs ] && set -- -seed=1 "$@"
if "$build/fuzz/$name" "$limit" -timeout=60 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 \
    -artifact_prefix="$build/fuzz/$name-" "$@" >"$log" 2>&1; then
    echo "ok 1 - $name: $(sed -n 's/stat::number_of_executed_units: *//p' "$log") inputs $how"
else
    tail -30 "$log"
    echo "not ok 1 - $name: see $log"
    exit 1
fi
