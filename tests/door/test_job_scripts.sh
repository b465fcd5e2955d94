#!/usr/bin/env bash
# tests/door/test_job_scripts.sh - scripts/pbs and scripts/flux with fakes of qstat, qrerun and flux in front of the real mpirun and lockstep:
# the resources that they request, a batch that finishes, one out of time that is requeued. (A real PBS or Flux is not available here.)
. "$(dirname "$0")/../cluster/cluster.sh"
make_folder
mkdir "$dir/bin"
fake() { printf '#!/bin/bash\n%s\n' "$2" >"$dir/bin/$1" && chmod +x "$dir/bin/$1"; }
fake qstat 'printf "Job Id: 1\n    Resource_List.walltime = ${WALLTIME:-00:10:00}\n"'
fake qrerun 'echo "qrerun $*" >>'"$dir/log"
fake flux 'case "$1 $2" in "resource list") echo 1 ;; "job timeleft") echo "${LEFT:-600}" ;;
    run*) echo "flux $*" >>'"$dir/log"'; while [ "$1" != "$LOCKSTEP" ]; do shift; done; exec mpirun -n 2 "$@" ;; esac'
for i in 1 2 3; do echo "{\"id\":\"p$i\",\"prompt\":\"Once upon a day $i\",\"max_tokens\":8}"; done >"$dir/in.jsonl"
printf 'localhost\nlocalhost\n' >"$dir/nodes"
export PATH=$dir/bin:$PATH LOCKSTEP=$lockstep MODEL=$model INPUT=in.jsonl OUTPUT=out.jsonl PBS_O_WORKDIR=$dir PBS_JOBID=7 PBS_NODEFILE=$dir/nodes
lines() { cat "$dir/out.jsonl" 2>/dev/null | wc -l; }

run() { # SCRIPT [NAME=VALUE...] -> $text, $status
    local script=$root/scripts/$1
    shift
    rm -f "$dir/out.jsonl"* "$dir/log"
    touch "$dir/log"
    text=$(cd "$dir" && env "$@" timeout 100 bash "$script" 2>&1)
    status=$?
}
run pbs/batch.pbs
check "PBS: a batch" "status $status, $(lines) lines: $text" [ "$status $(lines)" = "0 3" -a ! -s "$dir/log" ]
run pbs/batch.pbs WALLTIME=00:00:01
check "PBS: out of time, it is requeued" "status $status: $(cat "$dir/log") $text" [ "$status" = 75 -a "$(cat "$dir/log")" = "qrerun 7" ]
run pbs/batch.pbs WALLTIME=00:00:01 REQUEUE=no
check "PBS: not requeued if told so" "status $status: $(cat "$dir/log") $text" [ "$status" = 75 -a ! -s "$dir/log" ]
run pbs/batch.pbs OPTIONS=--nonsense
check "PBS: a usage error is not requeued" "status $status: $(cat "$dir/log") $text" [ "$status" = 2 -a ! -s "$dir/log" ]
run flux/batch.flux RANKS=2
check "Flux: a batch" "status $status, $(lines) lines: $text" [ "$status $(lines)" = "0 3" ]
check "Flux: ranks and time are requested" "$(cat "$dir/log")" grep -q -e '-N 1 -n 2 .*--max-walltime 600' "$dir/log"
run flux/batch.flux LEFT=1
check "Flux: out of time, status 75" "status $status: $text" [ "$status" = 75 ]
done_testing
