#!/usr/bin/env bash
# tests/door/test_version.sh - the programs print the version of VERSION, the changelog begins with it, and CITATION.cff
# names it.
. "$(dirname "$0")/../cluster/cluster.sh"
cd "$root" || exit 1
version=$(cat VERSION)
for program in lockstep lockstep-client lockstep-gateway; do
    text=$("$(dirname "$lockstep")/$program" --version)
    check "$program --version" "$text" [ "$text" = "$program $version" ]
done
text=$(sed -n 's/^## //p' CHANGELOG.md | head -1)
check "the changelog's newest version" "$text" [ "$text" = "$version" ]
check "the citation" "$(grep ^version CITATION.cff)" grep -qx "version: $version" CITATION.cff
done_testing
