#!/usr/bin/env bash
# Runs the tests of some suites side by side (tests/run.py), and counts.
# Usage: tests/run.sh BUILD_DIR [all|quick|unit|narrow|spmd|parity|fail|e2e|attack|door|cluster|soak|sanitizers|fuzz ... | long | soak-batch]
# Ends with a line "N passed, M failed", after "K SKIPPED" if any, and after the ten slowest.
set -u
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: tests/run.sh BUILD_DIR [SUITE ...]" >&2; exit 2; }
build=$1
export CMOCKA_MESSAGE_OUTPUT=TAP
export LOCKSTEP_BINARY=${LOCKSTEP_BINARY:-$build/lockstep} LOCKSTEP_BUILD=$build
if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Tests do not judge the read limit of the machine.
export LOCKSTEP_READ_LIMIT_BYTES=16M
# More ranks than cores: let them yield. Shared memory only, no network.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_orte_execute_quiet=1
# The same for Open MPI 5, whose mpirun has settings of its own and cannot be made quiet.
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
exec python3 tests/run.py "$@"
