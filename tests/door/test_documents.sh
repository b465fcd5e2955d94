#!/usr/bin/env bash
# tests/door/test_documents.sh - the source contains the messages that documents quote; the files that they name exist; their lines are short;
# pictures show the recorded figures; docs/install.md has every package that is installed.
. "$(dirname "$0")/../cluster/cluster.sh"
make_folder
cd "$root" || exit 1
log=$(tests/door/quotes.py ./*.md docs/*.md docs/decisions/*.md)
check "quoted messages exist in the source" "$log" [ $? = 0 ]
printf '| what you see | x |\n|---|---|\n| `frobnicated 3 ranks` | x |\n' >"$dir/bad.md"
found=$(tests/door/quotes.py "$dir/bad.md")
printf 'It says `frobnicated all the ranks`.\n"message": "frobnicated no ranks"\nlockstep: fatal: frobnicated rank 0\n' >"$dir/bad.md"
found+=$'\n'$(tests/door/quotes.py "$dir/bad.md")
check "other messages are found: in tables, prose, JSON and output" "$found" [ "$(grep -c 'but the source does not say' <<<"$found")" = 4 ]
log=$(scripts/check-lines.py)
check "lines of documents have at most 120 columns" "$log" [ $? = 0 ]
printf '#!/bin/sh\nexit 127\n' >"$dir/git"
chmod +x "$dir/git"
log=$(PATH=$dir:$PATH scripts/check-comments.py 2>&1)
check "comments are checked without git" "$log" [ $? = 0 ]
long=$(printf 'x%.0s' {1..121})
printf '| %s |\n```\n%s\n```\n[x](%s)\n' "$long" "$long" "$long" >"$dir/long.md"
check "tables, fenced blocks and links may be longer" "$(scripts/check-lines.py "$dir/long.md")" scripts/check-lines.py "$dir/long.md"
printf '%s\n' "$long" >>"$dir/long.md"
scripts/check-lines.py "$dir/long.md" >"$dir/found" && found=none || found=$(cat "$dir/found")
check "a longer line is found" "$found" [ "$found" = "$dir/long.md:6: 121 columns; at most 120 are allowed" ]
missing=
for document in README.md CONTRIBUTING.md SECURITY.md docs/*.md docs/*/*.md; do
    for link in $(grep -oE '\]\([^)#:]+' "$document" | cut -c3-); do
        [ -e "$(dirname "$document")/$link" ] || missing="$missing $document:$link"
    done
done
check "links lead to files" "missing:$missing" [ -z "$missing" ]
missing=
for name in $(cat README.md CONTRIBUTING.md docs/install.md docs/gpu.md docs/troubleshooting.md | grep -oE '`(docs|scripts|packaging|demo|tests)/[A-Za-z0-9_./-]+`' | tr -d '`' | sort -u); do
    [ -e "$name" ] || missing="$missing $name"
done
for name in $(grep -ohE '`[a-z][A-Za-z0-9_/-]*\.(c|h|cu|cuh|py|sh)`' README.md CONTRIBUTING.md docs/*.md docs/decisions/*.md | tr -d '`' | sort -u); do
    case $name in */NAME.*) continue ;; esac # stands for any name
    find packaging base client commands coordinator gateway kernels partition plan protocol rank scripts tests text tools demo main.c -path "*/$name" -o -path "$name" |
        grep -q . || missing="$missing $name"
done
check "named files exist" "missing:$missing" [ -z "$missing" ]
commands=$("${lockstep}-client" --help | sed -n 's/^  lockstep-client \([a-z]*\) --endpoint.*/\1/p' | paste -sd'|')
options_first() { grep -rnE "lockstep-client( -[^ ]*( [^- ][^ ]*)?)+ ($commands)( |\`|$)" "$@"; }
found=$(options_first README.md docs scripts packaging)
check "a command of the client comes before its options" "$found" [ -z "$found" -a -n "$commands" ]
printf 'lockstep-client --rendezvous r.json health\n' >"$dir/bad.md"
found=$(options_first "$dir/bad.md")
check "an example with options before the command is found" "$commands" [ -n "$found" ]
scripts/pictures.py decode >"$dir/decode.svg"
check "the picture has the recorded figures" "scripts/pictures.py decode > docs/pictures/decode.svg" cmp -s "$dir/decode.svg" docs/pictures/decode.svg
missing=
for package in $(sed -nE '/^    build \| test \| check\)/,/;;/s/^ +\??[a-z]+:[^ ]+ +([^ ]+) .*/\1/p' scripts/install-deps.sh); do
    grep -q "[\` ]$package[\` ]" docs/install.md || missing="$missing $package"
done
check "packages are in docs/install.md" "missing:$missing" [ -z "$missing" ]
done_testing
