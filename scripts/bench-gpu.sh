#!/usr/bin/env bash
# The GPU benchmark table: random weights of real sizes, on as many GPUs as there are (1, 2, 4). Every run also measures and prints the read limit. Usage: scripts/bench-gpu.sh [COMMAND THAT STARTS lockstep]    default: build/cuda/lockstep
# In an unpacked bundle: scripts/bench-gpu.sh ./run.sh lockstep
set -u
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- build/cuda/lockstep
export OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_orte_execute_quiet=1
[ "$(id -u)" = 0 ] && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
gpus=$(nvidia-smi -L | grep -c '^GPU')
only=${ONLY:-.}

# bench RANKS CONFIG OPTIONS...
bench() {
    local ranks=$1 config=$2
    shift 2
    [ "$ranks" -le "$gpus" ] || return 0
    echo "$ranks $config $*" | grep -qE "$only" || return 0
    echo "== $config, $ranks GPU(s), $*"
    timeout 150 mpirun --bind-to none -n "$ranks" "${command[@]}" bench --config "scripts/configs/$config.json" \
        --load-format dummy --device cuda "$@" || echo "status $?"
}
command=("$@")
bench 1 llama-3-8b --n-prompt 2048 --max-batch-tokens 2048 --n-gen 128
bench 1 llama-3-8b --n-prompt 0 --n-gen 128 --n-depth 1000
bench 1 llama-3-8b --n-prompt 0 --n-gen 128 --batch 8 --latency 32:128
bench 1 llama-3-8b --n-prompt 2048 --max-batch-tokens 2048 --n-gen 128 --profile
bench 1 llama-3-8b --n-prompt 0 --n-gen 0 --batch 8 --latency 32:128 --warmup 10 --repetitions 30
for shape in 128:128 2048:128; do
    bench 1 llama-3-8b --n-prompt 0 --n-gen 0 --throughput $shape --num-prompts 500 --max-batch-tokens 2048 --repetitions 2
done
bench 2 llama-3-8b --n-prompt 2048 --max-batch-tokens 2048 --n-gen 128
bench 4 llama-3-8b --n-prompt 2048 --max-batch-tokens 2048 --n-gen 128
for ranks in 1 2 4; do
    bench $ranks gpt-j-6b --n-prompt 0 --n-gen 200 --n-depth 50
    bench $ranks opt-13b --n-prompt 0 --n-gen 128
done
bench 4 llama-3-70b --n-prompt 2048 --max-batch-tokens 2048 --n-gen 128
bench 4 llama-3-70b --n-prompt 0 --n-gen 128 --batch 8 --latency 32:128
