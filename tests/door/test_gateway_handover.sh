#!/usr/bin/env bash
# tests/door/test_gateway_handover.sh - jobs that hand over to each other behind lockstep-gateway lose no stream.
. "$(dirname "$0")/../cluster/cluster.sh"
needs_commands python3
make_folder
cd "$root" || exit 1
timeout 500 python3 tests/door/gateway_handover.py "$lockstep" "$dir" "${GATEWAY_CLIENTS:-40}" "${GATEWAY_HANDOVERS:-2}"
