#!/usr/bin/env bash
# How fast a checkpoint loads with other windows, threads and pieces: one line per run, which shows the bottleneck. The
# files are read twice before: the kernel is slower at the first or second read of a page, see docs/decisions/loading.md; FRESH=1 omits that.
# Usage: scripts/bench-loading.sh COMMAND DIR [THREADS:SLOTS:PIECE ...], e.g. scripts/bench-loading.sh "./run.sh lockstep"
# /dev/shm/llama-3-8b 0:0:0 8:8:1M. 0 is the default; a PIECE needs THREADS. Without variants a default list is tried. Settings:
# RANKS ("1"), ROUNDS (2), DEVICE (cuda), WAY (auto; see --load-way). Needs python3.
set -u
command=$1
dir=$2
shift 2
[ $# -gt 0 ] || set -- 0:0:0 0:4:0 0:16:0 0:32:0 15:0:256K 15:0:1M 15:0:2M 8:0:0 4:0:0
show=$(cat <<'END'
import json, sys
l = json.load(sys.stdin)["load"]
p = l["mean_seconds_of_a_rank"]
share = f'{100 * l["share_of_host_to_device"]:5.1f} % of {l["host_to_device_bytes_per_second"] / 1e9:5.1f} GB/s' \
    if "share_of_host_to_device" in l else "no bus"
print(f'{sys.argv[1]:>5} ranks, {l["way"]:>8}, {l["threads"]:2} threads, {l["slots"]:2} slots, {l["piece_bytes"] >> 10:5} KiB: '
      f'{l["seconds"]:6.3f} s, {l["slowest_device_bytes_per_second"] / 1e9:5.1f} GB/s a device, {share}; ' +
      ", ".join(f"{k} {v:.3f}" for k, v in p.items()))
END
)
[ "$(id -u)" = 0 ] && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
[ "${FRESH:-0}" = 1 ] || for _ in 1 2; do printf "%s\0" "$dir"/*.safetensors | xargs -0 -P 16 -n 1 cat >/dev/null; done
for ranks in ${RANKS:-1}; do
    for _ in $(seq "${ROUNDS:-2}"); do
        for variant in "$@"; do
            IFS=: read -r threads slots piece <<<"$variant"
            options="--load-way ${WAY:-auto}"
            [ "$threads" = 0 ] || options="$options --load-threads $threads"
            [ "$slots" = 0 ] || options="$options --load-slots $slots"
            [ "$piece" = 0 ] || options="$options --load-piece-bytes $piece"
            # shellcheck disable=SC2086  # both are several words
            mpirun --bind-to none -n "$ranks" $command bench --model "$dir" --device "${DEVICE:-cuda}" --n-prompt 0 \
                --n-gen 0 --json $options 2>/dev/null | python3 -c "$show" "$ranks" || echo "$ranks ranks, $variant: failed"
        done
    done
done
