#!/bin/sh
# Install what building and testing Lockstep needs from Debian's or Ubuntu's packages. Quick when nothing is missing.
# Usage: scripts/install-deps.sh [build|check]      (default: build)
set -eu
build="gcc make pkg-config openmpi-bin libopenmpi-dev libjansson-dev libpcre2-dev libutf8proc-dev libzmq3-dev libsodium-dev libxxhash-dev"
check="$build libcmocka-dev python3 clang libclang-rt-dev clang-format procps iproute2"
# A real Slurm for tests/cluster. Not where systemd runs: it would start their services; the tests then say SKIPPED.
[ -d /run/systemd/system ] || check="$check slurmctld slurmd slurm-client munge"
case "${1:-build}" in
build) want=$build ;;
check) want=$check ;;
*) echo "usage: scripts/install-deps.sh [build|check]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "install-deps: not Debian or Ubuntu, nothing is installed; needed are the equivalents of: $want" >&2
    exit 0
fi
missing=
for package in $want; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "install-deps: not root and no sudo; ask for:$missing" >&2; exit 1; }
    as_root=sudo
fi
echo "install-deps: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# A machine whose lists are fresh needs no update; one without lists does.
$as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 || {
    $as_root apt-get update -qq
    $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
}
