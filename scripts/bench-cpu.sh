#!/bin/sh
# Decode speed of a Llama-shaped model of about a billion parameters with random bf16 weights, generated in memory, on 1 and 2
# ranks that share the machine's cores, compared with the read bandwidth measured in the same run.
set -eu
cd "$(dirname "$0")/.."
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export OMPI_MCA_orte_execute_quiet=1
for ranks in 1 2; do
    mpirun --oversubscribe --bind-to none -n $ranks build/cpu/lockstep bench --config scripts/configs/llama-1b.json --load-format dummy \
        --n-prompt 64 --n-gen 16 --repetitions 5
    echo
done
