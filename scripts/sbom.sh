#!/bin/sh
# A bill of materials in CycloneDX JSON: the libraries that the dynamic linker loads with each program, by the packages
# that own them and their versions. Usage: scripts/sbom.sh PROGRAM...
set -eu
cd "$(dirname "$0")/.."
version=$(cat VERSION)

# "NAME VERSION PURL-TYPE" of the package that owns a file; a library outside packages is named by its file.
package_of() {
    real=$(readlink -f "$1")
    # If /lib is a link to /usr/lib, older packages are registered under the other name.
    for path in "$real" "${real#/usr}"; do
        if command -v dpkg-query >/dev/null && owner=$(dpkg-query -S "$path" 2>/dev/null); then
            dpkg-query -W -f '${Package} ${Version} deb\n' "${owner%%: *}"
            return
        fi
        if command -v rpm >/dev/null && rpm -q --qf '%{NAME} %{VERSION}-%{RELEASE} rpm\n' -f "$path" 2>/dev/null; then
            return
        fi
    done
    echo "$(basename "$1") $(basename "$real" | sed -n 's/.*\.so\.//p') generic"
}

libraries=$(for program in "$@"; do ldd "$program"; done | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u)
[ -n "$libraries" ] || { echo "sbom: ldd found no library of $*" >&2; exit 1; }
printf '{\n  "bomFormat": "CycloneDX",\n  "specVersion": "1.5",\n  "version": 1,\n'
printf '  "metadata": {"component": {"type": "application", "name": "lockstep", "version": "%s"}},\n  "components": [' "$version"
for library in $libraries; do
    package_of "$library" | sed "s|\$| $(basename "$library")|"
done | sort | awk '
    function quoted(s) { gsub(/["\\]/, "\\\\&", s); return "\"" s "\"" }
    function finish() {
        if (key != "")
            printf "%s\n    {\"type\": \"library\", \"name\": %s, \"version\": %s, \"purl\": %s,\n     \"properties\": [%s]}", \
                (n++ ? "," : ""), quoted(name), quoted(ver), quoted("pkg:" type "/" name "@" ver), files
    }
    {
        file = $NF; found = $1 " " $(NF > 3 ? 2 : 0)
        if ($1 != name || key == "") { finish(); name = $1; ver = NF == 4 ? $2 : "unknown"; type = $(NF - 1); key = found; files = "" }
        files = files (files == "" ? "" : ", ") "{\"name\": \"file\", \"value\": " quoted(file) "}"
    }
    END { finish() }'
printf '\n  ]\n}\n'
