#!/bin/sh
# Tarballs for machines without a package registry: BUILD_DIR/lockstep-VERSION-bundle.tar.gz, for users, has the programs, man
# pages, the demo model, scripts, and the shared libraries except the system's and CUDA's (MPI, CUDA and NCCL come from
# the machine); lockstep-VERSION-tests.tar.gz, for testers, also has everything that scripts/check-gpu.sh runs.
# Usage: scripts/bundle.sh BUILD_DIR FILE...: built test programs and the libraries that they preload. After unpacking:
# ./run.sh lockstep ..., and for testers ./run.sh check.
set -eu
build=$1
shift
name=lockstep-$(cat VERSION)

# The shared libraries that programs need, directly or indirectly: "libzmq.so.5 /path/of/it", without those of the system's packages
# and those of MPI and CUDA.
libraries() { # FILE...
    ldd "$@" | sed -n 's/^[[:space:]]*\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p' | sort -u
}
foreign='^lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+|mpi|open-rte|open-pal|prrte|pmix|cuda|cublas|cublasLt|nccl|nvidia-ml)\.'
needed() { # FILE...: the libraries that they name themselves
    for file; do objdump -p "$file" | sed -n 's/^ *NEEDED *//p'; done | sort -u | grep -vE "$foreign"
}
# Copies the libraries that programs name, and those that these need; neither list has Open MPI's own libraries.
copy_libraries() { # FOLDER FILE...
    folder=$1
    shift
    direct=$(for wanted in $(needed "$@"); do libraries "$@" | awk -v n="$wanted" '$1 == n { print $2 }'; done)
    brought=$(libraries $direct | awk '{ print $1, $2 }' | grep -vE "$foreign" | cut -d' ' -f2)
    for library in $direct $brought; do cp -L "$library" "$folder/"; done
}

# Puts everything common to both bundles into FOLDER.
fill() {
    rm -rf "$1"
    mkdir -p "$1/bin" "$1/lib" "$1/scripts" "$1/demo" "$1/man/man1"
    cp "$build/lockstep" "$build/lockstep-client" "$build/lockstep-gateway" "$1/bin/"
    cp "$build"/pages/*.1 "$1/man/man1/"
    cp -r demo/lockstep-stories "$1/demo/"
    cp -r scripts/slurm scripts/bench-gpu.sh scripts/bench-loading.sh scripts/make-dummy-checkpoint.py scripts/configs "$1/scripts/"
    cp LICENSE README.md "$1/"
    cat >"$1/run.sh" <<'END'
#!/bin/sh
# ./run.sh lockstep ARGUMENTS, ./run.sh check, or any other command with the libraries found. Under mpirun too.
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/lib:/usr/local/cuda/lib64:/usr/local/cuda/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PATH="$here/bin:$PATH"
case ${1:-} in
check) [ -d "$here/bin/tests" ] || { echo "run.sh: the tests are in the bundle for testers" >&2; exit 2; }
   cd "$here" && exec scripts/check-gpu.sh bin ;;
*) exec "$@" ;;
esac
END
    chmod +x "$1/run.sh"
}

pack() { # FOLDER
    find "$1/bin" -type f -exec strip --strip-debug {} +
    tar -C "$build" -I "gzip -${BUNDLE_GZIP:-6}" -cf "$1.tar.gz" "${1##*/}" # BUNDLE_GZIP=1: fast
    du -sh "$1" "$1.tar.gz"
}

users=$build/$name-bundle testers=$build/$name-tests
fill "$users"
copy_libraries "$users/lib" "$users"/bin/*
pack "$users"

fill "$testers"
for file; do
    mkdir -p "$testers/bin/$(dirname "${file#"$build/"}")"
    cp "$file" "$testers/bin/${file#"$build/"}"
done
mkdir -p "$testers/tests/parity"
cp -r tests/parity/fixtures "$testers/tests/parity/"
cp scripts/check-gpu.sh "$testers/scripts/"
copy_libraries "$testers/lib" "$testers"/bin/lockstep* "$testers"/bin/tests/*/test_*
pack "$testers"
