#!/usr/bin/env bash
# stack.sh on a small tree: patches stack, copies are written only where they change, and what no
# longer applies is named and fails.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
copy=$work/copy
failures=0

failed() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
expect() { # WHAT IS WANTED
  [ "$2" = "$3" ] || failed "$1: '$2' instead of '$3'"
}
stack() { "$here/stack.sh" "$1" "$tree" "${@:2}" >"$work/out" 2>"$work/err"; }

# patch_of NAME FILE BEFORE LINE AFTER: puts the line between the two others.
patch_of() {
  printf 'Name: %s\n\n--- a/%s\n+++ b/%s\n@@ -1,2 +1,3 @@\n %s\n+%s\n %s\n' \
    "$1" "$2" "$2" "${@:3}" >"$tree/tests/bugs/$1.patch"
}

mkdir -p "$tree"/{engine/a,engine/b,kernels,reference,app,tests/bugs}
printf 'int one;\nint two;\n' >"$tree/engine/a/x.cpp"
printf 'int seen;\nint last;\n' >"$tree/engine/a/seen.h"
printf '#include "engine/a/seen.h"\n' >"$tree/engine/b/more.h"
printf '#include "engine/b/more.h"\n' >"$tree/engine/b/sees.cpp"
printf '#include "engine/b/other.h"\n' >"$tree/app/blind.cpp"

if stack apply "$copy"; then failed 'a folder without patches passes'; fi

# The second stands on the first.
patch_of a_first engine/a/x.cpp 'int one;' 'int bug;' 'int two;'
patch_of b_second engine/a/x.cpp 'int bug;' 'int other_bug;' 'int two;'
stack apply "$copy" || failed "does not apply: $(cat "$work/err")"
lines() { tr '\n' ' ' <"$1"; }
expect 'the copy' "$(lines "$copy/engine/a/x.cpp")" 'int one; int bug; int other_bug; int two; '
expect 'the original' "$(lines "$tree/engine/a/x.cpp")" 'int one; int two; '
stack files
expect 'files' "$(cat "$work/out")" 'engine/a/x.cpp'
stack sources
expect 'sources' "$(cat "$work/out")" 'engine/a/x.cpp'

# Elsewhere in the file it still applies, and nothing is written that is there.
printf '\nint one;\nint two;\n' >"$tree/engine/a/x.cpp"
stack apply "$copy" || failed "does not apply further down: $(cat "$work/err")"
touch -d '2001-01-01' "$copy/engine/a/x.cpp"
stack apply "$copy"
expect 'the year of a copy that does not change' "$(date -r "$copy/engine/a/x.cpp" +%Y)" 2001

# A header is seen through others.
stack sources
cp "$work/out" "$work/list"
stack same "$work/list" || failed "the list is as it should be: $(cat "$work/err")"
patch_of c_header engine/a/seen.h 'int seen;' 'int bug;' 'int last;'
if stack same "$work/list"; then failed 'an old list passes'; fi
grep -q 'engine/b/sees.cpp' "$work/err" || failed "does not name who sees it: $(cat "$work/err")"
expect 'the new list' "$(lines "$work/list")" 'engine/a/x.cpp engine/b/sees.cpp '
stack same "$work/list" || failed 'the new list does not pass'
stack apply "$copy"
[ -e "$copy/engine/a/seen.h" ] || failed 'no copy of a header'
rm "$tree/tests/bugs/c_header.patch"
stack apply "$copy"
[ ! -e "$copy/engine/a/seen.h" ] || failed 'a copy is left of what is patched no more'

# What no longer applies is named, alone, with its lines; the copy stays.
patch_of c_third engine/a/x.cpp 'int two;' 'int third_bug;' 'int three;'
printf 'int 1;\nint two;\nint three;\n' >"$tree/engine/a/x.cpp"
if stack apply "$copy"; then failed 'a patch that does not apply passes'; fi
grep -q '^tests/bugs/a_first.patch no longer' "$work/err" || failed "$(cat "$work/err")"
grep -q '^ *int one;' "$work/err" || failed "does not show the lines: $(cat "$work/err")"
grep -q '^tests/bugs/b_second.patch no longer' "$work/err" || failed "$(cat "$work/err")"
if grep -q 'c_third' "$work/err"; then failed "blames a patch that applies: $(cat "$work/err")"; fi
expect 'the copy after a failure' "$(grep -c bug "$copy/engine/a/x.cpp")" 2

# Nor is near enough taken for the same.
printf 'int one;\nint two;\n' >"$tree/engine/a/x.cpp"
patch_of c_third engine/a/x.cpp 'int one;' 'int third_bug;' 'int 2;'
if stack apply "$copy"; then failed 'a patch whose context changed passes'; fi

# Nor a file that is gone.
rm "$tree/engine/a/x.cpp"
if stack apply "$copy"; then failed 'a patch of nothing passes'; fi
grep -qx 'tests/bugs/a_first.patch: there is no engine/a/x.cpp' "$work/err" ||
  failed "$(cat "$work/err")"

if [ "$failures" -gt 0 ]; then
  echo "$failures failed"
  exit 1
fi
echo ok
