#!/usr/bin/env bash
# tests/cluster/test_slurm_hosts.sh - srun over two hosts, each with its own slurmd: without mpirun there are no daemons
# that would notice a lost host or end the ranks of another one, so the program's own watch must do it.
. "$(dirname "$0")/cluster.sh"
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/slurm.sh"
hosts_start
slurm_kill_wait=2 # seconds that srun waits for a node that does not answer: 30 by default
slurm_start hosts
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=$net.0/24

start_story() { begin_story start "$@"; } # OPTIONS of srun
start() { # OPTIONS of srun -> $pid, $mark
    mark=slurm-hosts-$$-$n_cases
    rm -f "$dir/out" "$dir/err"
    LOCKSTEP_TEST_MARK=$mark srun -u "$@" --mpi=pmix -N2 --ntasks-per-node=2 "$lockstep" generate --model "$model" \
        --prompt Once --max-tokens 100000 --ignore-eos --kv-cache-memory-bytes 2G --progress always >"$dir/out" 2>"$dir/err" &
    pid=$!
}

killed_rank() { # RANK HOST OPTIONS of srun
    local victim p
    start_story "${@:3}"
    for p in $(marked "$mark"); do
        [ "$(cat "/proc/$p/comm")" = lockstep ] && grep -qsazx "SLURM_PROCID=$1" "/proc/$p/environ" && victim=$p
    done
    kill -9 "$victim"
    check_end "srun $3: rank $1 on $2 is killed" "$1" "$2" "its process ended without a word" 10 "8 137"
}

# Without -K srun would let the others wait for ever.
killed_rank 3 h2 --kill-on-bad-exit=0
killed_rank 0 h1 --kill-on-bad-exit=0
start_story --kill-on-bad-exit=1
hosts_link h2 down
check_end "srun: the link to h2 is cut" '[23]' h2 "its host has not answered for" 15 "8 137 143"
hosts_link h2 up
done_testing
