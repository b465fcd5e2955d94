# tests/cluster/cluster.sh - sourced by the tests here: TAP output, a temporary folder, complete clean-up.
#
# Functions that start something register the command that stops it with `at_end`; the trap runs these in reverse, also
# after a failure or a signal. A test that cannot run here says so with skip_all, which tests/run.sh counts.

set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
lockstep=$(realpath "${LOCKSTEP_BINARY:-$root/build/cpu/lockstep}")
export PATH=$PATH:/usr/sbin:/sbin
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_pml=ob1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_orte_execute_quiet=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
n_cases=0
n_failed=0
endings=()

at_end() { endings+=("$1"); }

finish() {
    local status=$? i
    trap - EXIT INT TERM HUP
    for ((i = ${#endings[@]} - 1; i >= 0; i--)); do eval "${endings[i]}"; done
    [ "$status" = 0 ] && [ $n_failed != 0 ] && status=1
    exit $status
}
trap finish EXIT

# The demo model with enough positions for stories that do not end by themselves.
model=$(mktemp -d)/lockstep-stories
at_end 'rm -rf "${model%/*}"'
cp -r "$root/demo/lockstep-stories" "$model"
sed -i 's/"max_position_embeddings": 1024/"max_position_embeddings": 1000000/' "$model/config.json"
trap 'exit 129' INT TERM HUP

# ok NAME, not_ok NAME REASON, check NAME REASON COMMAND...: one case, one line.
ok() { n_cases=$((n_cases + 1)); echo "ok $n_cases - $1"; }
not_ok() {
    n_cases=$((n_cases + 1)) n_failed=$((n_failed + 1))
    echo "# $2" | head -c 4000 | sed '2,$s/^/# /'
    echo
    echo "not ok $n_cases - $1"
}
check() {
    local name=$1 reason=$2
    shift 2
    if "$@"; then ok "$name"; else not_ok "$name" "$reason"; fi
}
skip_all() { echo "ok 1 - $(basename "$0") # SKIP $*"; exit 0; }
done_testing() { echo "1..$n_cases"; }

needs_commands() {
    local command missing=
    for command in "$@"; do command -v "$command" >/dev/null || missing="$missing $command"; done
    [ -z "$missing" ] || skip_all "not installed:$missing (make deps-check, make deps-cluster)"
}
needs_root() { [ "$(id -u)" = 0 ] || skip_all "needs root"; }

make_folder() { # -> $dir, which other users may enter, as munged requires
    dir=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-cluster.XXXXXX") && chmod 755 "$dir" || exit 1
    at_end 'rm -rf --one-file-system "$dir"'
}

# wait_until SECONDS COMMAND...: polls; false: the time is over.
wait_until() {
    local end=$((SECONDS + $1 * $(crowding)))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        read -rt 0.1 <> <(:) || :
    done
}
# The number of processes that want each core, over the last minute or now, at least 1: time limits are multiplied by
# it.
crowding() {
    awk -v cores="$(nproc)" '{ now = $4 + 0; n = int(($1 > now ? $1 : now) / cores + 0.5); print n < 1 ? 1 : n }' /proc/loadavg
}
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }
in_time() { awk -v took="$1" -v most=$(($2 * $(crowding))) 'BEGIN { exit !(took <= most) }'; } # TOOK SECONDS

# Processes of this test with this mark in their environment; a zombie has none. grep itself must not have it.
marked() { LOCKSTEP_TEST_MARK= grep -lsazx "LOCKSTEP_TEST_MARK=$1" /proc/[0-9]*/environ | cut -d/ -f3; }
none_marked() { [ -z "$(marked "$1")" ]; }

# ---- jobs that end by a failure: $pid is the launcher's process, $mark the job's mark, $dir/err its standard error ----

# The launcher is started again, at most twice, if Open MPI itself could not connect its ranks or daemons: it reports
# "connect() ... failed: Operation now in progress" or dies of it occasionally (4.1.4), which is not under test here.
begin_story() { # FUNCTION ARGUMENTS: the function starts it
    local try
    for try in 1 2 3; do
        "$@"
        wait_until 40 begun_or_ended && larger "$dir/out" 500 && return
        [ $try -lt 3 ] && grep -qE 'connect\(\) to .* failed|unable to complete a TCP connection' "$dir/err" || break
        echo "# Open MPI could not connect, trying again: $(grep -m1 -E 'connect\(\) to|unable to complete' "$dir/err")"
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        wait_until 10 none_marked "$mark"
    done
    not_ok "a story begins on 2 hosts" "$(cat "$dir/out" "$dir/err")"
    exit 1
}
begun_or_ended() { larger "$dir/out" 500 || ended; }
larger() { [ "$(stat -c %s "$1" 2>/dev/null || echo 0)" -gt "$2" ]; }
ended() { ! kill -0 "$pid" 2>/dev/null; }

# await_failure: the end of failing job $pid -> its $status, the seconds that it $took, and its last $words, when all of it is gone.
await_failure() {
    local begun
    begun=$(now)
    wait_until 30 ended || kill -9 $pid
    wait $pid
    status=$?
    took=$(since "$begun")
    wait_until 5 none_marked "$mark"
    words=$(tr '\r' '\n' <"$dir/err" | grep -a 'lockstep: fatal: ')
}

# check_end NAME RANK HOST WORDS SECONDS STATUSES: the job of 4 ranks ends in time, with one line that names them, and nothing is left.
check_end() {
    local took line status words
    await_failure
    line="lockstep: fatal: rank $2/4 on $3: $4" # RANK may be a pattern
    echo "# $1: status $status after $took s; $words"
    if [ "$(wc -l <<<"$words")" != 1 ] || ! grep -qE "$line.*; last collective: .*; device cpu$" <<<"$words"; then
        not_ok "$1" "not one line \"$line...\": $(cat "$dir/err")"
    elif ! in_time "$took" "$5"; then not_ok "$1" "ended after $took s"
    elif [[ " $6 " != *" $status "* ]]; then not_ok "$1" "status $status"
    elif ! none_marked "$mark"; then not_ok "$1" "left: $(ps -o pid,args -p "$(marked "$mark" | paste -sd,)")"
    else ok "$1"; fi
}

