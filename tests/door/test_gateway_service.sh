#!/usr/bin/env bash
# tests/door/test_gateway_service.sh - lockstep-gateway as a service: its systemd unit, and jobs of scripts/slurm/serve.sbatch that hand
# over to each other by a folder, as in docs/gateway.md; mpirun in place of srun.
. "$(dirname "$0")/../cluster/cluster.sh"
needs_commands curl
make_folder
unit=$dir/lockstep-gateway.service
sed "s|/usr/local/bin/lockstep-gateway|${lockstep}-gateway|" "$root/packaging/systemd/lockstep-gateway.service" >"$unit"
if command -v systemd-analyze >/dev/null; then
    text=$(systemd-analyze verify --man=no "$unit" 2>&1); status=$?
    check "systemd accepts the unit" "$text" [ $status = 0 -a -z "$(grep -F "${unit##*/}" <<<"$text")" ]
else
    ok "the systemd unit # SKIP systemd-analyze is not installed"
fi
# The options in the unit's comment exist in the program.
options=$(sed -n 's/^# *OPTIONS=//p' "$unit" | grep -o -- '--[a-z-]*')
help=$("${lockstep}-gateway" --help)
for option in $options; do check "$option of the unit exists" "$help" grep -q -e "$option " <<<"$help"; done
# The units may write where their comments say, and the proxy's user may connect: it is in the socket's group.
serve=$root/packaging/systemd/lockstep-serve@.service
for path in $(sed -n 's/^# *OPTIONS=//p' "$serve" "$unit" | grep -oE '(unix:|--(metrics-file|access-log) )/[^ ]*' | sed 's/^[^/]*//'); do
    check "a unit may write $path" "$path" grep -qE '^/(run|var/log)/lockstep-(gateway|stories)/' <<<"$path"
done
n_folders=$(grep -cE '^(Runtime|Logs)Directory=lockstep-%i$' "$serve")
check "the unit of serve has folders of its own" "$(cat "$serve")" [ "$n_folders" = 2 ]
check "mpirun in it need not look up its user" "$(cat "$serve")" grep -q '^Environment=HOME=/' "$serve"
mask=$(sed -n 's/^UMask=//p' "$unit")

mkdir -m 700 "$dir/jobs" && cd "$dir/jobs" || exit 1
export LOCKSTEP_TEST_MARK=service.$$ # of all jobs, so that the end of the test is theirs, too
export MODEL=$model LOCKSTEP=$lockstep LAUNCH="mpirun -n 2"
(umask "${mask:-0022}" && exec "${lockstep}-gateway" --backend "$dir/jobs" --listen "unix:$dir/http.sock") 2>"$dir/gateway.log" &
gateway=$!
at_end 'kill $(marked $LOCKSTEP_TEST_MARK) 2>/dev/null; wait_until 30 none_marked $LOCKSTEP_TEST_MARK || kill -9 $(marked $LOCKSTEP_TEST_MARK)'
start_job() { # NUMBER -> $job
    SLURM_JOB_ID=$1 bash "$root/scripts/slurm/serve.sbatch" >"$dir/job-$1.log" 2>&1 &
    job=$!
    wait_until 60 grep -qE "lockstep-$1.json(.* is ready|: the host name)" "$dir/gateway.log"
    check "the gateway finds job $1" "$(logs $1)" grep -q "lockstep-$1.json.* is ready" "$dir/gateway.log"
    [ $n_failed = 0 ] || exit 1
}
logs() { tail -qn3 "$dir/gateway.log" "$dir/job-$1.log"; }
# ended_with STATUS PID: within a minute.
ended_with() {
    local pid=$2
    wait_until 60 ended || return 1
    wait $pid
    [ $? = $1 ]
}
story() { curl -sfm 30 --unix-socket "$dir/http.sock" http://x/v1/completions -d '{"prompt": "Once", "max_tokens": 5}'; }
start_job 1
check "the socket's group may connect" "$(stat -c %A "$dir/http.sock")" [ "$(stat -c %a "$dir/http.sock")" = 770 ]
check "a job answers, with its keys" "$(logs 1)" grep -q '"completion_tokens":5' <<<"$(story)"
first=$job
start_job 2
kill -USR1 $first # as Slurm does before the time limit
check "it drains and ends with status 0" "$(logs 1)" ended_with 0 $first
check "the next job answers" "$(logs 2)" grep -q '"completion_tokens":5' <<<"$(story)"
kill $gateway
check "SIGTERM ends the gateway with status 0" "$(logs 2)" ended_with 0 $gateway
done_testing
