#!/bin/sh
# The demo model tells a story on two ranks. `make demo` has built the program.
set -eu
cd "$(dirname "$0")/.."
if [ "$(id -u)" = 0 ]; then # mpirun requires root to confirm twice
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export OMPI_MCA_orte_execute_quiet=1 # mpirun -q of Open MPI 4, which 5 lacks
# Both ranks are on this host. Open MPI 5 complains about networks that it cannot use; the rest of the list is Debian's default.
export OMPI_MCA_btl=^tcp,openib,ofi,uct
model=demo/lockstep-stories
prompt="Once upon a time"
set -- mpirun --oversubscribe -n 2 build/cpu/lockstep generate --model "$model" --max-tokens 120 --prompt
# Prints the command with the prompt quoted, as for a shell.
echo "$ $* \"$prompt\""
exec "$@" "$prompt"
