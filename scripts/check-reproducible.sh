#!/bin/sh
# Builds the committed and changed sources twice, in folders of different names, a second apart and without a compiler
# cache, and compares the programs and the archive byte by byte.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for folder in first a-second-one-with-a-longer-name; do
    mkdir "$work/$folder"
    git ls-files -z --cached --others --exclude-standard | xargs -0 tar cf - -- | tar xf - -C "$work/$folder"
    CCACHE_DISABLE=1 make -s -C "$work/$folder" -j"$(nproc)" all >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    sleep 1
done
status=0
for file in lockstep lockstep-client lockstep-gateway liblockstep.a; do
    if cmp "$work/first/build/cpu/$file" "$work/a-second-one-with-a-longer-name/build/cpu/$file"; then
        echo "check-reproducible: $file $(sha256sum <"$work/first/build/cpu/$file" | cut -c1-16) twice"
    else
        status=1
    fi
done
exit $status
