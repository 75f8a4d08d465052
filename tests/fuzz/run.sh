#!/usr/bin/env bash
# Every parser fuzzed under sanitizers for some seconds from its kept inputs, two at a time. With
# names of parsers these alone.
#
# Usage: run.sh BUILD [SECONDS] [PARSER...]     BUILD: folder of preset address; SECONDS: 60
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: run.sh BUILD [SECONDS] [PARSER...]}
seconds=${2:-60}
shift $(($# < 2 ? $# : 2))
parsers=("$@")
if [ ${#parsers[@]} -eq 0 ]; then mapfile -t parsers < <(ls "$here/corpus"); fi
export ATTNSCOPE_ASSETS=${ATTNSCOPE_ASSETS:-$here/../../assets}
work=$(mktemp -d) || exit 4
trap 'rm -rf "$work"' EXIT
mkdir -p "$build/fuzz-found"

# One line, the log before it where something was found.
fuzz() {
  local parser=$1 log=$work/$1.log runs
  mkdir -p "$work/$parser.new" "$work/$parser.tmp"
  if TMPDIR=$work/$parser.tmp ATTNSCOPE_FUZZ=$parser "$build/tests/fuzz_parsers" \
    -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$build/fuzz-found/$parser-" \
    "$work/$parser.new" "$here/corpus/$parser" >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    printf '%-18s ok, %s inputs in %s s\n' "$parser" "${runs:-?}" "$seconds"
    return 0
  fi
  printf '%s\n%-18s FAILED; the input lies in %s\n' "$(tail -n 40 "$log")" "$parser" \
    "$build/fuzz-found"
  return 1
}

failed=0 running=0
for parser in "${parsers[@]}"; do
  if [ "$running" -eq 2 ]; then
    wait -n || failed=1
    running=1
  fi
  fuzz "$parser" &
  running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
  wait -n || failed=1
  running=$((running - 1))
done
exit $failed
