#!/usr/bin/env bash
# tests/door/test_rooms.sh - `scripts/rooms.py check` passes on these sources, and reports a file in the wrong room,
# a folder or file that is not a room, rooms that include each other, and an unused line of the table. No name is
# defined in two rooms: of two definitions in the archive the linker takes the first one, silently.
. "$(dirname "$0")/../cluster/cluster.sh"
make_folder
cd "$root" || exit 1

# copy: the sources with the table, in $dir/copy.
copy() {
    rm -rf "$dir/copy"
    mkdir "$dir/copy"
    tar cf - --exclude-vcs --exclude=./build --exclude=./tests --exclude='*.safetensors' --exclude='*.json' . | tar xf - -C "$dir/copy"
}

# refused NAME WORDS: the copy is refused with these words.
refused() {
    local found status
    found=$(cd "$dir/copy" && scripts/rooms.py check)
    status=$?
    check "$1 fails" "status $status: $found" [ $status = 1 ]
    check "$1: the reason" "$found" grep -qF "$2" <<<"$found"
}

log=$(scripts/rooms.py check)
check "every include of the sources is listed" "$log" [ $? = 0 ]

copy
echo '#include "coordinator/server/server.h"' >"$dir/copy/rank/step/answer.c"
refused "a file in the wrong room" "rank/step/answer.c:1: rank/step/ may not include coordinator/server/server.h"

copy
mkdir "$dir/copy/misc" "$dir/copy/text/more"
echo 'int x;' >"$dir/copy/misc/x.c"
echo 'int x;' >"$dir/copy/text/more/x.c"
refused "a new folder" "misc/x.c: misc/ is no room of docs/rooms.md"
refused "a new folder within a room" "text/more/x.c: text/more/ is no room of docs/rooms.md"

copy
echo 'int x;' >"$dir/copy/x.c"
refused "a file beside main.c" "x.c: x.c/ is no room of docs/rooms.md"

copy
sed -i 's/^\(| `base\/` .*|\) nothing |/\1 plan |/' "$dir/copy/docs/rooms.md"
echo '#include "plan/plan.h"' >"$dir/copy/base/extra.c"
refused "rooms that include each other" "these include each other: "

copy
sed -i 's/^\(| `base\/` .*|\) nothing |/\1 plan |/' "$dir/copy/docs/rooms.md"
refused "an unused line" "base/ does not include plan"

# twice ARCHIVE: the names that two of its files define.
twice() {
    nm -A --defined-only "$1" 2>/dev/null | awk '$(NF - 1) ~ /^[BCDRT]$/ {print $NF}' | sort | uniq -d
}

archive=${LOCKSTEP_BUILD:-build/cpu}/liblockstep.a
check "the archive exists" "$archive" [ -s "$archive" ]
check "every name of the archive has one definition" "$(twice "$archive")" [ -z "$(twice "$archive")" ]
for room in one two; do
    echo "const int rows = 1; static int own = 2; int ${room}(void) { return own; }" >"$dir/$room.c"
    ${HOST_CC:-gcc} -c -o "$dir/$room.o" "$dir/$room.c"
done
ar rc "$dir/both.a" "$dir/one.o" "$dir/two.o"
check "a name with two definitions is found, a static one is not" "$(twice "$dir/both.a")" [ "$(twice "$dir/both.a")" = rows ]
done_testing
