#!/usr/bin/env bash
# tests/door/test_peers.sh - scripts/bench-peers.sh measures the same work with Lockstep and a peer, a fake one here, and
# with Lockstep alone if there is none.
. "$(dirname "$0")/../cluster/cluster.sh"
make_folder
cd "$root" || exit 1
export CONFIG=$model/config.json OUT=$dir/peers WORK="l:4:3:2 p:16 d:8:4:3 t:6:4:5 s:40:3:4:32" PEER_PYTHON=false PEER=
cat >"$dir/peer" <<'END'
#!/usr/bin/env python3
import json, os, sys
assert json.load(open(os.path.join(sys.argv[1], "config.json")))["vocab_size"] > 0
assert os.environ["PEER_RANKS"] == "2"
print("WARNING [base.py:300] a line of the peer's own")
print(json.dumps({"peer": "fake", "version": "1.2"}))
for i, work in enumerate(sys.argv[2:5]):
    print(json.dumps({"work": work, "figure": [i + 1.0, i + 0.5, i + 2.0]}))
print(json.dumps({"work": sys.argv[6], "figure": [9.0, 8.0, 10.0], "first_token": 12.0}))
END
chmod +x "$dir/peer"

# value PYTHON: an expression of the file's content `o`
value() { python3 -c "import json; o = json.load(open('$OUT.json')); print(($1))"; }

PEER=$dir/peer scripts/bench-peers.sh mpirun -n 2 "$lockstep" >"$dir/table" 2>"$dir/errors"
status=$?
check "Lockstep's and a peer's figures" "status $status: $(cat "$dir/errors")" [ $status = 0 ]
found=$(value '[r["work"] for r in o["rows"]]')
check "every kind of work is measured" "$found" [ "$found" = "['l:4:3:2', 'p:16', 'd:8:4:3', 't:6:4:5', 's:40:3:4:32']" ]
found=$(value 'all(0 < r["ours"][1] <= r["ours"][0] <= r["ours"][2] for r in o["rows"]), [r.get("peer") for r in o["rows"]]')
check "with figures" "$found" [ "$found" = "(True, [[1.0, 0.5, 2.0], [2.0, 1.5, 3.0], [3.0, 2.5, 4.0], None, [9.0, 8.0, 10.0]])" ]
found=$(value '[abs(r["times_as_fast"] * r["ours"][0] / r["peer"][0] - 1) < 1e-9 for r in o["rows"][:2]], abs(o["rows"][2]["times_as_fast"] * 3 / o["rows"][2]["ours"][0] - 1) < 1e-9')
check "milliseconds are better if fewer, tokens/s if more" "$found" [ "$found" = "([True, True], True)" ]
found=$(value 'o["peer"], o["peer_version"], o["version"]')
check "who measured" "$found" [ "$found" = "('fake', '1.2', '$(cat VERSION)')" ]
found=$(value '[sorted(r["first_token_ms"].items()) for r in o["rows"][2:3]], [0 < r["first_token_ms"]["ours"] < 1e6 for r in o["rows"][3:]], o["rows"][4]["first_token_ms"]["peer"]')
check "times to the first token of requests queued at once" "$found" [ "$found" = "([[('ours', None), ('peer', None)]], [True, True], 12.0)" ]
check "a table" "$(cat "$dir/table")" [ "$(grep -c -E '^(l|p|d|t|s):' "$dir/table")" = 5 ]
found=$(python3 -c "import xml.dom.minidom as x; print(len(x.parse('$OUT.svg').getElementsByTagName('rect')))")
check "a picture with a bar for each figure" "$found" [ "$found" = 10 ]

WORK="p:16" scripts/bench-peers.sh mpirun -n 1 "$lockstep" >"$dir/table" 2>"$dir/errors"
check "without a peer it says so" "$(cat "$dir/errors")" grep -q '^bench-peers: false has no vLLM (.*): Lockstep alone$' "$dir/errors"
found=$(value 'o["peer"], len(o["rows"]), "peer" in o["rows"][0]')
check "and measures alone" "$found" [ "$found" = "(None, 1, False)" ]

WORK="x:16" scripts/bench-peers.sh mpirun -n 1 "$lockstep" >"$dir/table" 2>"$dir/errors"
check "unknown work is named" "$(cat "$dir/errors")" grep -q 'found work "x:16", expected one as in' "$dir/errors"
WORK="p:16" PEER=false scripts/bench-peers.sh mpirun -n 1 "$lockstep" >"$dir/table" 2>"$dir/errors"
status=$?
check "a peer that fails is a failure" "status $status" [ $status != 0 ]
done_testing
