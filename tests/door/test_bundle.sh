#!/usr/bin/env bash
# tests/door/test_bundle.sh - make bundle from a CPU build: unpacked elsewhere, programs run with the bundled libraries.
. "$(dirname "$0")/../cluster/cluster.sh"
make_folder
cd "$root" || exit 1
unset MAKEFLAGS MAKELEVEL MFLAGS
grep -qs -e -Werror build/cpu/flags && export WERROR=1 # as in the existing build, so that nothing is recompiled
name=lockstep-$(cat VERSION)
log=$(BUNDLE_GZIP=1 make -s -j2 bundle 2>&1)
check "make bundle" "$log" [ $? = 0 ]
for kind in bundle tests; do tar -xzf "build/cpu/$name-$kind.tar.gz" -C "$dir" || exit 1; done
users=$dir/$name-bundle testers=$dir/$name-tests
size=$(stat -c %s "build/cpu/$name-bundle.tar.gz")
check "30 MB at most for users" "$size bytes" [ "$size" -le 30000000 ]
check "no tests for users" "$(ls "$users/bin")" [ ! -e "$users/bin/tests" ]
for folder in "$users" "$testers"; do
    for library in libzmq libsodium libjansson libpcre2-8 libutf8proc libxxhash 'libz\.so' libgomp; do
        found=$("$folder/run.sh" ldd "$folder/bin/lockstep" | grep -o "$library[^ ]* => [^ ]*")
        check "$library comes from ${folder##*-}" "$found" [ "${found##*=> }" != "${found#*"$folder/lib/"}" ]
    done
done
missing=$("$testers/run.sh" ldd "$testers"/bin/lockstep* "$testers"/bin/tests/*/test_* | grep 'not found')
check "no file that a test needs is missing" "$missing" [ -z "$missing" ]
text=$("$users/run.sh" lockstep version)
check "run.sh lockstep version" "$text" [ "$text" = "lockstep ${name#lockstep-}" ]
text=$("$users/run.sh" check 2>&1)
check "users are told where the tests are" "$text" [ $? = 2 -a "$text" = "run.sh: the tests are in the bundle for testers" ]
text=$(cd "$testers" && OMP_WAIT_POLICY=passive LOCKSTEP_CASE_STRIDE=7 CHECK=ops DEVICE=cpu RANKS=1 timeout 600 ./run.sh check 2>&1)
check "run.sh check runs the tests of operations" "$text" grep -qE '^[1-9][0-9]* passed, 0 failed' <<<"$text"
done_testing
