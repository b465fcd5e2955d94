#!/usr/bin/env bash
# tests/door/test_runner.sh - what tests/run.py counts: passed, failed and skipped cases of a test's output.
. "$(dirname "$0")/../cluster/cluster.sh"
make_folder
counts() { # STATUS LINE...: passed, failed, skipped
    local status=$1
    shift
    printf '%s\n' "$@" >"$dir/output"
    cd "$root/tests" && python3 - "$status" "$dir" <<'PYTHON' | tail -n1
import resource, sys, types, run
runner, test = run.Runner(sys.argv[2], 2), run.Test("door/x", [], 10)
with open(sys.argv[2] + "/output") as made, open(runner.log_of(test), "w") as log:
    log.write(made.read())
runner.judge(run.Run(test, types.SimpleNamespace(returncode=int(sys.argv[1])), 0.0), 1.0, resource.getrusage(resource.RUSAGE_SELF))
print(*(runner.count[k] for k in ("passed", "failed", "skipped")))
PYTHON
}
expect() { # NAME WANTED STATUS LINE...
    local name=$1 wanted=$2 found
    shift 2
    found=$(counts "$@")
    check "$name" "counted $found, expected $wanted" [ "$found" = "$wanted" ]
}
expect "cases" "2 1 0" 1 "ok 1 - a" "not ok 2 - b" "ok 3 - c" "1..3"
expect "a test that cannot run" "0 0 1" 0 "ok 1 - x.sh # SKIP needs root"
expect "a first case that cannot run hides no failure" "1 1 1" 1 "ok 1 - a # SKIP not installed" "ok 2 - b" "not ok 3 - c"
expect "a skipped case of cmocka 1.1.5" "1 0 1" 0 "not ok 1 # SKIP a" "ok 2 - b"
expect "a skipped test that fails" "0 1 1" 1 "ok 1 - x.sh # SKIP needs root"
expect "a test that crashes" "1 1 0" 139 "ok 1 - a"
expect "a test without a case" "0 1 0" 0 "1..0"
done_testing
