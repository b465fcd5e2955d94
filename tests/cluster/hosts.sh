# tests/cluster/hosts.sh - sourced after cluster.sh: two hosts on one machine, as network namespaces h1 and h2 with a network
# between them and each with its own host name and shared memory. Needs root with CAP_NET_ADMIN and CAP_SYS_ADMIN.
#
# hosts_start sets: net (10.x.y), agent (for plm_rsh_agent), hostfile, launch (mpirun with the options that both hosts need).

hosts_stop() { # [ID]: of this test's process, or of another
    local h pid id=${1:-$$}
    for h in h1 h2; do
        for pid in $(ip netns pids "$h-$id" 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
        ip netns del "$h-$id" 2>/dev/null
    done
    ip link del "lsbr$id" 2>/dev/null
}

# Remains of a test that was killed by SIGKILL.
hosts_stop_stale() {
    local id
    for id in $(ip -o link show type bridge | grep -o 'lsbr[0-9]*' | tr -d 'a-z'); do
        kill -0 "$id" 2>/dev/null || hosts_stop "$id"
    done
}

hosts_link() { # HOST up|down
    ip link set "ls$1.$$" "$2"
    [ "$2" = down ] || hosts_reach "$1"
}

# Makes the host reach this machine (which refuses, as nothing listens), even while its neighbour table still marks it
# as lost.
hosts_reach() {
    timeout 10 ip netns exec "$1-$$" bash -c \
        "until (exec 3<>/dev/tcp/$net.254/9) 2>&1 | grep -q refused; do sleep 0.1; done"
}

hosts_start() {
    local h i=1
    needs_root
    needs_commands ip unshare mpirun
    make_folder
    hosts_stop_stale
    unshare --uts --ipc --mount true 2>/dev/null || skip_all "this machine does not allow namespaces (CAP_SYS_ADMIN)"
    ip netns add "probe-$$" 2>/dev/null || skip_all "this machine does not allow network namespaces (CAP_NET_ADMIN)"
    ip netns del "probe-$$"
    net=10.$((200 + $$ / 256 % 50)).$(($$ % 256))
    at_end hosts_stop
    ip link add "lsbr$$" type bridge && ip addr add "$net.254/24" dev "lsbr$$" && ip link set "lsbr$$" up ||
        skip_all "this machine does not allow bridges"
    for h in h1 h2; do
        ip netns add "$h-$$" && ip link add "ls$h.$$" type veth peer name eth0 netns "$h-$$" || exit 1
        ip link set "ls$h.$$" master "lsbr$$" up
        ip -n "$h-$$" link set lo up
        ip -n "$h-$$" addr add "$net.$i/24" dev eth0
        ip -n "$h-$$" link set eth0 up
        i=$((i + 1))
        hosts_reach "$h" || exit 1
    done
    sed 's/^node/h/' "$root/hostfiles/two-hosts-4" >"$dir/hosts"
    agent=$dir/agent hostfile=$dir/hosts
    # mpirun calls it as: agent HOST WORDS... The private /dev/shm keeps the hosts' ranks from meeting in shared memory.
    cat >"$agent" <<END
#!/bin/sh
h=\$1
shift
exec ip netns exec "\$h-$$" unshare --uts --ipc --mount sh -c \
    'hostname "\$1"; mount -t tmpfs shm /dev/shm; shift; exec sh -c "\$*"' sh "\$h" "\$@"
END
    chmod 755 "$agent"
    launch=(mpirun --hostfile "$hostfile" --mca plm_rsh_agent "$agent" --mca plm rsh --mca btl "self,vader,tcp"
        --mca btl_tcp_if_include "$net.0/24" --mca oob_tcp_if_include "$net.0/24" --bind-to none --map-by ppr:2:node
        --mca oob_tcp_keepalive_time 3 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 4)
}
