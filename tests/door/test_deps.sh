#!/usr/bin/env bash
# tests/door/test_deps.sh - scripts/install-deps.sh on a machine that lacks libraries, as root and as another user: fakes of id, sudo,
# apt-get, pkg-config and the commands it looks for come first on the PATH and record their arguments.
. "$(dirname "$0")/../cluster/cluster.sh"
make_folder
script=$root/scripts/install-deps.sh
log=$dir/log
mkdir "$dir/bin"
fake() { printf '#!/bin/sh\n%s\n' "$2" >"$dir/bin/$1" && chmod +x "$dir/bin/$1"; }
fake id 'echo ${FAKE_UID:-1000}'
fake sudo 'echo "sudo $*" >>'"$log"'; exec "$@"'
fake apt-get 'echo "apt-get $*" >>'"$log"'; exit ${APT_STATUS:-0}'
# LACKING: missing libraries; every other one exists.
fake pkg-config 'for last; do :; done; case " $LACKING " in *" $last "*) exit 1 ;; esac'
for command in gcc make mpirun mpicc python3 clang clang-format curl ps ip; do fake $command 'exit 0'; done
fake ls 'echo libclang_rt.fuzzer.a' # the fuzzer's library
# No real command is found except those that the script runs.
for command in sh env grep printf; do ln -s "$(command -v $command)" "$dir/bin/"; done

# deps SET [NAME=VALUE...]: runs it without a terminal; -> $status, $text, and $log.
deps() {
    local set=$1
    shift
    : >"$log"
    text=$(env -i PATH="$dir/bin" SBIN= "$@" "$(command -v sh)" "$script" "$set" </dev/null 2>&1)
    status=$?
}
# ask ANSWER [NAME=VALUE...]: the same at a terminal, at which ANSWER is typed.
ask() {
    local answer=$1
    shift
    : >"$log"
    text=$(echo "$answer" | SHELL=/bin/sh script -qec "env -i PATH=$dir/bin SBIN= $* $(command -v sh) $script build" /dev/null 2>&1)
    status=$?
}
installed() { grep '^apt-get install' "$log" | sed 's/.*recommends //'; }
no_install() { ! grep -q apt-get "$log"; }
says() { [[ $text == *"$1"* ]]; }
works_as() { # NAME, then what must hold; every call has the same reason
    local name=$1
    shift
    check "$name" "status $status: $text; $(cat "$log")" "$@"
}

missing="LACKING=libzmq libsodium"
deps build
works_as "nothing is missing: silent" [ "$status" = 0 -a -z "$text" ]
deps build "$missing" FAKE_UID=0
works_as "root: says what is installed" says "installing libzmq3-dev libsodium-dev"
works_as "root: installs without sudo" [ "$status $(installed)" = "0 libzmq3-dev libsodium-dev" -a ! "$(grep sudo "$log")" ]
deps build "LACKING=libedit" FAKE_UID=0
works_as "root: optional packages are installed" [ "$status $(installed)" = "0 libedit-dev" ]
deps build "LACKING=libedit"
works_as "another user is not asked about optional packages" [ "$status" = 0 -a -z "$text" ]
deps build "$missing"
works_as "no terminal: the packages are named" says "missing: libzmq3-dev libsodium-dev"
works_as "no terminal: stops with the line to run" says "run: sudo make deps "
works_as "no terminal: nothing is installed" [ "$status" = 1 -a ! -s "$log" ]
deps check "LACKING=cmocka"
works_as "check names its own target" says "sudo make deps-check"
deps test "LACKING=cmocka"
works_as "so does test" says "sudo make deps-test"
deps build "$missing" DEPS=0
works_as "DEPS=0 continues, and prints a message" [ "$status" = 0 -a ! -s "$log" ]
works_as "DEPS=0 names the packages" says "libzmq3-dev libsodium-dev"
deps build "$missing" DEPS=0 FAKE_UID=0
works_as "DEPS=0 holds for root, too" [ "$status" = 0 -a ! -s "$log" ]
deps check FAKE_UID=0
works_as "check does not install Slurm" [ "$status" = 0 -a -z "$text" -a ! -s "$log" ]
deps cluster FAKE_UID=0
works_as "cluster installs it" [ "$status" = 0 -a "$(installed | grep -o 'slurmctld slurmd slurm-client munge')" ]
deps build "$missing" FAKE_UID=0 APT_STATUS=100
works_as "a failed installation fails, after an update of the lists" [ "$status" != 0 -a "$(grep -c 'apt-get update' "$log")" = 1 ]
if command -v script >/dev/null; then
    ask y "LACKING=libzmq"
    works_as "a terminal: asks, and uses sudo after a yes" [ "$status" = 0 -a "$(grep -c '^sudo env' "$log")" = 1 ]
    ask n "LACKING=libzmq"
    works_as "a terminal: a no installs nothing" [ "$status" = 1 -a ! -s "$log" ]
    ask "" "LACKING=libzmq"
    works_as "a terminal: silence is a no" [ "$status" = 1 -a ! -s "$log" ]
fi
rm "$dir/bin/sudo"
deps build "$missing"
works_as "no sudo: an administrator is named" [ "$status" = 1 -a "$(grep -o 'an administrator run: make deps' <<<"$text")" ]
rm "$dir/bin/apt-get"
fake zypper 'echo zypper >>'"$log"
deps build "$missing" FAKE_UID=0
works_as "an RPM distribution: the line to run is named, nothing is run" \
    [ "$status" = 1 -a ! -s "$log" -a "$(grep -F "zypper install 'pkgconfig(libzmq)' 'pkgconfig(libsodium)'" <<<"$text")" ]
done_testing
