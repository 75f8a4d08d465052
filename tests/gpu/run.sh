#!/usr/bin/env bash
# Builds what the GPU tests need, without the desktop app, and runs one part of one suite on the GPU
# of this machine. The last lines are a table; the exit code is 1 when something failed, 4 when
# there is no GPU.
#
# Usage: tests/gpu/run.sh --suite cases|sanitize|scenario|time|step|rows|pools [--part I/N]
#                         [--session NAME].. [--build DIR] [--only]
#   cases     every case of test_gpu, sharded
#   sanitize  the same under compute-sanitizer: memcheck for all, and for a tenth racecheck,
#             initcheck and synccheck
#   scenario  sessions: with ref.sim the default scenario, v4-flash and v4-pro layers, one rank of
#             two, both lanes mixed, every op alone on the CUDA lane; without, v4-flash and v4-pro
#             layers for 200 decode steps
#   time      every kernel against its floor
#   step      whole decode steps with 1, 8 and 64 requests, and the share of every op
#   rows      rows between pinned host memory and a pool: a kernel beside copies
#   pools     a layer behind a pool of rows: none, da and dba, by context
#   --part    part I of N, counted from 1 (default 1/1); the parts add up to the whole
#   --session of suite scenario: this one alone, such as pro-sim; may be repeated
#   --only    do not build
#
# ATTNSCOPE_DEPS: folder of headers and libraries where packages are missing. ATTNSCOPE_CUDA_ARCH:
# what to compile for (default: the GPU that is there).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
suite=''
part=1/1
build=$root/build/gpu
only=0
wanted=()
usage() {
  sed -n '2,25p' "$0" | sed 's/^# \{0,1\}//'
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --suite) suite=${2:-} && shift 2 ;;
    --part) part=${2:-} && shift 2 ;;
    --session) wanted+=("${2:-}") && shift 2 ;;
    --build) build=${2:-} && shift 2 ;;
    --only) only=1 && shift ;;
    *) usage ;;
  esac
done
case $suite in cases | sanitize | scenario | time | step | rows | pools) ;; *) usage ;; esac
[[ $part =~ ^([0-9]+)/([0-9]+)$ ]] || usage
index=${BASH_REMATCH[1]}
count=${BASH_REMATCH[2]}
if [ "$index" -lt 1 ] || [ "$index" -gt "$count" ]; then usage; fi
cores=$(env -u OMP_NUM_THREADS nproc)
mkdir -p "$build"

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
  echo "run.sh: no GPU: nvidia-smi shows none"
  exit 4
fi

configure() {
  local arch prefix="${ATTNSCOPE_DEPS:-}" options=()
  arch=${ATTNSCOPE_CUDA_ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader |
    head -1 | tr -d .)}
  [ "$arch" = 90 ] && arch=90a
  # A PyTorch from pip brings the libtorch that the references want.
  local torch
  torch=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)' 2>/dev/null || true)
  [ -n "$torch" ] && options+=("-DTorch_DIR=$torch/Torch")
  if [ -n "$prefix" ]; then
    options+=("-DATTNSCOPE_DEPS=$prefix")
    # GoogleTest's sources or package first, a copy in the folder else.
    if [ ! -e /usr/src/googletest/CMakeLists.txt ] && [ ! -e /usr/include/gtest/gtest.h ]; then
      options+=("-DCMAKE_PREFIX_PATH=$prefix/gtest")
    fi
  fi
  cmake -G Ninja -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DATTNSCOPE_GUI=OFF \
    -DATTNSCOPE_UNITY=ON -DATTNSCOPE_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$arch-real" "${options[@]}"
}

if [ "$only" -eq 0 ]; then
  start=$SECONDS
  configure >"$build.configure.log" 2>&1 || { tail -40 "$build.configure.log" && exit 3; }
  case $suite in
    scenario) target=attnscope ;;
    time | step | rows | pools) target=gpu_$suite ;;
    *) target=test_gpu ;;
  esac
  ninja -C "$build" -j "$cores" "$target" >"$build.log" 2>&1 ||
    { tail -60 "$build.log" && exit 3; }
  echo "built $target in $((SECONDS - start)) s"
fi

results=$build/results
rm -rf "$results"
mkdir -p "$results"

# Runs test_gpu in `jobs` processes, one shard each; $1: shards in all, $2: first of ours, $3: jobs,
# the rest: what to put before the program. Prints a line per failed case, then counts.
run_shards() {
  local shards=$1 first=$2 jobs=$3 i status=0
  shift 3
  for ((i = 0; i < jobs; ++i)); do
    (
      set +e
      GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$((first + i)) \
        timeout "${ATTNSCOPE_GPU_TIMEOUT:-480}" "$@" "$build/tests/test_gpu" \
        --gtest_filter="*Gpu*${without:-}" --gtest_brief=1 \
        --gtest_output="json:$results/$tag.$i.json" >"$results/$tag.$i.log" 2>&1
      echo $? >"$results/$tag.$i.exit"
    ) &
  done
  wait || true
  python3 - "$results" "$tag" "$jobs" <<'PY' || status=1
import collections, json, os, re, sys
folder, tag, jobs = sys.argv[1], sys.argv[2], int(sys.argv[3])
ran, failed, broken, errors = collections.Counter(), collections.Counter(), 0, 0
seconds = 0.0
shown = 0
for i in range(jobs):
    log = open(f"{folder}/{tag}.{i}.log", errors="replace").read()
    match = re.search(r"ERROR SUMMARY: (\d+) error", log)
    if match:
        errors += int(match.group(1))
    hazards = re.search(r"RACECHECK SUMMARY: (\d+) hazard", log)
    if hazards:
        errors += int(hazards.group(1))
    status = int(open(f"{folder}/{tag}.{i}.exit").read())
    if status not in (0, 1, 9):
        broken += 1
        print(f"{tag}: process {i} ended with {status}:\n" + log[-300:])
    try:
        report = json.load(open(f"{folder}/{tag}.{i}.json"))
    except (OSError, ValueError):
        print(f"{tag}: process {i} left no report:\n" + log[-1500:])
        broken += status in (0, 1, 9)
        continue
    for suite in report["testsuites"]:
        name = suite["name"].split("/")[-1]
        for case in suite["testsuite"]:
            if case["status"] != "RUN" or case.get("result") == "SKIPPED":
                continue
            ran[name] += 1
            if case.get("failures"):
                failed[name] += 1
                if shown < 12:
                    shown += 1
                    print(f"FAILED {suite['name']}.{case['name']}\n" +
                          case["failures"][0]["failure"][:600])
    seconds = max(seconds, float(report["time"].rstrip("s")))
if errors:
    for i in range(jobs):
        log = open(f"{folder}/{tag}.{i}.log", errors="replace").read()
        for line in log.splitlines():
            if "Invalid" in line or "hazard" in line or "Uninitialized" in line:
                print(line[:200])
                break
print(f"\n{tag + ' suite':<34}{'cases':>8}{'failed':>8}")
for name in sorted(ran):
    print(f"{name:<34}{ran[name]:>8}{failed[name]:>8}")
print(f"{'total':<34}{sum(ran.values()):>8}{sum(failed.values()):>8}"
      f"   {seconds:.0f} s, tool errors {errors}, broken processes {broken}")
sys.exit(1 if failed or broken or errors or not ran else 0)
PY
  return $status
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
case $suite in
  cases)
    tag=cases
    export OMP_NUM_THREADS=1
    run_shards $((count * cores)) $(((index - 1) * cores)) "$cores"
    ;;
  sanitize)
    export OMP_NUM_THREADS=1
    status=0
    jobs=$((cores < 8 ? cores : 8))
    tag=memcheck
    # Plugins that fail on purpose, in processes of their own.
    without='-*GpuPlugin*'
    run_shards $((count * jobs)) $(((index - 1) * jobs)) "$jobs" \
      compute-sanitizer --tool memcheck --leak-check no --error-exitcode 9 || status=1
    for tool in racecheck initcheck synccheck; do
      tag=$tool
      # initcheck does not see what cuBLASLt's kernels store and calls their results uninitialised.
      # racecheck watches shared memory within a kernel: of sessions, thousands of launches of
      # kernels that are cases as well, a single one does not end in 200 s.
      without='-*GpuPlugin*'
      # In cuBLASLt's own kernels for FP8, whose blocks form clusters, it reports hazards.
      [ "$tool" = racecheck ] && without='-*GpuPlugin*:*GpuSession*:*GpuLinearFp8*'
      [ "$tool" = initcheck ] && without='-*GpuPlugin*:*Linear*:*SeesWeights*:*GpuSession*:*GpuEss*'
      # Products of many inputs or of nine tokens and more are cuBLASLt's too.
      [ "$tool" = initcheck ] && without+=':*/GpuFewTokens.*:GpuMla.Absorbed*'
      run_shards $((10 * count * jobs)) $(((index - 1) * jobs)) "$jobs" \
        compute-sanitizer --tool "$tool" --error-exitcode 9 || status=1
    done
    exit $status
    ;;
  scenario)
    status=0
    lines=()
    # NAME ARGS..: one session, its verdict, how it ended.
    run_one() {
      local name=$1 begin=$SECONDS code=0
      shift
      "$build/app/attnscope" run "$@" >"$results/$name.log" 2>&1 || code=$?
      if [ "$code" -ne 0 ]; then
        status=1
        tail -30 "$results/$name.log"
      fi
      lines+=("$(printf '%-28s exit %d %4d s  %s' "$name" "$code" $((SECONDS - begin)) \
        "$(grep -E '^[0-9]+ steps|^taps' "$results/$name.log" | tr '\n' ' ')")")
    }
    # Every op alone on the GPU beside the CPU lane, then whole lanes.
    names=(default flash pro flash-sim mixed pro-sim rank0 rank1 tiny-v3 tiny-v3.2 mtp tiny-alibi
      tiny-mistral tiny-gptoss tiny-bert tiny-vit tiny-kvshare tiny-mask tiny-t5)
    # Of the table, which has those of every family: what has outputs in these steps.
    while read -r op; do names+=("op:$op"); done < <("$build/app/attnscope" run default --steps 7 \
      --references none --json | python3 -c '
import json, subprocess, sys
table = json.loads(subprocess.check_output([sys.argv[1], "ops", "--json"]))["ops"]
ran = {tap["op"] for step in json.load(sys.stdin)["steps"] for tap in step["taps"]}
for op in table:
    if "cuda" in op["lanes"] and op["id"] in ran: print(op["id"])' "$build/app/attnscope")
    [ ${#wanted[@]} -eq 0 ] || names=("${wanted[@]}")
    i=0
    for name in "${names[@]}"; do
      i=$((i + 1))
      [ $((i % count)) -eq $((index % count)) ] || continue
      case $name in
        default) run_one default default --lane cuda --references sim ;;
        flash | pro)
          run_one "$name" "$root/tests/gpu/scenarios/$name.json" --lane cuda --references none
          ;;
        flash-sim) run_one flash-sim flash --lane cuda --references sim ;;
        pro-sim)
          run_one pro-sim "$root/tests/gpu/scenarios/pro.json" --lane cuda --references sim
          ;;
        tiny-* | mtp) run_one "$name" "$name" --lane cuda --references sim ;;
        rank*) run_one "$name" default --lane cuda --references sim --tp 2 --rank "${name#rank}" ;;
        mixed) run_one mixed default --lane cuda --lane sparse_attention=cpu \
          --lane compress_insert=cpu --lane q_b_proj=cpu --references sim ;;
        *) run_one "${name#op:}" default --steps 7 --lane "${name#op:}=cuda" --references sim ;;
      esac
    done
    printf '\n'
    printf '%s\n' "${lines[@]}"
    exit $status
    ;;
  time | step | rows | pools)
    "$build/tests/gpu_$suite"
    ;;
esac
