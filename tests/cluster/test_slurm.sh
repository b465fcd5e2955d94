#!/usr/bin/env bash
# tests/cluster/test_slurm.sh - under a real Slurm (slurm.sh): srun and mpirun in sbatch tell the same story; the
# project's own job scripts: a batch is told to end before its time limit, is requeued and resumes to the end; a job
# array; a server with a client in a second step; scancel of both.
. "$(dirname "$0")/cluster.sh"
. "$(dirname "$0")/slurm.sh"
slurm_start
slurm_started=$SECONDS
mkdir "$dir/work" && cd "$dir/work" || exit 1
scripts=$root/scripts/slurm
export LOCKSTEP=$lockstep MODEL=$model OMPI_MCA_btl=self,vader
story=(generate --model "$model" --prompt "Once upon a time" --max-tokens 40 --temperature 0.8 --seed 7)

make_input() { # FILE LINES TOKENS
    local i
    for ((i = 0; i < $2; i++)); do echo "{\"id\":\"p$i\",\"prompt\":\"Once upon a day $i\",\"max_tokens\":$3}"; done >"$1"
}
submit() { job=$(sbatch --parsable "$@") || { not_ok "sbatch $*" "sbatch refuses"; exit 1; }; } # -> $job
field() { scontrol show job "$1" | grep -o "$2=[^ ]*" | cut -d= -f2; }                         # JOB FIELD
is_state() { [ "$(field "$1" JobState)" = "$2" ]; }
is_over() { [[ "$(field "$1" JobState)" =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)$ ]]; }
lines() { cat "$@" 2>/dev/null | wc -l; }
has_lines() { [ "$(lines "$1")" -ge "$2" ]; }
ids() { cat "$@" | grep -o '"id":"p[0-9]*"' | sort -u | wc -l; }

# check_once NAME N FILE...: whole lines of N different ids, each once.
check_once() {
    local name=$1 n=$2
    shift 2
    check "$name" "$(lines "$@") lines, $(ids "$@") ids, expected $n" [ "$(lines "$@")" = "$n" -a "$(ids "$@")" = "$n" ]
}

same_stories() {
    local alone one two
    alone=$(timeout 120 mpirun -np 2 "$lockstep" "${story[@]}" 2>err)
    one=$(timeout 240 srun --mpi=pmix -N1 -n2 "$lockstep" "${story[@]}" 2>>err)
    check "srun --mpi=pmix: the story of mpirun" "$alone / $one / $(cat err)" [ -n "$alone" -a "$alone" = "$one" ]
    two=$(OMPI_MCA_btl=self,tcp timeout 240 srun --mpi=pmix -N2 -n2 "$lockstep" "${story[@]}" 2>>err)
    check "srun on two nodes: the same" "$alone / $two / $(cat err)" [ "$alone" = "$two" ]
    printf '#!/bin/sh\nexec mpirun "$LOCKSTEP" "$@"\n' >mpirun.job
    timeout 240 sbatch --quiet -W -N1 -n2 -o mpirun.out mpirun.job "${story[@]}"
    check "mpirun in sbatch: the same" "$alone / $(cat mpirun.out)" [ "$alone" = "$(cat mpirun.out)" ]
}

# Open MPI 4 ends each rank in MPI_Init, Open MPI 5 lets each run alone.
no_pmix() {
    timeout 240 srun --mpi=none -N1 -n2 "$lockstep" "${story[@]}" >none.out 2>none.err
    check "srun --mpi=none: a line names --mpi=pmix, and no rank runs alone" "status $?, $(cat none.out none.err)" \
        [ "$(grep -c "lockstep: warning: srun provides no PMIx.*use srun --mpi=pmix" none.err)" = 1 -a ! -s none.out ]
}

# A rank killed under srun is named, and the step's end is srun's.
killed_under_srun() {
    local pid victim name="srun: a killed rank is named"
    srun --mpi=pmix -K1 -N1 -n3 "$lockstep" generate --model "$model" --prompt Once --max-tokens 100000 --ignore-eos \
        --kv-cache-memory-bytes 2G --progress always >kill.out 2>kill.err &
    pid=$!
    wait_until 20 test -s kill.out
    victim=$(grep -lsazx 'SLURM_PROCID=1' $(slurm_processes | sed 's|.*|/proc/&/environ|') | cut -d/ -f3 |
        while read -r p; do [ "$(cat "/proc/$p/comm")" = lockstep ] && echo "$p"; done)
    local begun
    begun=$(now)
    kill -9 $victim
    wait $pid
    echo "# srun ended with status $? after $(since "$begun") s"
    check "$name" "$(cat kill.err)" grep -q 'fatal: rank 1/3 on .*ended without a word.*last collective' kill.err
    check "srun: the step ends within 10 s" "$(since "$begun") s" in_time "$(since "$begun")" 10
}

# Slurm itself sends SIGUSR1, as requested, 57 s before the limit of a minute. It checks limits every 30 s, so the job
# is submitted four to six seconds before that, earlier on a busy machine: it takes one or two to start, and a signal
# that comes then ends it. At most 18 s: the machine may have been busy only before, and then processes 3000 lines in 30
# s. Slurm makes a requeued job wait for two minutes, the test for two seconds. If it begins in the second in which its
# first run ended, it is killed ("non-startable: Job credential revoked": Slurm compares whole seconds).
batch_until_done() {
    make_input batch.in 3000 24
    local lead
    lead=$(awk -v cores="$(nproc)" '{ s = 5 * ($1 > cores ? $1 / cores : 1); print int(s < 18 ? s : 18) }' /proc/loadavg)
    wait_until 31 eval '[[ $(((SECONDS - slurm_started + lead) % 30)) =~ ^(29|0|1)$ ]]'
    INPUT=batch.in OUTPUT=batch.out submit --ntasks-per-node=2 --time=1 --signal=B:USR1@57 "$scripts/batch.sbatch" --plain \
        --max-batch 4 --max-inflight 8 --ignore-eos
    wait_until 50 eval 'is_state $job PENDING && [ "$(field $job Restarts)" = 1 ] || is_over $job'
    local before
    before=$(lines batch.out)
    echo "# $before of 3000 results when it was requeued"
    check "SIGUSR1 before the limit: requeued" "$(cat lockstep-batch-"$job".log; scontrol show job "$job")" \
        [ "$(field "$job" Restarts)" = 1 -a "$before" -gt 0 -a "$before" -lt 3000 ]
    scontrol update job="$job" StartTime=now+2 TimeLimit=10
    wait_until 300 is_over "$job"
    check "and it ends with status 0" "$(scontrol show job "$job"; grep "JobId=$job" "$dir/c.log"; cat lockstep-batch-"$job".log)" \
        [ "$(field "$job" ExitCode)" = 0:0 ]
    check_once "every id once" 3000 batch.out
}

# Without requeueing the status reports it; mpirun in the batch step passes the signal on, too.
batch_status_75() {
    make_input tempfail.in 400 24
    INPUT=tempfail.in OUTPUT=tempfail.out LAUNCH=mpirun REQUEUE='' submit --ntasks-per-node=2 "$scripts/batch.sbatch" \
        --plain --max-batch 4 --max-inflight 8
    wait_until 30 has_lines tempfail.out 8
    scancel --batch --signal=USR1 "$job"
    wait_until 30 is_over "$job"
    check "drained by hand, under mpirun: status 75" "$(field "$job" ExitCode) $(cat lockstep-batch-"$job".log)" \
        [ "$(field "$job" ExitCode)" = 75:0 -a "$(lines tempfail.out)" -lt 400 ]
}

array_of_four() {
    make_input array.in 60 16
    INPUT=array.in OUTPUT='array-{task}.out' submit --array=0-3 "$scripts/array.sbatch" --plain
    wait_until 60 eval '[ -z "$(squeue -h -j $job)" ]'
    echo "# results of the tasks: $(wc -l array-?.out | awk '/out/ { print $1 }' | tr '\n' ' ')"
    check_once "an array of 4: every id once in 4 files" 60 array-0.out array-1.out array-2.out array-3.out
}

serve_and_cancel() {
    local text begun
    RENDEZVOUS=$PWD/serve.json submit --ntasks-per-node=2 "$scripts/serve.sbatch"
    wait_until 30 test -s serve.json
    text=$(timeout 80 srun --jobid="$job" --overlap -N1 -n1 "$(dirname "$lockstep")/lockstep-client" --rendezvous serve.json \
        --temperature 0 --max-tokens 12 "Once upon a time" 2>&1)
    check "a client in a second step finds the server" "$text; $(cat lockstep-serve-"$job".log)" \
        [ -n "$text" -a "${text/error/}" = "$text" ]
    begun=$(now)
    scancel "$job"
    wait_until 40 slurm_is_idle
    echo "# scancel of the server: idle after $(since "$begun") s"
    check "scancel of the server: it ends, its file goes" "$(ls; cat lockstep-serve-"$job".log)" \
        [ ! -e serve.json -a "$(field "$job" JobState)" = CANCELLED ]
}

cancelled_batch() {
    local begun before
    make_input cancel.in 200 24
    INPUT=cancel.in OUTPUT=cancel.out submit --ntasks-per-node=2 "$scripts/batch.sbatch" --plain --max-batch 4 --max-inflight 8
    wait_until 30 has_lines cancel.out 8
    begun=$(now)
    scancel "$job"
    wait_until 40 slurm_is_idle
    before=$(lines cancel.out)
    echo "# scancel of the batch: idle after $(since "$begun") s, $before of 200 results"
    timeout 240 mpirun -np 2 "$lockstep" batch --model "$model" --input cancel.in --output cancel.out --plain 2>cancel.err
    check "scancel of a batch: finished results stay" "$before results; $(cat cancel.err)" [ "$before" -ge 8 -a "$before" -lt 200 ]
    check_once "resumed by hand: every id once" 200 cancel.out
}

same_stories
no_pmix
killed_under_srun
batch_status_75
array_of_four
serve_and_cancel
cancelled_batch
batch_until_done
done_testing
