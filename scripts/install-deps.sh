#!/bin/sh
# Finds packages that building or testing Lockstep needs and this machine lacks, and installs them from Debian or Ubuntu.
# Usage: scripts/install-deps.sh build|test|check|ci|cluster (default: build). Quick and silent if none is missing.
#
# Root: prints the packages, and installs them. Other users: prints them and asks before using sudo; without a terminal,
# or without sudo, stops with the line to run. Other distributions: prints the missing packages and stops. DEPS=0: never installs.
set -eu

# PROBE DEBIAN RPM - the thing to look for, its package on Debian and Ubuntu, and on RHEL, Fedora and SUSE, where "-"
# stands for pkgconfig(NAME). A probe with "?" in front is optional: it is installed only if that needs no question.
# Probes look for the thing itself instead of the package, so that modules, Spack and libraries built by hand count.
needs() {
    case $1 in
    build | test | check)
        echo "
        command:gcc        gcc             gcc
        header:stdio.h     libc6-dev       glibc-devel
        command:make       make            make
        command:pkg-config pkg-config      pkgconf-pkg-config
        command:mpirun     openmpi-bin     openmpi
        command:mpicc      libopenmpi-dev  openmpi-devel
        library:jansson    libjansson-dev  -
        library:libpcre2-8 libpcre2-dev    -
        library:libutf8proc libutf8proc-dev -
        library:libzmq     libzmq3-dev     -
        library:libsodium  libsodium-dev   -
        library:libxxhash  libxxhash-dev   -
        library:zlib       zlib1g-dev      -
        ?library:libedit   libedit-dev     -"
        ;;
    esac
    case $1 in
    test | check)
        echo "
        library:cmocka  libcmocka-dev -
        command:python3 python3       python3
        command:ps      procps        procps-ng
        command:curl    curl          curl
        command:ip      iproute2      iproute"
        ;;
    esac
    case $1 in
    check)
        echo "
        command:clang        clang           clang
        fuzzer               libclang-rt-dev compiler-rt
        command:clang-format clang-format    clang-tools-extra"
        ;;
    ci)
        echo "
        command:clang-tidy clang-tidy  clang-tools-extra
        openmp             libomp-dev  libomp-devel"
        ;;
    cluster)
        echo "
        command:slurmctld slurmctld    slurm-slurmctld
        command:slurmd    slurmd       slurm-slurmd
        command:srun      slurm-client slurm
        command:munged    munge        munge"
        ;;
    esac
}

is_here() { # PROBE
    case $1 in
    command:*) command -v "${1#*:}" ;;
    header:*) echo "#include <${1#*:}>" | gcc -E - ;;
    library:*) pkg-config --exists "${1#*:}" ;;
    openmp) echo '#include <omp.h>' | clang -fopenmp -E - ;;
    fuzzer) ls "$(clang --print-runtime-dir)"/libclang_rt.fuzzer* "$(clang --print-resource-dir)"/lib/*/libclang_rt.fuzzer* | grep . ;;
    esac >/dev/null 2>&1
}

stop() {
    echo "install-deps: $1" >&2
    exit 1
}

wanted=${1:-build}
case $wanted in
build) target=deps ;;
test) target=deps-test ;;
check) target=deps-check ;;
cluster) target=deps-cluster ;;
ci) target=deps-ci ;;
*) echo "usage: scripts/install-deps.sh [build|test|check|ci|cluster]" >&2; exit 2 ;;
esac
PATH=$PATH:${SBIN-/usr/sbin:/sbin} # daemons' folders, for users too

packages= wishes= rpms= things=
while read -r probe debian rpm; do
    [ -n "$probe" ] || continue
    is_here "${probe#\?}" && continue
    case $probe in
    \?*) wishes="$wishes $debian" ;;
    *)
        packages="$packages $debian" things="$things ${probe#*:}"
        [ "$rpm" = - ] && rpm="'pkgconfig(${probe#*:})'"
        rpms="$rpms $rpm"
        ;;
    esac
done <<END
$(needs "$wanted")
END
root=$([ "$(id -u)" = 0 ] && echo yes || true)
[ -n "$packages" ] || { [ -n "$root" ] && [ -n "$wishes" ]; } || exit 0

if [ "${DEPS:-1}" = 0 ]; then
    [ -z "$packages" ] || echo "install-deps: DEPS=0, nothing is installed; missing:$packages" >&2
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    [ -n "$packages" ] || exit 0
    for tool in dnf zypper; do
        ! command -v $tool >/dev/null || stop "missing:$things; on this machine: $tool install$rpms (docs/install.md)"
    done
    stop "missing:$things; docs/install.md has the packages of some distributions (DEPS=0: build without this check)"
fi

sudo=
if [ -z "$root" ]; then
    echo "install-deps: missing:$packages" >&2
    line="sudo make $target"
    command -v sudo >/dev/null || stop "there is no sudo here; have an administrator run: make $target (DEPS=0: build without this check)"
    { [ -t 0 ] && [ -t 2 ]; } || stop "to install them, run: $line (DEPS=0: build without this check)"
    printf 'install-deps: install them with sudo? [y/N] ' >&2
    read -r answer || answer=
    case $answer in [yY] | [yY][eE][sS]) ;; *) stop "nothing is installed; later: $line (DEPS=0: build without this check)" ;; esac
    sudo=sudo
fi
packages="$packages$wishes"
echo "install-deps: installing$packages"
if [ "$wanted" = cluster ] && [ -d /run/systemd/system ]; then
    echo "install-deps: systemd runs here: these packages may start slurmctld, slurmd and munge as services" >&2
fi
install() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null; }
# Updates the package lists only if the machine has none or stale ones.
install 2>/dev/null || { $sudo apt-get update -qq && install; }
