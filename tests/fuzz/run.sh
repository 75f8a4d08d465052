#!/usr/bin/env bash
# Under sanitizers and two at a time: the tests with damaged files, and every parser fuzzed for some
# seconds from its kept inputs. With names of parsers these alone.
#
# Usage: run.sh BUILD [SECONDS|ci] [PARSER...]     BUILD: folder of preset fuzz; SECONDS: 60
# ci: a minute for each parser of what others write by hand or hand over, ten seconds for the rest.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: run.sh BUILD [SECONDS|ci] [PARSER...]}
seconds=${2:-60}
shift $(($# < 2 ? $# : 2))
parsers=("$@")
minute=(safetensors config checkpoint_index tolerances)
tests=() # program/part/parts
if [ ${#parsers[@]} -eq 0 ]; then # the longest first
  tests=(test_hostile/{0..5}/6 test_parsers/0/1)
  mapfile -t parsers < <(printf '%s\n' "${minute[@]}"
    ls "$here/corpus" | grep -vxF "$(printf '%s\n' "${minute[@]}")")
fi
export ATTNSCOPE_ASSETS=${ATTNSCOPE_ASSETS:-$here/../../assets}
work=$(mktemp -d) || exit 4
trap 'rm -rf "$work"' EXIT
mkdir -p "$build/fuzz-found"

seconds_of() {
  if [ "$seconds" != ci ]; then
    echo "$seconds"
  elif [[ " ${minute[*]} " == *" $1 "* ]]; then
    echo 60
  else
    echo 10
  fi
}

# One line, the log before it where something was found.
fuzz() {
  local parser=$1 time log=$work/$1.log runs
  time=$(seconds_of "$parser")
  mkdir -p "$work/$parser.new" "$work/$parser.tmp"
  if TMPDIR=$work/$parser.tmp ATTNSCOPE_FUZZ=$parser "$build/tests/fuzz_parsers" \
    -max_total_time="$time" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$build/fuzz-found/$parser-" \
    "$work/$parser.new" "$here/corpus/$parser" >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    printf '%-18s ok, %s inputs in %s s\n' "$parser" "${runs:-?}" "$time"
    return 0
  fi
  printf '%s\n%-18s FAILED; the input lies in %s\n' "$(tail -n 40 "$log")" "$parser" \
    "$build/fuzz-found"
  return 1
}

# A part of a program's tests.
damaged_files() {
  local program part parts log=$work/${1//\//-}.log start=$SECONDS
  IFS=/ read -r program part parts <<<"$1"
  if GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$part "$build/tests/$program" \
    >"$log" 2>&1; then
    printf '%-18s ok, part %s of %s in %s s\n' "$program" $((part + 1)) "$parts" \
      $((SECONDS - start))
    return 0
  fi
  printf '%s\n%-18s FAILED\n' "$(tail -n 60 "$log")" "$program"
  return 1
}

failed=0 running=0
# in_turn COMMAND...: two at a time.
in_turn() {
  if [ "$running" -eq 2 ]; then
    wait -n || failed=1
    running=1
  fi
  "$@" &
  running=$((running + 1))
}
for part in "${tests[@]}"; do in_turn damaged_files "$part"; done
for parser in "${parsers[@]}"; do in_turn fuzz "$parser"; done
while [ "$running" -gt 0 ]; do
  wait -n || failed=1
  running=$((running - 1))
done
exit $failed
