#!/usr/bin/env bash
# Shows that every check of check_tree.sh can fail: on a copy of the tree the check passes, with one
# planted fault it fails and names the file.
#
# Usage: check_tree_test.sh ROOT
set -uo pipefail

root=$1
check=$root/tests/unit/repo/check_tree.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

copy_tree() {
  rm -rf "$work/tree"
  mkdir "$work/tree"
  (cd "$root" && tar cf - --exclude=./build --exclude=./.git --exclude=./.deps --exclude=./out .) |
    tar xf - -C "$work/tree"
}

# plant CHECK FILE LINE: adds the line to the file; the check must then fail and name the file.
plant() {
  local file=$work/tree/$2 before=none
  mkdir -p "$(dirname "$file")"
  if [ -e "$file" ]; then
    before=$(mktemp "$work/before-XXXXXX")
    cp -p "$file" "$before"
  fi
  printf '%b\n' "$3" >>"$file"
  expect_failure "$1" "$2" "$3"
  if [ "$before" = none ]; then rm "$file"; else mv "$before" "$file"; fi
}

expect_failure() { # CHECK NAME WHAT
  local output prefix
  # The folder of the fault alone, where the check looks at each file for itself.
  prefix=$(dirname "$2")/
  case $1 in top_level | manual) prefix='' ;; esac
  if output=$("$check" "$1" "$work/tree" "$prefix" 2>&1); then
    echo "FAILED: $1 does not see '$3' in $2"
    failures=$((failures + 1))
  elif ! grep -qF -- "$2" <<<"$output"; then
    echo "FAILED: $1 does not name $2: $output"
    failures=$((failures + 1))
  fi
}

copy_tree
# Of `format`, which takes as long as all others, the folders where it sees faults below.
for name in layers c99 size hygiene said manual planted families \
  'format:(engine/model|kernels/params)/'; do
  prefix=${name#"${name%%:*}"}
  if ! output=$("$check" "${name%%:*}" "$work/tree" "${prefix#:}" 2>&1); then
    printf 'FAILED: %s on the tree as it is:\n%s\n' "$name" "$output"
    failures=$((failures + 1))
  fi
done

plant layers kernels/cpu/planted.cpp '#include "engine/model/model_config.h"'
plant layers kernels/cpu/planted.cpp '#include "kernels/cpu/not_there.h"'
plant layers engine/model/planted.cpp '#include "reference/register.h"'
plant layers engine/model/planted.cpp '  #  include "app/cli/planted.h"'
plant layers engine/io/planted.h '#include "engine/model/model_config.h"'
plant layers engine/cache/planted.cpp '#include "engine/sched/request.h"'
plant layers engine/session/step/planted.h '#include "engine/session/verify/verifier.h"'
plant layers engine/session/verify/planted.cpp '#include "engine/session/session.h"'
plant layers engine/session/session.cpp '#include "engine/session/what_if/what_if.h"'
plant layers engine/planted/planted.cpp '#include "engine/io/json_file.h"'
plant layers app/wiring/deepseek_v4/planted.cpp '#include "app/views/linkage.h"'
plant layers engine/session/deepseek_v4/planted.h '#include "engine/session/what_if/what_if.h"'
plant layers app/views/planted.h '#include "app/workbench/workbench.h"'
plant layers app/reports/planted.cpp '#include "app/workbench/settings.h"'
plant layers app/workbench/planted.cpp '#include "app/gui/gui.h"'
plant layers reference/planted.cpp '#include "kernels/cpu/cpu_lane.h"'
plant layers reference/planted.cpp '#include "engine/cache/cache_layout.h"'
plant layers reference/planted.h '#include "register.h"'
plant layers engine/decisions/plain_planted.h '#include "engine/cache/group_spec.h"'
plant layers reference/torch/model.cpp '#include "reference/rope.h"'
plant layers reference/torch/model.cpp '#include "engine/model/model_config.h"'
echo '// planted' >"$work/tree/engine/model/local.inc"
plant layers engine/model/planted.cpp '#include "local.inc"'
rm "$work/tree/engine/model/local.inc"
plant layers engine/model/planted.cpp '#include <torch/torch.h>'
plant layers tests/unit/engine/planted.cpp '#include <ATen/ATen.h>'
plant layers reference/planted.cpp '#include <c10/core/InferenceMode.h>'
plant layers app/views/planted.cpp '#include <imgui.h>'
plant layers app/workbench/planted.cpp '#include "app/cli/planted.h"'
plant layers engine/model/planted.cpp '#include <GL/gl.h>'
plant layers engine/model/planted.cpp '#include <cuda_runtime.h>'
plant layers engine/model/planted.cpp '#include <kernels/params/lane.h>'
plant c99 kernels/params/op_ids.h '#include <vector>'
plant c99 kernels/layout/planted.h 'static const int planted = true;'
plant c99 kernels/params/planted.h 'namespace attnscope {}'
plant headers kernels/layout/planted.h 'static inline uint32_t planted(void) { return 0; }'
plant headers app/planted/planted.h 'inline void planted(std::string) {}'
plant top_level notes.txt 'planted'
mkdir "$work/tree/third_party"
echo 'int planted;' >"$work/tree/third_party/planted.c"
expect_failure top_level third_party 'a folder that does not belong here'
rm -r "$work/tree/third_party"
plant size engine/model/planted.cpp "$(printf '//\\n%.0s' {1..801})"
plant size engine/model/planted.cpp "// $(printf 'x%.0s' {1..98})"
plant size tests/launcher/planted.sh "# $(printf 'x%.0s' {1..99})"
plant hygiene engine/model/planted.cpp 'int planted; '
plant hygiene assets/manual.md 'planted\t'
plant hygiene engine/model/planted.cpp '\tint planted;'
plant hygiene engine/model/planted.cpp 'int planted;\r'
plant hygiene engine/model/planted.cpp '<<<<<<< planted'
plant said app/cli/planted.cpp '  fmt::print("{}", name);'
plant said app/reports/planted.cpp '  std::cerr << name;'
plant said app/gui/planted.cpp '  std::fprintf(stderr, "%s", name);'
plant planted engine/cache/planted.cpp '  if (bug_chosen("key_kept_after_pop")) return;'
plant planted app/reports/planted.cpp 'bool skip = planted(PlantedBug::kReleaseSkipsOne);'
plant planted reference/planted.h 'extern std::string chosen_bug;'
plant families app/views/planted.cpp '  const auto& slots = step.c4_slots;'
plant families engine/session/planted.cpp '  if (ratio == 4) return;'
plant families engine/capture/planted.h '  std::vector<std::int32_t> c128_lens;'
plant families app/panels/planted.cpp 'if (config.type(i) == LayerType::kC4A) draw();'
plant families app/views/planted.h 'const CacheSpec* spec = layout.find(0, kMainCache);'
plant families engine/trace/planted.cpp 'case AS_OP_INDEXER_Q:'
plant families app/cli/planted.cpp '#include "engine/session/what_if/deepseek_v4/entries.h"'
plant families app/wiring/planted.h '#include "app/wiring/deepseek_v4/wiring_audit.h"'
plant format engine/model/planted.cpp 'int  planted;'
plant format kernels/params/op_ids.h 'int planted ;'
rm "$work/tree/LICENSE"
expect_failure top_level LICENSE 'a missing file'
sed -i 's/.indexer_topk./the top-k op/g' "$work/tree/assets/manual.md"
expect_failure manual indexer_topk 'an op that is not explained'

# Subjects of commits, in a repository of its own.
commit() { # SUBJECT
  git -C "$work/repo" -c user.name=planted -c user.email=planted@localhost commit -q \
    --allow-empty -m "$1"
}
git init -q "$work/repo"
commit 'Avoid temp-file collisions when PIDs repeat'
if ! output=$("$check" commits "$work/repo" 2>&1); then
  printf 'FAILED: commits on a good subject:\n%s\n' "$output"
  failures=$((failures + 1))
fi
for subject in "Explain at length what could be said in fewer than half of all these words" \
  'Add a reader; remove a writer' 'Add a reader.' 'Added a reader' 'Adds a reader' 'add a reader' \
  'Adding a reader' 'A reader of files'; do
  commit "$subject"
  if output=$("$check" commits "$work/repo" 2>&1); then
    echo "FAILED: commits does not see '$subject'"
    failures=$((failures + 1))
  elif ! grep -qF "$(git -C "$work/repo" rev-parse --short HEAD)" <<<"$output"; then
    echo "FAILED: commits does not name the commit of '$subject': $output"
    failures=$((failures + 1))
  fi
  git -C "$work/repo" -c user.name=planted -c user.email=planted@localhost commit -q --amend \
    --allow-empty -m 'Add a reader'
done

if [ "$failures" -gt 0 ]; then
  echo "$failures failed"
  exit 1
fi
echo "ok: all planted faults were seen"
