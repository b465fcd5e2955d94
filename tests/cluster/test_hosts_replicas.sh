#!/usr/bin/env bash
# tests/cluster/test_hosts_replicas.sh - replicas over two hosts, which are network namespaces (hosts.sh): the second
# replica is on the second host. The results are those of one replica, also for models on a set of ranks of each host;
# if that host is lost the job ends in time and by name, and the batch resumes.
. "$(dirname "$0")/cluster.sh"
. "$(dirname "$0")/hosts.sh"
hosts_start

make_input() { # N
    local i
    for ((i = 0; i < $1; i++)); do
        echo "{\"id\":\"p$i\",\"prompt\":\"Once upon a day $i\",\"max_tokens\":24,\"temperature\":0.8,\"ignore_eos\":true}"
    done >"$dir/in"
}
texts() { sed 's/,"total_ms":[0-9.e+-]*//' "$1" | sort; } # FILE: its results without their times

start_batch() { # OUTPUT -> $pid, $mark
    mark=replicas-$$-$n_cases
    LOCKSTEP_TEST_MARK=$mark "${launch[@]}" -x LOCKSTEP_TEST_MARK -np 4 "$lockstep" batch --model "$model" --input "$dir/in" \
        --output "$1" --plain --max-batch 8 --tensor-parallel 2 --verbose >"$dir/out" 2>"$dir/err" &
    pid=$!
}

both_hosts() {
    local name="2 hosts, a replica on each: the results of one replica, and work for both" status n
    make_input 60
    OMPI_MCA_btl=self,vader timeout 240 mpirun -np 2 "$lockstep" batch --model "$model" --input "$dir/in" \
        --output "$dir/one" --plain >"$dir/out" 2>"$dir/err" || not_ok "$name" "one replica: $(cat "$dir/err")"
    start_batch "$dir/two"
    wait_until 60 ended || kill -9 $pid
    wait $pid
    status=$?
    n=$(sed -n 's/.* replica 1: \([0-9]*\) requests.*/\1/p' "$dir/err")
    echo "# replica 1 on h2 had ${n:-none} of 60 requests"
    check "$name" "status $status: $(cat "$dir/err")" [ $status = 0 -a "${n:-0}" -gt 10 -a "$(texts "$dir/one")" = "$(texts "$dir/two")" ]
}

lost_replica() {
    local name="the host of the second replica is lost" took status words
    make_input 400
    start_batch "$dir/cut"
    wait_until 30 larger "$dir/cut" 1000
    hosts_link h2 down
    await_failure
    echo "# status $status after $took s; $words"
    hosts_link h2 up
    check "$name: it ends within 15 s" "$took s" in_time "$took" 15
    check "$name: one line names it" "$words / $(cat "$dir/err")" \
        [ "$(wc -l <<<"$words")" = 1 -a -z "${words##*lockstep: fatal: rank [23]/4 on h2: *}" -a $status != 0 ]
    check "$name: nothing is left" "$(marked "$mark")" none_marked "$mark"
    OMPI_MCA_btl=self,vader timeout 100 mpirun -np 2 "$lockstep" batch --model "$model" --input "$dir/in" \
        --output "$dir/cut" --plain --tensor-parallel 1 >"$dir/out" 2>"$dir/err"
    status=$?
    check "$name: two replicas on one host resume, every id once" "status $status: $(cat "$dir/err")" \
        [ $status = 0 -a "$(wc -l <"$dir/cut")" = 400 -a "$(grep -o '"id":"p[0-9]*"' "$dir/cut" | sort -u | wc -l)" = 400 ]
}

models_on_hosts() {
    local name="2 hosts, a set of ranks and models on each: the results of one set" status
    mkdir "$dir/models"
    cp -r "$model" "$dir/models/m0"
    cp -r "$model" "$dir/models/m1"
    make_input 60 && sed -i '1~2s/{/{"model":"m0",/; 2~2s/{/{"model":"m1",/' "$dir/in"
    OMPI_MCA_btl=self,vader timeout 240 mpirun -np 2 "$lockstep" batch --models-dir "$dir/models" --input "$dir/in" \
        --output "$dir/one-set" --plain >"$dir/out" 2>"$dir/err" || not_ok "$name" "one set: $(cat "$dir/err")"
    timeout 240 "${launch[@]}" -np 4 "$lockstep" batch --models-dir "$dir/models" --input "$dir/in" --output "$dir/sets" \
        --plain --max-batch 8 --tensor-parallel 2 >"$dir/out" 2>"$dir/err"
    status=$?
    check "$name" "status $status: $(cat "$dir/err")" [ $status = 0 -a "$(texts "$dir/one-set")" = "$(texts "$dir/sets")" \
        -a "$(grep -c 'is loaded on set [01] in' "$dir/err")" = 2 -a "$(grep -o 'on set [01] in' "$dir/err" | sort -u | wc -l)" = 2 ]
}

both_hosts
models_on_hosts
lost_replica
done_testing
