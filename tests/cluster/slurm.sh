# tests/cluster/slurm.sh - sourced after cluster.sh: a real Slurm of two nodes n1 and n2 on this machine, without systemd:
# munged, slurmctld, two slurmd, all in $dir. Needs root and Debian's slurmctld, slurmd, slurm-client, munge.
#
# n1 and n2 share this machine's name and memory, which Open MPI's shared memory transport cannot handle: jobs that span
# both use TCP between all ranks (OMPI_MCA_btl=self,tcp).

slurm_stop() {
    local file
    scancel --quiet --user=root 2>/dev/null
    wait_until 10 slurm_is_idle
    for file in d.n1.pid d.n2.pid d.h1.pid d.h2.pid c.pid m/pid; do
        [ -s "$dir/$file" ] && kill "$(cat "$dir/$file")" 2>/dev/null
    done
    wait_until 10 slurm_is_gone || kill -9 $(slurm_processes) 2>/dev/null
}

slurm_is_idle() { [ -z "$(squeue -h -o %i 2>/dev/null)" ]; }
# Everything that was started since SLURM_CONF was set: daemons, steps, ranks. A zombie has no environment.
slurm_processes() { grep -lsazx "SLURM_CONF=$dir/slurm.conf" /proc/[0-9]*/environ | cut -d/ -f3; }
slurm_is_gone() { [ -z "$(slurm_processes)" ]; }
slurm_is_up() { [ "$(sinfo -hN -t idle -o %N 2>/dev/null | sort -u | wc -l)" = 2 ]; }

slurm_write_conf() { # CONTROLLER_ADDRESS, then the lines of the nodes on standard input
    cat >"$dir/slurm.conf" <<END
ClusterName=lockstep
SlurmctldHost=$(hostname)($1)
SlurmctldPort=$slurm_port
SlurmUser=root
AuthInfo=socket=$dir/m/sock
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
TmpFS=$dir/tmp.%n
SlurmctldPidFile=$dir/c.pid
SlurmdPidFile=$dir/d.%n.pid
SlurmctldLogFile=$dir/c.log
SlurmdLogFile=$dir/d.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,sched_min_interval=100000,bf_interval=2
ReturnToService=2
KillWait=${slurm_kill_wait:-30}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE
$(cat)
END
}

# slurm_start [hosts]: with two nodes n1 and n2 on this machine; or, after hosts_start, with the hosts h1 and h2.
slurm_start() {
    local h name
    slurm_port=$((20000 + $$ % 4000 * 3))
    needs_root
    needs_commands slurmctld slurmd srun sbatch scontrol munged mpirun
    [ -n "${1:-}" ] || make_folder
    mkdir -p "$dir"/{state,m/priv} "$dir"/{spool,tmp}.{n1,n2,h1,h2} && chmod 755 "$dir/m" && chmod 700 "$dir/m/priv"
    (umask 077 && head -c 1024 /dev/urandom >"$dir/m/priv/key")
    export SLURM_CONF=$dir/slurm.conf
    name=$(hostname)
    if [ -n "${1:-}" ]; then
        for h in 1 2; do echo "NodeName=h$h NodeAddr=$net.$h Port=$((slurm_port + h)) CPUs=8"; done
    else
        for h in 1 2; do echo "NodeName=n$h NodeHostname=$name NodeAddr=127.0.0.1 Port=$((slurm_port + h)) CPUs=8"; done
    fi | slurm_write_conf "$([ -n "${1:-}" ] && echo "$net.254" || echo 127.0.0.1)"
    srun --mpi=list 2>&1 | grep -q pmix || skip_all "this Slurm has no PMIx (srun --mpi=list)"
    at_end slurm_stop
    munged --key-file="$dir/m/priv/key" --socket="$dir/m/sock" --pid-file="$dir/m/pid" --log-file="$dir/m/priv/log" \
        --seed-file="$dir/m/priv/seed" && slurmctld && slurm_start_nodes "$@" && wait_until 30 slurm_is_up || {
        not_ok "a Slurm of two nodes starts" "$(tail -5 "$dir"/*.log; sinfo -N 2>&1)"
        exit 1
    }
}

slurm_start_nodes() {
    local h
    [ -n "${1:-}" ] || { slurmd -N n1 && slurmd -N n2; return; }
    { cat /etc/hosts; printf '%s h1\n%s h2\n' "$net.1" "$net.2"; } >"$dir/etc-hosts"
    for h in h1 h2; do # not ip netns exec, which mounts another /sys, without slurmd's cgroups
        nsenter --net="/run/netns/$h-$$" unshare --uts --ipc --mount sh -c 'hostname "$1" &&
            mount --bind "$2/etc-hosts" /etc/hosts && mount -t tmpfs shm /dev/shm && exec slurmd -N "$1"' sh $h "$dir" || return 1
    done
}
