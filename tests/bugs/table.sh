#!/usr/bin/env bash
# The table of bugs: runs the program with each planted bug in, and holds what it says against what
# the bug's patch expects; and runs the same without a bug, which has to be right.
#
# Usage: table.sh ROOT PROGRAM [JOBS [NAME...]]
# ROOT: of the project. PROGRAM: attnscope, built from the tree that stack.sh whole makes. NAME: of
# these bugs alone. A patch says before its diff
#
#   Run: attnscope run early     shell commands, run in an empty folder; $root is the project's
#   Exit: 1                      the exit code of the last of them
#   Says: wrong .*c4_attention   a regular expression (grep -E) that a line of the output has; it
#                                names the op, the manager or the wiring at fault
#
# Prints a line for each bug, and at the end what was missed. Exit code 1: a bug was missed, or a
# run without a bug is not right.
set -uo pipefail
export LC_ALL=C.UTF-8

root=$(cd "$1" && pwd) || exit 2
program=$(realpath "$2") || exit 2
jobs=${3:-2}
shift $(($# < 3 ? $# : 3))
[ -x "$program" ] || {
  echo "$program: no program" >&2
  exit 2
}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/home"
ln -s "$program" "$work/bin/attnscope"

# head_of PATCH KEY: what it says before its diff.
head_of() { sed -n "/^\$/q; s/^$2: //p" "$1"; }

# run_one NAME COMMANDS: what it prints, then its exit code, in the file NAME.
run_one() {
  local folder=$work/in/$1
  mkdir -p "$folder" "$work/out"
  (
    cd "$folder" || exit 2
    export PATH=$work/bin:$PATH HOME=$work/home root OMP_NUM_THREADS=1
    export ATTNSCOPE_BUG=$1
    case $1 in sound-*) export -n ATTNSCOPE_BUG ;; esac
    timeout 600 bash -c "$2"
  ) >"$work/out/$1" 2>&1 </dev/null
  echo "exit code $?" >>"$work/out/$1"
  rm -rf "$folder"
}

declare -A sound=() says=() code=()
names=() queue=()
for patch in "$root"/tests/bugs/*.patch "$root"/tests/bugs/program/*.patch; do
  name=$(basename "$patch" .patch)
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  run=$(head_of "$patch" Run)
  if [ -z "$run" ]; then
    echo "$patch: no \"Run:\"" >&2
    exit 2
  fi
  names+=("$name") queue+=("$name" "$run")
  says[$name]=$(head_of "$patch" Says) code[$name]=$(head_of "$patch" Exit)
  if [ -z "${sound[$run]:-}" ]; then
    sound[$run]=sound-${#sound[@]}
    queue+=("${sound[$run]}" "$run")
  fi
done

for ((i = 0; i < ${#queue[@]}; i += 2)); do
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  run_one "${queue[i]}" "${queue[i + 1]}" &
done
wait

missed=0
for run in "${!sound[@]}"; do
  out=$work/out/${sound[$run]}
  if [ "$(tail -n 1 "$out")" != 'exit code 0' ]; then
    echo "WITHOUT A BUG: $run: $(tail -n 1 "$out")"
    tail -n 15 "$out" | sed 's/^/    /'
    missed=$((missed + 1))
  fi
done
for name in "${names[@]}"; do
  out=$work/out/$name
  got=$(tail -n 1 "$out") line=$(grep -E -m 1 -e "${says[$name]}" "$out")
  if [ "$got" = "exit code ${code[$name]}" ] && [ -n "$line" ]; then
    printf 'caught  %-36s %s\n' "$name" "$(sed -E 's/^ +//' <<<"$line" | cut -c 1-160)"
  else
    printf 'MISSED  %-36s %s instead of %s; %s\n' "$name" "$got" "${code[$name]}" \
      "$([ -n "$line" ] && echo 'said' || echo "not said: ${says[$name]}")"
    tail -n 15 "$out" | sed 's/^/    /'
    missed=$((missed + 1))
  fi
done
echo "${#names[@]} bugs, ${#sound[@]} runs without one; $missed failed"
[ "$missed" -eq 0 ]
