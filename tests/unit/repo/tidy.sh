#!/usr/bin/env bash
# clang-tidy on every source that a build folder knows how to compile, but for those of others and
# for copies with planted bugs in.
#
# Usage: tidy.sh ROOT BUILD I/N JOBS     BUILD: folder of preset tidy; I/N: the I-th of N shares
# Prints the findings, then how many sources were looked at; exit code 1 where there is a finding.
#
# Batches are looked at whole, which saves reading headers again for each source. Under the name
# that the analyzer knows batches by: into sources included by others it does not look. It follows
# calls less far than it could (shallow), which takes less than half of the time.
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
mapfile -t sources < <(python3 - "$build" "$root" <<'END' |
import json, os, re, shutil, sys
build, root = sys.argv[1:]
# Where the sources of this project lie: the build folder and its libraries may be below ROOT too.
OURS = re.compile(re.escape(root) + r"/(app|engine|kernels|reference|tests)/")
units = {}
for unit in json.load(open(f"{build}/compile_commands.json")):
    batch = unit["file"]
    if "_with_bugs.dir/" in batch:
        continue
    if batch.endswith("_cxx.cxx"):
        if not OURS.search(open(batch).read()):
            continue
        folder, name = os.path.split(batch)
        unit["file"] = f"{folder}/UnifiedSource_{name}"
        shutil.copyfile(batch, unit["file"])
        unit["command"] = unit["command"].replace(batch, unit["file"])
    elif not batch.endswith(".cpp") or not OURS.match(batch):
        continue
    units[unit["file"]] = unit
os.makedirs(f"{build}/tidy", exist_ok=True)
json.dump(list(units.values()), open(f"{build}/tidy/compile_commands.json", "w"))
# Batches lie in the build folder, where the settings of their sources are looked for.
shutil.copyfile(f"{root}/.clang-tidy", f"{build}/.clang-tidy")
shutil.copyfile(f"{root}/tests/.clang-tidy", f"{build}/tests/.clang-tidy")
print("\n".join(sorted(units)))
END
  awk -v share="$share" -v shares="$shares" 'NR % shares == share % shares')
[ ${#sources[@]} -gt 0 ] || {
  echo "tidy.sh: $build/compile_commands.json names no source of $root" >&2
  exit 2
}
found=0
printf '%s\0' "${sources[@]}" |
  xargs -0 -P "$jobs" -n 1 clang-tidy-16 -p "$build/tidy" --quiet --warnings-as-errors='*' \
    --extra-arg={-Xclang,-analyzer-config,-Xclang,mode=shallow} \
    2> >(grep -vE '^[0-9]+ warnings? (generated|treated as errors)' >&2) || found=1
echo "clang-tidy: share $share of $shares, ${#sources[@]} sources, $([ $found -eq 0 ] &&
  echo 'nothing found' || echo 'findings above')"
exit $found
