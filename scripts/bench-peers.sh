#!/usr/bin/env bash
# Measures the same work with Lockstep and, if Python has vLLM, with vLLM's LLM class, one after the other on this machine, with random
# weights: a table, peers.json with every figure, and peers.svg. Without vLLM it prints a message and measures Lockstep alone.
#
#   scripts/bench-peers.sh [COMMAND THAT STARTS lockstep]        default: mpirun -n 1 build/cuda/lockstep
#   CONFIG=scripts/configs/llama-3-8b.json   the model
#   OUT=peers                                names of the files; after an interruption the results so far are in $OUT.ours and
#                                            $OUT.peer, and `scripts/peers.py join` makes peers.json from them
#   WORK="l:32:128:8 p:2048 ..."             the work to measure, see scripts/peers.py; default: the list below
#   PEER_PYTHON=python3                      the interpreter that has vLLM
#   PEER="COMMAND"                           another peer: its arguments are the folder of the config and the work, and it prints a line
#                                            {"peer": NAME, "version": VERSION}, then {"work": .., "figure": [median, lowest,
#                                            highest]} for each kind of work that it supports, in the units of scripts/peers.py;
#                                            "first_token": MS beside the figure is shown, too. PEER_RANKS in its environment is
#                                            the number of Lockstep's ranks, and so of the GPUs that it should take
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- mpirun --bind-to none -n 1 "$here/../build/cuda/lockstep"
config=${CONFIG:-$here/configs/llama-3-8b.json}
out=${OUT:-peers}
python=${PEER_PYTHON:-python3}
work=${WORK:-l:32:128:1 l:32:128:8 l:32:128:64 p:2048 p:8192 p:32768 d:8192:128:1 d:32768:128:1 d:8192:64:16 t:128:128:2000 t:2048:128:400 s:8128:128:200:8000}
export OMPI_MCA_orte_execute_quiet=1
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/model"
cp "$config" "$dir/model/config.json"
# shellcheck disable=SC2086  # the work is several words
python3 "$here/peers.py" ours "$config" "$work" -- "$@" >"$out.ours"
: >"$out.peer"
PEER_RANKS=$(sed -n '1s/.*"ranks": \([0-9]*\).*/\1/p' "$out.ours")
export PEER_RANKS
if [ -n "${PEER:-}" ]; then
    # shellcheck disable=SC2086
    $PEER "$dir/model" $work >"$out.peer"
elif "$python" -c 'import vllm' 2>"$dir/why"; then
    # shellcheck disable=SC2086
    "$python" "$here/peers.py" vllm "$dir/model" $work >"$out.peer"
else
    echo "bench-peers: $python has no vLLM ($(tail -n 1 "$dir/why")): Lockstep alone" >&2
fi
python3 "$here/peers.py" join "$out.ours" "$out.peer" "$out.json"
"$here/pictures.py" peers "$out.json" >"$out.svg"
