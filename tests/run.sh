#!/usr/bin/env bash
# Runs every test and counts. Each binary prints TAP ("ok 3 - name"); one that crashes or times out counts as a failure
# of its own, and one that cannot run here ("ok 1 - name # SKIP reason") is counted as skipped.
# Usage: tests/run.sh BUILD_DIR [all|unit|spmd|parity|fail|e2e|attack|door|cluster|soak|sanitizers|fuzz ... | long | soak-batch]
# Ends with a line "N passed, M failed", after "K SKIPPED" if there are any.
set -u
cd "$(dirname "$0")/.."
build=$1
shift
suites=${*:-all}
logs=$build/test-logs
mkdir -p "$logs"
export CMOCKA_MESSAGE_OUTPUT=TAP
export LOCKSTEP_BINARY=${LOCKSTEP_BINARY:-$build/lockstep} LOCKSTEP_BUILD=$build
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# More ranks than cores: let them yield. Shared memory only, no network.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_hwloc_base_binding_policy=none
passed=0
failed=0
skipped=0

# run NAME SECONDS COMMAND...
run() {
    local name=$1 limit=$2 log=$logs/${1//[\/ ]/-}.log started=$SECONDS
    shift 2
    timeout -k 5 "$limit" "$@" >"$log" 2>&1
    local status=$? good bad reason
    reason=$(sed -n 's/^ok 1 - .*# SKIP //p' "$log")
    if [ -n "$reason" ]; then
        skipped=$((skipped + 1))
        echo "SKIPPED $name: $reason"
        return
    fi
    good=$(grep -cE '^ok ' "$log")
    bad=$(grep -cE '^not ok ' "$log")
    if [ $status != 0 ] && [ "$bad" = 0 ]; then
        bad=1
        echo "not ok - $name ended with status $status" >>"$log"
    fi
    if [ $status = 0 ] && [ "$good" = 0 ]; then
        bad=1
        echo "not ok - $name ran no test" >>"$log"
    fi
    passed=$((passed + good))
    failed=$((failed + bad))
    if [ "$bad" != 0 ]; then
        echo "FAIL $name ($good passed, $bad failed, status $status, $((SECONDS - started)) s): $log"
        grep -nE -B6 '^not ok ' "$log" | tail -40
        tail -5 "$log"
    else
        echo "ok   $name ($good tests, $((SECONDS - started)) s)"
    fi
}

wants() {
    case " $suites " in *" $1 "* | *" all "*) return 0 ;; esac
    return 1
}

binaries() { # DIR: the test programs that were built from tests/DIR
    local source
    for source in tests/"$1"/test_*.c; do
        [ -e "$source" ] && echo "$2/${source%.c}"
    done
}

if wants unit; then
    for kind in unit ops; do
        for test in $(binaries $kind "$build"); do run "$kind/${test##*/}" 300 "$test"; done
    done
fi
if wants spmd; then
    for test in $(binaries spmd "$build"); do
        for n in 1 2 3 4; do run "spmd/${test##*/} on $n ranks" 120 mpirun -q -n $n "$test"; done
    done
fi
if wants parity; then
    for n in 1 2 3 4 5 8; do run "parity on $n ranks" 300 mpirun -q -n $n "$build/tests/parity/test_parity"; done
fi
if wants fail; then
    for test in $(binaries fail "$build"); do run "fail/${test##*/}" 300 "$test"; done
fi
if wants e2e; then
    for test in $(binaries e2e "$build"); do run "e2e/${test##*/}" 300 "$test"; done
fi
if wants attack; then
    for test in $(binaries attack "$build"); do run "attack/${test##*/}" 600 "$test"; done
fi
if wants door; then # what a newcomer does before the first run: packages, installing, pages, documents
    for test in tests/door/test_*.sh; do run "door/$(basename "${test%.sh}")" 300 "$test"; done
fi
if wants cluster; then # two hosts, and a real Slurm
    for test in tests/cluster/test_*.sh; do run "cluster/$(basename "${test%.sh}")" 240 "$test"; done
    grep -h '^# .*status ' "$logs"/cluster-*.log
fi
if wants soak; then # the GPUs' long checks, short and on the CPU
    for n in 1 2; do SOAK_SECONDS=4 run "soak on $n ranks" 120 mpirun -q -n $n "$build/tests/soak/test_soak"; done
    run "the same tokens on 2 ranks" 300 "$build/tests/gpu/test_same_tokens" cpu 2
    for n in 1 3; do run "soak/test_loading on $n ranks" 60 mpirun -q -n $n "$build/tests/soak/test_loading"; done
    SOAK_SECONDS=4 run "soak/test_serve_load" 240 "$build/tests/soak/test_serve_load"
    SERVE_MESSAGES=3000 run "soak/test_serve_hostile" 180 "$build/tests/soak/test_serve_hostile"
fi
if wants soak; then # a batch that is ended and resumed, a few times
    BATCH_KILLS=6 BATCH_PROMPTS=200 run "soak/test_batch_kill" 240 "$build/tests/soak/test_batch_kill"
fi
if [ "$suites" = soak-batch ]; then # make soak-batch: the same a hundred times with 2000 lines, with its numbers
    BATCH_KILLS=${BATCH_KILLS:-100} BATCH_PROMPTS=${BATCH_PROMPTS:-2000} \
        run "soak/test_batch_kill" 3700 "$build/tests/soak/test_batch_kill"
    grep -h '^# ' "$logs"/soak-test_batch_kill.log
fi
if [ "$suites" = long ]; then # make soak: what takes minutes, with its numbers
    for n in 1 2; do SOAK_SECONDS=${SOAK_SECONDS:-120} run "soak on $n ranks" 400 mpirun -q -n $n "$build/tests/soak/test_soak"; done
    SOAK_SECONDS=${SOAK_SECONDS:-120} run "soak/test_serve_load" 900 "$build/tests/soak/test_serve_load"
    SERVE_MESSAGES=${SERVE_MESSAGES:-100000} run "soak/test_serve_hostile" 1800 "$build/tests/soak/test_serve_hostile"
    grep -h '^# ' "$logs"/soak*.log
fi
if wants sanitizers; then
    san=$build-san
    # Open MPI itself leaks at exit; everything else is fatal.
    export ASAN_OPTIONS=detect_leaks=0:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1
    for kind in unit ops; do
        for test in $(binaries $kind "$san"); do LOCKSTEP_SANITIZED=1 run "sanitized $kind/${test##*/}" 600 "$test"; done
    done
    for test in $(binaries spmd "$san"); do run "sanitized spmd/${test##*/} on 2 ranks" 300 mpirun -q -n 2 "$test"; done
    run "sanitized parity on 2 ranks" 400 mpirun -q -n 2 "$san/tests/parity/test_parity"
fi
if wants fuzz; then
    seconds=${FUZZ_SECONDS:-60}
    mkdir -p "$build/fuzz"
    for target in tests/fuzz/fuzz_*.c; do
        name=$(basename "${target%.c}")
        mkdir -p "$build/fuzz/corpus-$name"
        echo "$name"
    done | xargs -P 2 -I{} sh -c '
        build=$1 seconds=$2 name=$3
        seeds=tests/fuzz/corpus/${name#fuzz_}
        words=tests/fuzz/${name#fuzz_}.dict
        [ -e "$words" ] && words=-dict=$words || words=-verbosity=1
        if "$build/fuzz/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=16384 \
            -print_final_stats=1 "$words" -artifact_prefix="$build/fuzz/$name-" \
            "$build/fuzz/corpus-$name" "$seeds" >"$build/fuzz/$name.log" 2>&1
        then echo "ok 1 - $name: $(sed -n "s/stat::number_of_executed_units: *//p" "$build/fuzz/$name.log") inputs in $seconds s"
        else echo "not ok 1 - $name: see $build/fuzz/$name.log"; tail -30 "$build/fuzz/$name.log"; fi
    ' sh "$build" "$seconds" {} >"$logs/fuzz-results.txt" 2>&1
    run fuzz 30 cat "$logs/fuzz-results.txt"
fi
echo
[ $skipped = 0 ] || echo "$skipped SKIPPED"
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
