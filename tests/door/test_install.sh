#!/usr/bin/env bash
# tests/door/test_install.sh - make install and uninstall below DESTDIR, the man pages, completions in bash, compiler flags.
. "$(dirname "$0")/../cluster/cluster.sh"
make_folder
cd "$root" || exit 1
unset MAKEFLAGS MAKELEVEL MFLAGS
grep -qs -e -Werror build/cpu/flags && export WERROR=1 # as in the existing build, so that nothing is recompiled
files() { (cd "$dir/root" 2>/dev/null && find . ! -type d | sort); }

log=$(make -s install DESTDIR="$dir/root" PREFIX=/opt/x 2>&1)
check "make install" "$log" [ $? = 0 ]
for file in bin/lockstep bin/lockstep-client bin/lockstep-gateway share/man/man1/lockstep.1 share/man/man1/lockstep-serve.1 share/man/man1/lockstep-client.1 \
    share/man/man1/lockstep-gateway.1 share/bash-completion/completions/lockstep-gateway \
    share/bash-completion/completions/lockstep share/bash-completion/completions/lockstep-client share/doc/lockstep/README.md \
    share/doc/lockstep/LICENSE share/doc/lockstep/docs/serve.md share/lockstep/lockstep-stories/config.json share/lockstep/slurm/batch.sbatch; do
    check "installed: $file" "$(files)" [ -s "$dir/root/opt/x/$file" ]
done
links=0 broken=
while IFS=: read -r page link; do
    links=$((links + 1))
    [ -e "$(dirname "$page")/$link" ] || broken+=" $page: $link"
done < <(grep -roHE '\]\([^)#:]+[)#]' --include=*.md "$dir/root/opt/x/share/doc/lockstep" | sed -E 's/:\]\(/:/; s/.$//')
check "relative links of the installed documents lead to files" "$links links, broken:$broken" [ $links -gt 30 -a -z "$broken" ]
check "no file is outside the prefix" "$(files)" [ -z "$(files | grep -v '^\./opt/x/')" ]
program=$dir/root/opt/x/bin/lockstep
story=$(timeout 60 mpirun -n 1 "$program" generate -m "$dir/root/opt/x/share/lockstep/lockstep-stories" -p Once -n 4 --temperature 0 2>&1)
check "the installed program tells a story" "$story" [ "${story:0:4}" = Once ]

if command -v man >/dev/null; then
    bad= missing=
    for page in "$dir/root/opt/x/share/man/man1"/*.1; do
        bad+=$(man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
    done
    check "man prints no warnings" "$bad" [ -z "$bad" ]
    text=$(MANWIDTH=500 man -E ascii -P cat -l "$dir/root/opt/x/share/man/man1/lockstep-generate.1" 2>/dev/null)
    for option in $("$program" generate --help | sed -nE 's/^  (-., )?(--[a-z-]+).*/\2/p'); do
        [[ $text == *"$option"* ]] || missing="$missing $option"
    done
    check "every option of generate is on its page" "missing:$missing" [ -n "$text" -a -z "$missing" ]
fi

# complete WORD...: bash's completions of the last word.
complete_words() {
    local script='. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }
        $(complete -p "$1" | sed "s/.*-F \([^ ]*\).*/\1/"); echo ${COMPREPLY[*]}'
    bash --norc -c "$script" "$dir/root/opt/x/share/bash-completion/completions/$1" "$@" 2>&1
}
offers() { # EXPECTED WORD...
    local expected=$1 found
    shift
    found=$(complete_words "$@")
    check "completion of: $*" "offers \"$found\", expected \"$expected\"" [ "$found" = "$expected" ]
}
offers "generate" lockstep gen
offers "--max-batch --max-batch-tokens --max-broadcast-us" lockstep generate --max-b
offers "auto cpu cuda" lockstep generate --device ""
offers "cuda" lockstep generate --device = cu
offers "--n-prompt --n-gen --n-depth" lockstep bench --n-
offers "tests/door" lockstep generate --model tests/doo
offers "tests/door" lockstep generate -m tests/doo
offers "tests/door/test_install.sh" lockstep batch --input tests/door/test_inst
offers "" lockstep generate --seed ""
offers "tokenize top" lockstep-client to
offers "true false" lockstep-client tokenize --parse-special ""
offers "--max-body --max-buffered" lockstep-gateway --max-b
offers "tests/door/test_install.sh" lockstep-gateway --listen :80 --api-keys tests/door/test_inst

flags() { make -n V=1 -B "$@" build/cpu/kernels/cpu/matmul.c.o build/cpu/base/err.c.o 2>/dev/null | grep -E -- "-c -o"; }
commands=$(flags CFLAGS=-O1 CPPFLAGS=-DMINE WERROR=0)
last=$(grep -oE -- '-O[0-9s]' <<<"$(grep matmul <<<"$commands")" | tail -1)
check "CFLAGS=-O1 takes precedence, for kernels too" "$commands" [ "$last" = -O1 ]
check "kernels keep -ffp-contract=fast" "$commands" grep -q 'ffp-contract=fast.*matmul' <<<"$commands"
check "CPPFLAGS are added to the project's own" "$commands" [ "$(grep -c -- '-I\. .*-DMINE' <<<"$commands")" = 2 ]
check "warnings are errors with WERROR=1 only" "$commands" [ -z "$(grep -e -Werror <<<"$commands")" -a -n "$(flags WERROR=1 | grep -e -Werror)" ]
link=$(make -n V=1 -B LDFLAGS=-Wl,-O1 build/cpu/lockstep-client 2>/dev/null | grep -- '-o build/cpu/lockstep-client')
check "LDFLAGS are obeyed" "$link" grep -q -- '-Wl,-O1' <<<"$link"

touch "$dir/root/opt/x/bin/another" "$dir/root/opt/x/share/man/man1/another.1"
log=$(make -s uninstall DESTDIR="$dir/root" PREFIX=/opt/x 2>&1)
check "make uninstall leaves only foreign files" "$log $(files)" [ "$(files | tr '\n' ' ')" = "./opt/x/bin/another ./opt/x/share/man/man1/another.1 " ]
done_testing
