#!/bin/sh
# One tarball for machines without a package registry: program, what scripts/check-gpu.sh runs, their data, and the shared
# libraries that are neither the system's nor CUDA's (MPI, CUDA and NCCL are the machine's).
# Usage: scripts/bundle.sh BUILD_DIR; makes BUILD_DIR/bundle and BUILD_DIR/bundle.tar.gz. There: ./run.sh lockstep ..., ./run.sh check.
set -eu
build=$1
out=$build/bundle
rm -rf "$out"
mkdir -p "$out/bin/tests/ops" "$out/bin/tests/parity" "$out/bin/tests/gpu" "$out/bin/tests/soak" \
    "$out/bin/tests/e2e" "$out/lib" "$out/tests/parity" "$out/scripts" "$out/demo"
cp "$build/lockstep" "$build/lockstep-client" "$out/bin/"
for source in tests/ops/test_*.c tests/gpu/test_*.c tests/parity/test_parity.c tests/e2e/test_serve.c tests/soak/test_soak.c; do
    test=${source%.c}
    cp "$build/$test" "$out/bin/$test"
done
cp "$build/tests/fail_nccl.so" "$build/tests/fail_graph.so" "$build/tests/share_gpus.so" "$out/bin/tests/"
find "$out/bin" -type f -exec strip --strip-debug {} +
cp -r tests/parity/fixtures "$out/tests/parity/"
cp -r demo/lockstep-stories "$out/demo/"
cp -r scripts/check-gpu.sh scripts/bench-gpu.sh scripts/bench-loading.sh scripts/make-dummy-checkpoint.py scripts/configs "$out/scripts/"
libraries() { # FILE...: the paths of the shared libraries that they need, also through others
    ldd "$@" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u
}
ours=$(libraries "$out"/bin/lockstep "$out"/bin/tests/*/test_* |
    grep -E '/lib(jansson|pcre2-8|utf8proc|cmocka|gomp|cudart|zmq)\.')
# libzmq is the one that brings more: all but what the C and C++ compilers' own packages have everywhere.
theirs=$(libraries $(echo "$ours" | grep zmq) | grep -vE '/lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+)\.')
for library in $ours $theirs; do cp -L "$library" "$out/lib/"; done
cat >"$out/run.sh" <<'END'
#!/bin/sh
# ./run.sh lockstep ARGUMENTS, ./run.sh check, or any other command with the libraries found. Under mpirun too.
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/lib:/usr/local/cuda/lib64:/usr/local/cuda/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PATH="$here/bin:$PATH"
case ${1:-} in
check) cd "$here" && exec scripts/check-gpu.sh bin ;;
*) exec "$@" ;;
esac
END
chmod +x "$out/run.sh"
tar -C "$build" -czf "$build/bundle.tar.gz" bundle
du -sh "$out" "$build/bundle.tar.gz"
