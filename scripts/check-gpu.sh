#!/usr/bin/env bash
# Test the CUDA build on the GPUs of this machine. Usage: scripts/check-gpu.sh BUILD_DIR, in the folder that has tests/ and
# demo/. Ends with "N passed, M failed", after "K SKIPPED" if there are any. CHECK="ops parity" runs only these sections:
#   start      the ranks' devices are printed, CUDA_VISIBLE_DEVICES is obeyed, impossible starts are refused by name, P2P may be off;
#              a preflight and NVML's figures
#   ops        every operation, every type, odd sizes, guard words, poison
#   persistent every logit of decode steps as one operation, against the separate operations; the memory that it writes and
#              leaves unchanged; latent models whose sequences become too long for it; sums over the memory that GPUs share; the end
#              of jobs whose devices wait in vain
#   parity     every fixture on 1, 2, 3 and 4 ranks, as many as there are GPUs; those that the persistent step supports also
#              with several sequences at once, by that step and by separate operations
#   tokens     the demo in float32: the CPU's tokens, greedy and sampled, on as many ranks; batch-invariant, the same bits in any
#              batch, with and without drafts; answers in a form, whose masks come
#              with the plan or while the device computes; caches of windows, and full ones, the same bits
#   serve      the server's own tests with the demo in float32: replies, streams, busy batches, cancels, clients that leave
#   sanitizer  compute-sanitizer: memcheck on all tests of operations, racecheck and synccheck on those that share memory in
#              blocks, memcheck and synccheck on the persistent step of a fixture, and with several tokens of a sequence
#              (under racecheck its blocks, which wait for each other, did not finish in 86 s). (initcheck would find nothing: all device memory is zeroed; the tests poison
#              results instead.) Without compute-sanitizer: SKIPPED
#   soak       SOAK_SECONDS (600) of mixed work on all GPUs; memory returns to its former size
# Settings: RANKS="1 4" (for persistent, parity, tokens, serve and soak; default: 1 to 4, as many as there are GPUs);
# SHARED="3 4" (for persistent, parity and drafts in tokens, additionally: more ranks than GPUs, which they share; about
# 20 s a model, see tests/gpu/share_gpus.c); for sanitizer: MEMCHECK, RACECHECK, SYNCCHECK (names of tests), STRIDE (7: runs every 7th case of a test;
# racecheck: 8 times that; for sample 64 times), PERSISTENT (a part of fixtures' names), PERSISTENT_TOOLS, SANITIZER_SECONDS (a run's limit). DEVICE=cpu RANKS="1 2" tests this script itself without a GPU: then without
# start, persistent and sanitizer.
set -u
build=$1
device=${DEVICE:-cuda}
logs=$build/gpu-logs
mkdir -p "$logs"
export CMOCKA_MESSAGE_OUTPUT=TAP OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_orte_execute_quiet=1
export LOCKSTEP_BINARY=$build/lockstep
[ "$(id -u)" = 0 ] && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
gpus=0
[ "$device" = cuda ] && gpus=$(nvidia-smi -L | grep -c '^GPU')
[ "$device" = cpu ] || [ "$gpus" -gt 0 ] || { echo "check-gpu: no GPU here"; exit 1; }
ranks=${RANKS:-$(seq -s ' ' "$((gpus < 4 ? gpus : 4))")}
shared=${SHARED:-}
[ -z "$shared" ] || [ "$device" = cuda ] || { echo "check-gpu: SHARED needs GPUs, DEVICE is $device"; exit 1; }
for n in $shared; do
    [ "$n" -gt "$gpus" ] || { echo "check-gpu: SHARED=\"$shared\", but $n ranks have a GPU each here: use RANKS"; exit 1; }
done
most=0
for n in $ranks; do [ "$n" -gt "$most" ] && most=$n; done
[ "$most" -gt 0 ] || { echo "check-gpu: RANKS is needed with DEVICE=cpu"; exit 1; }
[ "$device" = cpu ] || [ "$most" -le "$gpus" ] || { echo "check-gpu: $most ranks, $gpus GPUs"; exit 1; }
passed=0
failed=0
skipped=0

wants() {
    case " ${CHECK:-start ops persistent parity tokens serve sanitizer soak} " in *" $1 "*) return 0 ;; esac
    return 1
}

# launch RANKS: sets `mpi` to the command that starts them, and `where` to the text after their number in names
launch() {
    mpi=(mpirun --bind-to none -n "$1")
    where=
    [ "$device" = cuda ] && [ "$1" -gt "$gpus" ] || return 0
    mpi+=(env LD_PRELOAD="$(realpath "$build/tests/share_gpus.so")" SHARE_GPUS="$1")
    where=" sharing $gpus GPU$([ "$gpus" = 1 ] || echo s)"
}

# count GOOD BAD NAME REMARK
count() {
    passed=$((passed + $1))
    failed=$((failed + $2))
    echo "$3: $1 passed, $2 failed, $4"
}

# skip NAME REASON: reports a part that cannot run here
skip() {
    skipped=$((skipped + 1))
    echo "SKIPPED $1: $2"
}

# Tests of operations skip a GPU that they cannot see: then nothing was tested.
used_device() {
    [ "$device" = cpu ] || grep -qE '^ok .*(cuda|persistent)' "$1"
}

# run NAME SECONDS COMMAND...: a program that prints TAP
run() {
    local log=$logs/${1// /-}.log started=$SECONDS name=$1 good bad status
    timeout -k 5 "$2" "${@:3}" >"$log" 2>&1
    status=$?
    good=$(grep -c '^ok ' "$log")
    bad=$(grep -c '^not ok ' "$log")
    [ $status != 0 ] && [ "$bad" = 0 ] && bad=1
    [ "$good" = 0 ] && bad=1
    count "$good" "$bad" "$name" "status $status, $((SECONDS - started)) s$(grep -h '^# .* runs, ' "$log" | sed 's/^#/;/' | tr -d '\n')"
    [ "$bad" = 0 ] || { grep -n -A2 '^not ok ' "$log" | head -"${SHOW:-12}"; tail -2 "$log"; }
}

# expect NAME STATUS PATTERN COMMAND...: checks the status of a start, and a line of its output
expect() {
    local log=$logs/${1// /-}.log name=$1 want=$2 pattern=$3 status
    shift 3
    timeout -k 5 120 "$@" >"$log" 2>&1
    status=$?
    if [ $status = "$want" ] && grep -qE "$pattern" "$log"; then
        count 1 0 "$name" "$(grep -m1 -E "$pattern" "$log")"
    else
        count 0 1 "$name" "status $status, expected $want and \"$pattern\""
        tail -5 "$log"
    fi
}

# story RANKS [VARIABLE=VALUE...]: prints the command for the demo's story on GPUs
story() {
    local n=$1
    shift
    echo env "$@" mpirun -n "$n" "$build/lockstep" generate --model demo/lockstep-stories --prompt Once --max-tokens 8 \
        --temperature 0 --device cuda --verbose
}

# stopped RANKS: the last rank is stopped during its steps; the others end the job in time and name it
stopped() {
    local log=$logs/stopped-$1.log status pid started
    for _ in $(seq 4000); do echo Once; done >"$logs/prompts.txt"
    timeout -k 5 120 mpirun -n "$1" "$build/lockstep" generate --model demo/lockstep-stories --prompts "$logs/prompts.txt" \
        --max-batch 1 --max-tokens 900 --ignore-eos --device "$device" --step-timeout 4 >"$log" 2>&1 &
    pid=$!
    until grep -q '==> prompt 3 ' "$log" || ! kill -0 $pid 2>/dev/null; do sleep 0.1; done
    # shellcheck disable=SC2046  # timeout's child is mpirun, whose children are the ranks in order
    kill -STOP "$(children $(children $pid) | tr ' ' '\n' | grep . | tail -1)" || kill $pid
    started=$SECONDS
    wait $pid
    status=$?
    if [ $status = 8 ] && grep -qE "fatal: rank $(($1 - 1))/$1 on .*no sign of life" "$log"; then
        count 1 0 "a stopped rank of $1" "$(grep -m1 'fatal:' "$log" | cut -c1-150), $((SECONDS - started)) s"
    else
        count 0 1 "a stopped rank of $1" "status $status, expected 8; $(tail -1 "$log" | cut -c1-200)"
    fi
}

children() { # PID
    cat "/proc/$1/task/"*/children
}

check_start() {
    local uuid n
    uuid=$(nvidia-smi -L | sed -n '1s/.*UUID: \(GPU-[^)]*\)).*/\1/p')
    expect "start without GPUs" 7 'no GPU is visible on .*, CUDA_VISIBLE_DEVICES is ""$' $(story 1 CUDA_VISIBLE_DEVICES=)
    expect "start with an unknown GPU" 7 'CUDA_VISIBLE_DEVICES is "GPU-nonsense"$' $(story 1 CUDA_VISIBLE_DEVICES=GPU-nonsense)
    expect "start by uuid" 0 '^lockstep: +0  .* [0-9A-Fa-f:]+\.0 ' $(story 1 CUDA_VISIBLE_DEVICES="$uuid")
    expect "start of two on one GPU" 7 'ranks 0 and 1 have the same GPU .*CUDA_VISIBLE_DEVICES being "0" and "0"' \
        $(story 2 CUDA_VISIBLE_DEVICES=0)
    echo '{"model_type":"glm","vocab_size":64,"hidden_size":1024,"intermediate_size":64,"num_hidden_layers":1,' \
        '"num_attention_heads":2,"head_dim":768,"torch_dtype":"bfloat16"}' >"$logs/heads.json"
    expect "start with heads that are too large" 4 'head_dim 768: attention on cuda takes up to 576' mpirun -n 1 \
        "$build/lockstep" bench --device cuda --config "$logs/heads.json" --load-format dummy --n-prompt 0 --n-gen 4
    for n in $ranks; do
        expect "start on $n, the table" 0 "^lockstep: +$((n - 1))  .* [0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+\.0 " \
            $(story "$n")
        expect "start on $n, the way of decode steps" 0 '^lockstep: decode steps: ' $(story "$n")
        expect "what $n rank(s) measure" 0 'steps, [0-9.]+ ms each on rank 0 \([0-9]+ of them timed\)' $(story "$n")
        expect "scores of a prompt on $n" 0 '"prompt_logprobs":\[null,\{"token_id":379,"logprob":-0\.3[45]' \
            $(story "$n") --json --prompt-logprobs 2
        expect "energy of a story on $n" 0 'energy: [0-9.]+ J on all devices, [0-9.]+ J per output token' $(story "$n")
        expect "preflight on $n" 0 '^fit$' mpirun -n "$n" "$build/lockstep" preflight --device cuda --accept-throttling \
            --model demo/lockstep-stories
        expect "preflight on $n, the GPU's state" 0 '"slowed_by": "' mpirun -n "$n" "$build/lockstep" preflight \
            --device cuda --accept-throttling --json
        [ "$n" = 1 ] || expect "the slowest of $n" 0 'ms of it in all-reduces; rank [0-9]+ on .* computes longest' $(story "$n")
        [ "$n" = 1 ] || stopped "$n"
    done
    [ "$gpus" -gt 1 ] || return 0
    expect "start, the second GPU by its number" 0 '^lockstep: +0  ' $(story 1 CUDA_VISIBLE_DEVICES=1)
    expect "start with peer memory" 0 "NCCL [0-9.]+; sums within the host over the GPUs' own memory" $(story 2)
    expect "start without P2P" 0 'NCCL [0-9.]+: P2P is switched off' $(story 2 NCCL_P2P_DISABLE=1)
    expect "no persistent step without P2P" 4 'step persistent does not work with P2P switched off' \
        env NCCL_P2P_DISABLE=1 mpirun -n 2 "$build/lockstep" bench --device cuda --step persistent \
        --config tests/parity/fixtures/llama-heads64-bf16/config.json --load-format dummy --n-prompt 0 --n-gen 4
    [ "$gpus" -lt 3 ] ||
        expect "start of three on two GPUs" 7 'but 2 GPUs are visible, CUDA_VISIBLE_DEVICES is "0,1"' \
            $(story 3 CUDA_VISIBLE_DEVICES=0,1)
    # The choice between NCCL and peer memory for sums changes no token of a greedy story.
    $(story 2) --step separate 2>/dev/null >"$logs/with-p2p"
    NCCL_P2P_DISABLE=1 $(story 2) --step separate 2>/dev/null >"$logs/without-p2p"
    if [ -s "$logs/with-p2p" ] && cmp "$logs/with-p2p" "$logs/without-p2p"; then
        count 1 0 "the same story without P2P" "$(wc -c <"$logs/with-p2p") bytes"
    else
        count 0 1 "the same story without P2P" "see $logs/with-p2p and without-p2p"
    fi
}

# sanitized TOOL NAME COMMAND...: starts it in the background
sanitized() {
    local tool=$1 log=$logs/$1-${2// /-} options= limit=${SANITIZER_SECONDS:-150}
    case $1-$2 in
    racecheck-sample | *-matmul) limit=$((2 * limit)) ;; # 120 s did not suffice for matmul, 240 s not for sample
    esac
    [ "$tool" = memcheck ] && options="--report-api-errors no" # tests request memory that they must not get
    [ "$tool" = memcheck ] || [ "$tool" = synccheck ] || options="--racecheck-report all"
    {
        local started=$SECONDS
        # shellcheck disable=SC2086
        timeout -k 5 $limit "${@:4}" "$sanitizer" --tool "$tool" --error-exitcode 99 $options \
            ${3} >"$log.log" 2>&1
        echo "$? $((SECONDS - started))" >"$log.status"
    } &
}

# judge TOOL NAME: it ended in time, used a GPU, and the tool counts 0 errors
judge() {
    local log=$logs/$1-${2// /-} status took
    read -r status took <"$log.status"
    if [ "$status" = 0 ] && used_device "$log.log" && grep -qE '^=+ (ERROR|RACECHECK) SUMMARY: 0 (errors|hazards)' "$log.log"; then
        count 1 0 "$1 $2" "$took s, $(grep -h SUMMARY "$log.log" | tail -1)"
    else
        count 0 1 "$1 $2" "status $status, $took s, $(grep -h SUMMARY "$log.log" | tail -1), see $log.log"
        grep -m8 '^=========' "$log.log"
        grep -m4 '^not ok ' "$log.log"
    fi
}

# Runs every tool with its tests, all at once: most of their time is the host's. Each test runs only some of its cases.
check_sanitizer() {
    local all= test tool factor step="$build/tests/gpu/test_persistent_fixtures ${PERSISTENT-llama-heads64}"
    sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
    [ -x "$sanitizer" ] || { skip sanitizer "compute-sanitizer is not installed"; return; }
    for test in "$build"/tests/ops/test_*; do
        case $test in *.o | *.d) ;; *) all="$all ${test##*/test_}" ;; esac
    done
    local shared="norm attention matmul sample embed" # with shared memory and barriers
    # Attention to prompts releases shared memory by one thread's arrival at a barrier for its whole warp. Racecheck takes the
    # other threads' reads for unordered, even those before a __syncwarp (prompt_bringer::work), and reports every one.
    local ordered=${shared/attention /}
    local memcheck=${MEMCHECK-$all} racecheck=${RACECHECK-$ordered} synccheck=${SYNCCHECK-$shared}
    for tool in memcheck racecheck synccheck; do
        for test in ${!tool}; do
            case $tool-$test in
            racecheck-sample) factor=64 ;; # a launch of clusters of blocks takes it 0.7 s
            racecheck-*) factor=8 ;;
            *) factor=1 ;;
            esac
            export LOCKSTEP_CASE_STRIDE=$((factor * ${STRIDE:-7}))
            sanitized $tool "$test" "$build/tests/ops/test_$test"
        done
    done
    wait
    for tool in memcheck racecheck synccheck; do
        for test in ${!tool}; do judge $tool "$test"; done
    done
    unset LOCKSTEP_CASE_STRIDE
    for tool in ${PERSISTENT_TOOLS-memcheck synccheck}; do
        sanitized $tool "persistent step" "$step" mpirun --bind-to none -n 1
        wait
        judge $tool "persistent step"
        sanitized $tool "drafts" "$build/tests/gpu/test_persistent_drafts gpt_neox" mpirun --bind-to none -n 1
        wait
        judge $tool "drafts"
    done
}

[ "$device" = cuda ] && wants start && check_start
if wants ops; then
    for test in "$build"/tests/ops/test_*; do
        case $test in *.o | *.d) continue ;; esac
        run "ops ${test##*/test_}" 300 "$test"
        used_device "$logs/ops-${test##*/test_}.log" || count 0 1 "ops ${test##*/test_}" "no test ran on a GPU"
    done
fi
if [ "$device" = cuda ] && wants persistent; then
    for n in $ranks $shared; do
        launch "$n"
        run "persistent step on $n$where" 550 "${mpi[@]}" "$build/tests/gpu/test_persistent"
        run "drafts in the persistent step on $n$where" 200 "${mpi[@]}" "$build/tests/gpu/test_persistent_drafts"
        run "long sequences of latents on $n$where" 100 "${mpi[@]}" "$build/tests/gpu/test_persistent_long"
        [ "$n" = 1 ] || run "sums over peer memory on $n$where" 120 "${mpi[@]}" "$build/tests/gpu/test_peer_sums" quick
    done
    run "waiting in vain" 400 "$build/tests/gpu/test_in_vain" "$most"
fi
if wants parity; then
    for n in $ranks $shared; do
        launch "$n"
        run "parity on $n$where" 550 "${mpi[@]}" "$build/tests/parity/test_parity" "" "$device"
        [ "$device" = cpu ] || run "parity on $n$where, both ways to decode" 200 "${mpi[@]}" \
            "$build/tests/gpu/test_persistent_fixtures"
    done
fi
if wants tokens; then
    run "tokens" 500 "$build/tests/gpu/test_same_tokens" "$device" "$most"
    for n in $ranks; do
        launch "$n"
        run "masks on $n" 200 "${mpi[@]}" "$build/tests/spmd/test_masks" "$device"
        run "windows on $n" 200 "${mpi[@]}" "$build/tests/spmd/test_windows" "$device"
        run "batches on $n" 300 "${mpi[@]}" "$build/tests/spmd/test_batch" "$device"
    done
    for n in $ranks $shared; do
        [ "$n" -gt 1 ] || continue
        launch "$n"
        run "steps in pieces on $n$where" 200 "${mpi[@]}" "$build/tests/spmd/test_pieces" "$device"
    done
    [ "$device" = cpu ] || for n in $ranks $shared; do
        launch "$n"
        run "invariant drafts on $n$where" 300 "${mpi[@]}" "$build/tests/spmd/test_drafts" invariant
    done
fi
wants serve && run "serve" 300 "$build/tests/e2e/test_serve" "$device" "$most"
[ "$device" = cuda ] && wants sanitizer && check_sanitizer
wants soak && run "soak on $most" $((${SOAK_SECONDS:-600} + 300)) mpirun -n "$most" "$build/tests/soak/test_soak" "$device"
echo
[ $skipped = 0 ] || echo "$skipped SKIPPED"
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
