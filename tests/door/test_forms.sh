#!/usr/bin/env bash
# tests/door/test_forms.sh - random schemas like those of applications, through `batch` at temperatures 1 and 2: texts that
# are complete are valid according to python's jsonschema, if $GATEWAY_PYTHON (python3) has it. FORMS: their number, FORMS_SEED: the seed.
. "$(dirname "$0")/../cluster/cluster.sh"
python=${GATEWAY_PYTHON:-python3}
cd "$root" || exit 1
"$python" -c '' 2>/dev/null || skip_all "$python does not exist"
make_folder
"$python" tests/door/forms.py write "${FORMS_SEED:-1}" "${FORMS:-50}" "$dir/in.jsonl" || exit 1
mpirun -n 2 "$lockstep" batch --model demo/lockstep-stories -i "$dir/in.jsonl" -o "$dir/out.jsonl" --plain >"$dir/log" 2>&1
status=$?
[ $status -le 1 ] || { echo "# status $status: $(tail -n 3 "$dir/log")"; echo "not ok 1 - batch"; exit 1; }
"$python" tests/door/forms.py check "$dir/in.jsonl" "$dir/out.jsonl"
