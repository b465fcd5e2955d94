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

mkdir -m 700 "$dir/jobs" && cd "$dir/jobs" || exit 1
export MODEL=$model LOCKSTEP=$lockstep LAUNCH="mpirun -n 2"
"${lockstep}-gateway" --backend "$dir/jobs" --listen "unix:$dir/http.sock" 2>"$dir/gateway.log" &
gateway=$!
at_end 'kill $gateway 2>/dev/null; wait $gateway'
start_job() { # NUMBER -> $job
    SLURM_JOB_ID=$1 bash "$root/scripts/slurm/serve.sbatch" >"$dir/job-$1.log" 2>&1 &
    job=$!
    at_end "kill $job 2>/dev/null; wait $job"
    wait_until 60 grep -q "lockstep-$1.json.* is ready" "$dir/gateway.log"
}
story() { curl -sfm 30 --unix-socket "$dir/http.sock" http://x/v1/completions -d '{"prompt": "Once", "max_tokens": 5}'; }
start_job 1
check "a job is found, with its keys" "$(tail -qn3 "$dir/gateway.log" "$dir/job-1.log")" grep -q '"completion_tokens":5' <<<"$(story)"
first=$job
start_job 2
kill -USR1 $first # as Slurm does before the time limit
wait $first; status=$?
check "it drains and ends with status 0" "$(tail -qn3 "$dir/job-1.log")" [ $status = 0 ]
check "the next job answers" "$(tail -qn3 "$dir/gateway.log" "$dir/job-2.log")" grep -q '"completion_tokens":5' <<<"$(story)"
kill $gateway
wait $gateway; status=$?
check "SIGTERM ends the gateway with status 0" "$(tail -qn3 "$dir/gateway.log")" [ $status = 0 ]
done_testing
