#!/usr/bin/env bash
# Test the CUDA build on the GPUs of this machine: operations, then models on 1, 2, 3 and 4 ranks, as many as there are
# GPUs. Usage: scripts/check-gpu.sh BUILD_DIR, in the folder that has tests/. Ends with "N passed, M failed".
set -u
build=$1
logs=$build/gpu-logs
mkdir -p "$logs"
export CMOCKA_MESSAGE_OUTPUT=TAP OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1 OMPI_MCA_btl_vader_single_copy_mechanism=none
[ "$(id -u)" = 0 ] && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
gpus=$(nvidia-smi -L | grep -c '^GPU')
[ "$gpus" -gt 0 ] || { echo "check-gpu: no GPU here"; exit 1; }
passed=0
failed=0

# run NAME SECONDS COMMAND...
run() {
    local log=$logs/${1// /-}.log started=$SECONDS name=$1 good bad status
    timeout -k 5 "$2" "${@:3}" >"$log" 2>&1
    status=$?
    good=$(grep -c '^ok ' "$log")
    bad=$(grep -c '^not ok ' "$log")
    [ $status != 0 ] && [ "$bad" = 0 ] && bad=1
    [ "$good" = 0 ] && bad=1
    passed=$((passed + good))
    failed=$((failed + bad))
    echo "$name: $good passed, $bad failed, status $status, $((SECONDS - started)) s"
    [ "$bad" = 0 ] || { grep -n -A2 '^not ok ' "$log" | head -${SHOW:-12}; tail -2 "$log"; }
}

for test in "$build"/tests/ops/test_*; do
    case $test in *.o | *.d) continue ;; esac
    run "ops ${test##*/test_}" 300 "$test"
done
for n in 1 2 3 4; do
    [ $n -le "$gpus" ] || break
    run "persistent step on $n" 300 mpirun -q --bind-to none -n $n "$build/tests/gpu/test_persistent"
    run "parity on $n" 400 mpirun -q --bind-to none -n $n "$build/tests/parity/test_parity" "" cuda
done
echo
echo "$passed passed, $failed failed"
[ $failed = 0 ]
