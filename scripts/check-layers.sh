#!/bin/sh
# Checks that files include only what the table in docs/rooms.md allows (scripts/rooms.py), that every collective of a step
# has a phase in the profile, and that only permitted files end the process,
# read the environment or include CUDA's headers.
set -u
cd "$(dirname "$0")/.."
bad=0

scripts/rooms.py check || bad=1

# Only rank/world/fatal.c ends the job; only base/environment.c and the option tables read the environment.
hits=$(grep -rnE '\b(exit|abort|_exit|MPI_Abort)\(' base partition kernels plan rank text protocol coordinator commands client gateway --include='*.c' |
    grep -vE '^rank/world/fatal\.c:|^[^:]*:[0-9]*: *(/\*|\*)')
[ -n "$hits" ] && { echo "check-layers: only rank/world/fatal.c may end the process:"; echo "$hits"; bad=1; }
hits=$(grep -rn '\bgetenv(' base partition kernels plan rank text protocol coordinator commands client gateway main.c --include='*.c' | grep -vE '^base/(environment|opt_table)\.c:')
[ -n "$hits" ] && { echo "check-layers: only base/environment.c and opt_table.c may read the environment:"; echo "$hits"; bad=1; }

# Every operation of a step has a phase (kernels/op_list.h); so has every collective.
for op in $(sed -n '/^struct comm_ops {/,/^};/s/^ .*(\*\([a-z_]*\))(.*/\1/p' rank/comm/comm.h | grep -vE '^(check|close|takes_.*)$'); do
    grep -q "comm_ops\.$op = profiled_$op;" rank/measure/profile.c || { echo "check-layers: $op has no phase in rank/measure/profile.c"; bad=1; }
done
hits=$(grep -rnE '#include [<"](cuda|cublas|nccl)' base partition kernels plan rank text protocol coordinator commands client gateway main.c tests |
    grep -vE '^kernels/cuda/|^rank/comm/comm_nccl\.c:|^tests/gpu/share_gpus\.c:')
[ -n "$hits" ] && { echo "check-layers: CUDA's headers belong to kernels/cuda/ and rank/comm/comm_nccl.c (a test stands in front of the runtime):"; echo "$hits"; bad=1; }
[ $bad = 0 ] && echo "check-layers: ok"
exit $bad
