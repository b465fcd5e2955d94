# tests/cluster/slurm.sh - sourced after cluster.sh: a real Slurm of two nodes n1 and n2 on this machine, without systemd:
# munged, slurmctld, two slurmd, all in $dir. Needs root and Debian's slurmctld, slurmd, slurm-client, munge.
#
# The nodes share this machine's name and memory, which Open MPI's shared memory transport does not survive: jobs that span
# both use TCP between all ranks (OMPI_MCA_btl=self,tcp).

slurm_stop() {
    local file
    scancel --quiet --user=root 2>/dev/null
    wait_until 10 slurm_is_idle
    for file in d.n1.pid d.n2.pid c.pid m/pid; do
        [ -s "$dir/$file" ] && kill "$(cat "$dir/$file")" 2>/dev/null
    done
    wait_until 10 slurm_is_gone || kill -9 $(slurm_processes) 2>/dev/null
}

slurm_is_idle() { [ -z "$(squeue -h -o %i 2>/dev/null)" ]; }
# Whatever was started since SLURM_CONF was set: daemons, steps, ranks. A zombie has no environment.
slurm_processes() { grep -lsazx "SLURM_CONF=$dir/slurm.conf" /proc/[0-9]*/environ | cut -d/ -f3; }
slurm_is_gone() { [ -z "$(slurm_processes)" ]; }
slurm_is_up() { [ "$(sinfo -hN -t idle -o %N 2>/dev/null | sort -u | tr -d '\n')" = n1n2 ]; }

slurm_write_conf() {
    local name port=$((20000 + $$ % 4000 * 3))
    name=$(hostname)
    cat >"$dir/slurm.conf" <<END
ClusterName=lockstep
SlurmctldHost=$name(127.0.0.1)
SlurmctldPort=$port
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
KillWait=30
MinJobAge=120
InactiveLimit=0
NodeName=n1 NodeHostname=$name NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=8
NodeName=n2 NodeHostname=$name NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=8
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE
END
}

slurm_start() {
    needs_root
    needs_commands slurmctld slurmd srun sbatch scontrol munged mpirun
    make_folder
    mkdir -p "$dir"/{state,spool.n1,spool.n2,tmp.n1,tmp.n2,m/priv} && chmod 755 "$dir/m" && chmod 700 "$dir/m/priv"
    (umask 077; head -c 1024 /dev/urandom >"$dir/m/priv/key")
    export SLURM_CONF=$dir/slurm.conf
    slurm_write_conf
    srun --mpi=list 2>&1 | grep -q pmix || skip_all "this Slurm has no PMIx (srun --mpi=list)"
    at_end slurm_stop
    munged --key-file="$dir/m/priv/key" --socket="$dir/m/sock" --pid-file="$dir/m/pid" --log-file="$dir/m/priv/log" \
        --seed-file="$dir/m/priv/seed" && slurmctld && slurmd -N n1 && slurmd -N n2 && wait_until 30 slurm_is_up || {
        not_ok "a Slurm of two nodes starts" "$(tail -5 "$dir"/*.log; sinfo -N 2>&1)"
        exit 1
    }
}
