#!/usr/bin/env bash
# clang-tidy on every source that a build folder knows how to compile, but for those of others.
#
# Usage: tidy.sh ROOT BUILD I/N JOBS     BUILD: folder of preset tidy; I/N: the I-th of N shares
# Prints the findings, then how many sources were looked at; exit code 1 where there is a finding.
set -uo pipefail
root=$(cd "$1" && pwd) || exit 2
build=$2 jobs=$4
IFS=/ read -r share shares <<<"$3"
[[ $share =~ ^[1-9][0-9]*$ && $shares =~ ^[1-9][0-9]*$ ]] && [ "$share" -le "$shares" ] || {
  echo "tidy.sh: no share '$3': I/N with I from 1 to N" >&2
  exit 2
}
for tool in clang-tidy-16 python3; do
  command -v "$tool" >/dev/null || {
    echo "tidy.sh: $tool is missing" >&2
    exit 2
  }
done
# Every N-th, so that each share has some of each folder.
mapfile -t sources < <(python3 - "$build/compile_commands.json" "$root" <<'END' |
import json, sys
files = {entry["file"] for entry in json.load(open(sys.argv[1]))}
print("\n".join(sorted(f for f in files if f.startswith(sys.argv[2] + "/") and
                       not f.startswith(sys.argv[2] + "/build/") and f.endswith(".cpp"))))
END
  awk -v share="$share" -v shares="$shares" 'NR % shares == share % shares')
[ ${#sources[@]} -gt 0 ] || {
  echo "tidy.sh: $build/compile_commands.json names no source of $root" >&2
  exit 2
}
found=0
printf '%s\0' "${sources[@]}" |
  xargs -0 -P "$jobs" -n 4 clang-tidy-16 -p "$build" --quiet --warnings-as-errors='*' \
    2> >(grep -vE '^[0-9]+ warnings? (generated|treated as errors)' >&2) || found=1
echo "clang-tidy: share $share of $shares, ${#sources[@]} sources, $([ $found -eq 0 ] &&
  echo 'nothing found' || echo 'findings above')"
exit $found
