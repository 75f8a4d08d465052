#!/usr/bin/env bash
# Planted bugs as patches: one copy of the patched files holds all of them, and a choice at run time
# (chosen.h) says which one is in.
#
# Usage: stack.sh files ROOT           prints the files that the patches change
#        stack.sh sources ROOT         prints the sources to compile for them: those that are
#                                      patched, and those that see a patched header
#        stack.sh same ROOT LIST       fails, and rewrites LIST, where it is not what sources prints
#        stack.sh apply ROOT COPY      makes COPY hold the patched files and nothing else; a file
#                                      that is as it should be is left alone
#        stack.sh whole ROOT COPY      makes COPY the whole tree, with the patches of program/ in
#                                      too; its preset bugs puts chosen.h before each source
# ROOT: of the project. The patches are ROOT/tests/bugs/*.patch, in the order of their names, and on
# top of them, for whole alone, ROOT/tests/bugs/program/*.patch: each is a diff on top of those
# before it, and begins with what bug_list.h reads. To write one: run apply (or whole), change a
# copy, and take diff -U2 --suppress-blank-empty of the two.
#
# Exit code 1: a patch no longer applies, or LIST is old; standard error says which and why.
set -uo pipefail
export LC_ALL=C.UTF-8

command=$1
root=$(cd "$2" && pwd) || exit 2
bugs=$root/tests/bugs
patches=("$bugs"/*.patch)
[ -e "${patches[0]}" ] || {
  echo "$bugs: no patches" >&2
  exit 2
}

# patched PATCH..: the files that they change.
patched() { sed -nE 's|^\+\+\+ b/(\S+).*|\1|p' "$@" | sort -u; }

sources() {
  # A header is seen by whoever includes it, or includes who does.
  (cd "$root" && grep -rEoH '^ *# *include *"[^"]+"' engine kernels reference app) |
    awk -F: -v patched="$(patched "${patches[@]}" | tr '\n' ' ')" '
    BEGIN { n = split(patched, names, " "); for (i = 1; i <= n; ++i) seen[names[i]] = 1 }
    { split($2, quoted, "\""); ++pairs; from[pairs] = $1; what[pairs] = quoted[2] }
    END {
      do {
        more = 0
        for (i = 1; i <= pairs; ++i) {
          if ((what[i] in seen) && !(from[i] in seen)) more = seen[from[i]] = 1
        }
      } while (more)
      for (name in seen) if (name ~ /\.(c|cpp|cu)$/) print name
    }' | sort
}

same() { # LIST
  local now
  now=$(sources)
  [ "$now" != "$(cat "$1")" ] || return 0
  echo "tests/bugs: other sources see a patched header than before; build once more:" >&2
  diff <(cat "$1") <(echo "$now") | sed -n 's/^[<>]/ &/p' >&2
  echo "$now" >"$1"
  return 1
}

# put_in FOLDER PATCH REJECTS: without fuzz, which would take a place that is no longer the same.
put_in() {
  patch --directory="$1" --strip=1 --fuzz=0 --force --no-backup-if-mismatch --reject-file="$3" \
    --input="$2"
}

# stacked GOOD: puts all patches into copies of the files that they change, in the folder GOOD.
stacked() {
  local good=$1 file patch status=0
  local tried=$scratch/tried rejects=$scratch/rejects
  mkdir -p "$good"
  for patch in "${patches[@]}"; do
    for file in $(patched "$patch"); do
      if [ ! -f "$root/$file" ]; then
        echo "${patch#"$root/"}: there is no $file" >&2
        status=1
      else
        mkdir -p "$(dirname "$good/$file")" && cp "$root/$file" "$good/$file" || return 2
      fi
    done
  done
  [ "$status" -eq 0 ] || return 1
  # One that fails leaves nothing behind, so that those after it are judged without it.
  for patch in "${patches[@]}"; do
    rm -rf "$tried" "$rejects"
    for file in $(patched "$patch"); do
      mkdir -p "$tried/${file%/*}" && cp "$good/$file" "$tried/$file" || return 2
    done
    if put_in "$tried" "$patch" "$rejects" >"$scratch/said" 2>&1; then
      cp -r "$tried/." "$good" || return 2
    else
      echo "${patch#"$root/"} no longer applies on top of the patches before it:" >&2
      cat "$scratch/said" "$rejects" 2>/dev/null | sed 's/^/  /' >&2
      status=1
    fi
  done
  return "$status"
}

apply() { # COPY
  local copy=$1 file good
  scratch=$(mktemp -d) || return 2
  trap 'rm -rf "$scratch"' EXIT
  good=$scratch/good
  stacked "$good" || return
  mkdir -p "$copy"
  update "$good" "$copy"
}

# whole COPY: without git's files and what was built.
whole() {
  local copy=$1 all
  local more=("$bugs"/program/*.patch)
  if [ -e "${more[0]}" ]; then patches+=("${more[@]}"); fi
  scratch=$(mktemp -d) || return 2
  trap 'rm -rf "$scratch"' EXIT
  stacked "$scratch/good" || return
  all=$scratch/all
  mkdir -p "$all" "$copy"
  (cd "$root" && find . \( -path ./build -o -name .git -o -path ./out -o -path ./.deps \) -prune \
    -o -type f -print0 | tar --null --no-recursion -T - -cf -) | tar -C "$all" -xf - || return 2
  cp -r "$scratch/good/." "$all" || return 2
  update "$all" "$copy"
}

# update FROM TO: makes TO what FROM is; what is the same is left alone, with its time.
update() {
  local good=$1 copy=$2 file
  if [ -z "$(ls -A "$copy")" ]; then
    cp -r "$good/." "$copy"
    return
  fi
  while read -r file; do
    cmp -s "$good/$file" "$copy/$file" && continue
    mkdir -p "$(dirname "$copy/$file")" && cp "$good/$file" "$copy/$file" || return 2
  done < <(cd "$good" && find . -type f)
  # What is patched no more would be found in the original's place.
  while read -r file; do
    [ -e "$good/$file" ] || rm "$copy/$file"
  done < <(cd "$copy" && find . -type f)
}

case $command in
  files) patched "${patches[@]}" ;;
  sources) sources ;;
  same) same "$3" ;;
  apply) apply "$3" ;;
  whole) whole "$3" ;;
  *)
    echo "unknown command: $command" >&2
    exit 2
    ;;
esac
