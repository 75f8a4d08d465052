#!/usr/bin/env bash
# Fuzzes every parser for some seconds, from its kept inputs, and replays these under sanitizers.
#
# Usage: run.sh BUILD [SECONDS] [PARSER...]     BUILD: folder of preset fuzz; SECONDS: 60
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: run.sh BUILD [SECONDS] [PARSER...]}
seconds=${2:-60}
shift $(($# < 2 ? $# : 2))
parsers=("$@")
[ ${#parsers[@]} -gt 0 ] || mapfile -t parsers < <(ls "$here/corpus")
export ATTNSCOPE_ASSETS=${ATTNSCOPE_ASSETS:-$here/../../assets}
work=$(mktemp -d) || exit 4
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work
failed=0
for parser in "${parsers[@]}"; do
  mkdir -p "$work/$parser" "$build/fuzz-found"
  if ATTNSCOPE_FUZZ=$parser "$build/tests/fuzz_parsers" -max_total_time="$seconds" -timeout=20 \
    -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$build/fuzz-found/$parser-" \
    "$work/$parser" "$here/corpus/$parser" >"$work/log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")
    printf '%-18s ok, %s inputs in %s s\n' "$parser" "${runs:-?}" "$seconds"
  else
    failed=1
    tail -n 40 "$work/log"
    printf '%-18s FAILED; the input lies in %s\n' "$parser" "$build/fuzz-found"
  fi
done
exit $failed
