#!/bin/sh
# Who may include whom: main.c -> coordinator -> rank -> { kernels, partition } -> base, and within coordinator/ { server, batch }
# -> { groups, jobs }. Fails on a breach, and on an operation of kernels/ops.h that has no function in the CPU backend's table.
set -u
cd "$(dirname "$0")/.."
bad=0

# folder, what its files must not include
check() {
    hits=$(grep -rnE "#include [\"<]($2)" "$1" --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh')
    if [ -n "$hits" ]; then
        echo "check-layers: $1/ must not include these:"
        echo "$hits"
        bad=1
    fi
}
check base 'partition/|kernels/|rank/|coordinator/|tests/|mpi\.h|cuda'
check partition 'kernels/|rank/|coordinator/|tests/|mpi\.h|cuda'
check kernels 'partition/|rank/|coordinator/|tests/|mpi\.h'
check kernels/cpu 'cuda|kernels/cuda'
check rank 'coordinator/|tests/|zmq\.h'
check coordinator/jobs 'coordinator/(server|batch)/'
check coordinator/groups 'coordinator/(server|batch)/'
check coordinator/server 'coordinator/batch/'
check coordinator/batch 'coordinator/server/'
check coordinator 'tests/|mpi\.h|cuda|nccl|rank/(world|comm|fatal|engine|loop|instance|load)\.h'

# Only rank/fatal.c ends the job; only the option table reads the environment.
hits=$(grep -rnE '\b(exit|abort|_exit|MPI_Abort)\(' base partition kernels rank coordinator --include='*.c' |
    grep -vE '^rank/fatal\.c:|^[^:]*:[0-9]*: *(/\*|\*)')
[ -n "$hits" ] && { echo "check-layers: only rank/fatal.c may end the process:"; echo "$hits"; bad=1; }
hits=$(grep -rn '\bgetenv(' base partition kernels rank coordinator main.c --include='*.c' | grep -vE '^base/opt(_table)?\.c:')
[ -n "$hits" ] && { echo "check-layers: only base/opt.c and opt_table.c may read the environment:"; echo "$hits"; bad=1; }

for op in $(sed -n '/^struct ops {/,/^};/s/^ .*(\*\([a-z_]*\))(.*/\1/p' kernels/ops.h); do
    for table in kernels/cpu/ops_cpu.c kernels/cuda/ops_cuda.c; do
        grep -q "\.$op = " $table || { echo "check-layers: op $op is not in $table"; bad=1; }
    done
done
# Whatever a step is made of has a phase: the operations from `feed` on, and the collectives.
for op in $(sed -n '/(\*feed)/,/^};/s/^ .*(\*\([a-z_]*\))(.*/\1/p' kernels/ops.h | grep -v scratch_bytes) \
    $(sed -n '/^struct comm_ops {/,/^};/s/^ .*(\*\([a-z_]*\))(.*/\1/p' rank/comm.h | grep -vE '^(check|close|takes_.*)$'); do
    grep -qE "(o->|comm_ops\.)$op = $op;" rank/profile.c || { echo "check-layers: $op has no phase in rank/profile.c"; bad=1; }
done
hits=$(grep -rnE '#include [<"](cuda|cublas|nccl)' base partition kernels rank coordinator main.c tests |
    grep -vE '^kernels/cuda/|^rank/comm_nccl\.c:|^tests/gpu/share_gpus\.c:')
[ -n "$hits" ] && { echo "check-layers: CUDA's headers belong to kernels/cuda/ and rank/comm_nccl.c (a test stands in front of the runtime):"; echo "$hits"; bad=1; }
[ $bad = 0 ] && echo "check-layers: ok"
exit $bad
