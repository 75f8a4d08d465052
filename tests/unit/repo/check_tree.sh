#!/usr/bin/env bash
# Checks that hold for the tree as a whole. Each prints one line per finding and fails if there is
# any.
#
# Usage: check_tree.sh CHECK ROOT [PREFIX]
# CHECK: layers c99 headers top_level size hygiene said manual planted families format commits
# PREFIX: a regular expression; only files whose path begins so are looked at.
set -uo pipefail
export LC_ALL=C.UTF-8

check=$1
root=$2
prefix=${3:-}
cd "$root" || exit 2
found=0
finding() {
  printf '%s\n' "$*"
  found=1
}

# All files of the project: what is tracked or could be, or, without git, whatever is there.
files() {
  if [ -e .git ] && command -v git >/dev/null; then
    git ls-files --cached --others --exclude-standard | while read -r file; do
      if [ -e "$file" ]; then printf '%s\n' "$file"; fi
    done
  else
    find . \( -name build -o -name .git \) -prune -o -type f -print | sed 's|^\./||'
  fi | sort | grep -E "^$prefix"
}
# nothing_seen WHAT: a check that saw nothing at all has checked nothing. Of a part of the tree, it
# may be so.
nothing_seen() { [ -n "$prefix" ] || finding "no $1 seen: nothing was checked"; }
# Without pictures, recorded bytes and kept inputs of fuzzers, which have no lines.
texts() { files | grep -vE '\.(png|zst|safetensors|session|so|pt|npz)$|^tests/fuzz/corpus/'; }
sources() { files | grep -E '\.(h|c|cpp|cu|cuh)$'; }

# ---- layers: includes go down only, are quoted from the root, and libraries stay where they belong

# The folders of engine/ and of app/ from below: each may include itself and those before it.
engine_floors='io tensorfile model cache offload sched decisions metadata family backend trace
  config checkpoint session/step session/device session/verify session session/what_if
  session/persist mutants capture opcase explain plugin golden examine'
app_floors='text wiring views reports workbench gui panels cli'
declare -A floor_of=()
family_names=''
number_floors() {
  local folder
  family_names=$(ls -d engine/family/*/ 2>/dev/null | xargs -r -n1 basename)
  for folder in $engine_floors; do floor_of[engine/$folder]=${#floor_of[@]}; done
  for folder in $app_floors; do floor_of[app/$folder]=${#floor_of[@]}; done
}

# A folder is on no floor, or one includes a folder above it.
check_floors() { # FILE INCLUDED
  local from=${1%/*} to=${2%/*}
  # A folder of a family lies on the floor of the one that it is in.
  local family
  for family in $family_names; do from=${from%/"$family"} to=${to%/"$family"}; done
  case $1 in engine/* | app/*) ;; *) return ;; esac
  [ -n "${floor_of[$from]:-}" ] || { finding "$1: $from is on none of the floors" && return; }
  case $2 in "${1%%/*}"/*) ;; *) return ;; esac
  [ "${floor_of[$to]:-999}" -le "${floor_of[$from]}" ] ||
    finding "$1: may not include \"$2\" ($to is above $from)"
}

# Sets `allowed` to the prefixes that a file may include.
set_allowed() {
  case $1 in
    kernels/*) allowed='kernels/' ;;
    engine/decisions/plain_*) allowed='engine/decisions/plain_' ;;
    engine/*) allowed='engine/ kernels/' ;;
    reference/model.h | reference/model_dense.h | reference/model_mla.h | \
      reference/torch/model.* | reference/torch/model_dense.* | reference/torch/model_mla.*)
      # Of what other references use, only where to compute and what exceptions become.
      allowed='reference/model.h reference/model_dense.h reference/model_mla.h
        reference/torch/model.h reference/torch/model_dense.h reference/torch/model_mla.h
        reference/torch/device.h reference/torch/errors.h kernels/params/ engine/tensorfile/'
      ;;
    reference/*) allowed='reference/ kernels/params/ kernels/layout/ engine/model/' ;;
    app/panels/*) allowed="app/text/ app/wiring/ app/views/ app/reports/ app/workbench/ app/gui/
      app/panels/panels.h engine/ reference/ kernels/ ${1%.*}.h" ;;
    app/*) allowed='app/ engine/ reference/ kernels/' ;;
    tests/*) allowed='app/ engine/ reference/ kernels/ tests/ assets/plugin/' ;;
    *) allowed='' ;;
  esac
}

check_quoted_include() { # FILE INCLUDED
  local prefix
  # Made by the build, beside no source: a bare name that ends in .inc.
  case $2 in
    */*) ;;
    *.inc) [ -e "$(dirname "$1")/$2" ] || return ;;
  esac
  [ -e "$2" ] || finding "$1: \"$2\" is not a path from the root"
  check_floors "$1" "$2"
  set_allowed "$1"
  for prefix in $allowed; do
    case $2 in "$prefix"*) return ;; esac
  done
  finding "$1: may not include \"$2\" (allowed: $allowed)"
}

check_system_include() { # FILE INCLUDED
  case $2 in
    torch/* | ATen/* | c10/*)
      case $1 in
        reference/torch/*) ;;
        *) finding "$1: <$2> belongs to reference/torch/ alone" ;;
      esac
      ;;
    GL/* | GLES*/* | EGL/* | GLFW/* | SDL* | imgui* | implot* | epoxy/* | glad/*)
      case $1 in
        app/gui/* | app/panels/* | tests/ui/* | tests/bench/bench_ui.cpp) ;;
        *) finding "$1: <$2> belongs to app/gui/ and app/panels/ alone" ;;
      esac
      ;;
    cuda* | nvrtc* | cublas*)
      case $1 in
        kernels/cuda/* | assets/plugin/*) ;;
        *) finding "$1: <$2> belongs to kernels/cuda/ alone" ;;
      esac
      ;;
    app/* | engine/* | kernels/* | reference/* | tests/*)
      finding "$1: write \"$2\" in quotes"
      ;;
  esac
}

check_layers() {
  local file included count=0
  number_floors
  while IFS=: read -r file included; do
    count=$((count + 1))
    case $included in
      \"*) check_quoted_include "$file" "${included//\"/}" ;;
      *) check_system_include "$file" "${included//[<>]/}" ;;
    esac
  done < <(sources | tr '\n' '\0' | xargs -0r grep -HE '^ *# *include *["<]' |
    sed -E 's/^([^:]*):[^"<]*("[^"]*"|<[^>]*>).*/\1:\2/')
  [ "$count" -gt 0 ] || nothing_seen include
}

# ---- c99: the headers that plugins include are plain C99, one by one

# The only C++ headers among them.
cpp_headers='kernels/params/kernel_launch.h kernels/params/lane_table.h kernels/params/result.h'
cpp_headers+=' kernels/params/row_access.h kernels/params/tensor_view.h'

check_c99() {
  local file count=0
  while read -r file; do
    case " $cpp_headers " in *" $file "*) continue ;; esac
    count=$((count + 1))
    if ! "${CC:-cc}" -std=c99 -pedantic -Wall -Wextra -Werror -I. -fsyntax-only -x c "$file"; then
      finding "$file: does not compile as C99"
    fi
  done < <(sources | grep -E '^kernels/(params|layout)/.*\.[hc]$')
  [ "$count" -gt 0 ] || nothing_seen header
}

# ---- headers: every header compiles on its own

# Headers that need libtorch are left to the compilation of reference/torch/ itself. Those of the
# desktop app find Dear ImGui where CPLUS_INCLUDE_PATH says and take HEADER_FLAGS.
own_headers() {
  local file
  sources | grep -E '^(kernels|engine|reference|app)/.*\.h$' | while read -r file; do
    grep -qE '#include <(torch|ATen|c10)/' "$file" || printf '%s\n' "$file"
  done
}

check_headers() {
  local lines compile
  export HEADER_FLAGS=${HEADER_FLAGS:-}
  # shellcheck disable=SC2016
  compile='printf "#include \"%s\"\n" "$1" |
    "${CXX:-c++}" -std=c++20 -Wall -Wextra -Werror -I. $HEADER_FLAGS -fsyntax-only -x c++ - ||
    echo "$1: does not compile on its own"'
  lines=$(own_headers | xargs -P "$(nproc)" -I{} bash -c "$compile" bash {} 2>&1)
  [ -z "$lines" ] || finding "$lines"
  [ -n "$(own_headers)" ] || nothing_seen header
}

# ---- top_level: nothing lies at the root that does not belong there

check_top_level() {
  local allowed=' .ci .clang-format .clang-tidy .gitignore CMakeLists.txt CMakePresets.json '
  allowed+='CONTRIBUTING.md LICENSE README.md app assets attnscope engine kernels reference tests '
  local entry
  while read -r entry; do
    case $allowed in *" $entry "*) ;; *) finding "$entry: not allowed here" ;; esac
  done < <(files | cut -d/ -f1 | sort -u)
  for entry in $allowed; do
    [ -e "$entry" ] || finding "$entry: missing"
  done
}

# ---- size: files of at most 800 lines, source lines of at most 100 columns

check_size() {
  local line
  while read -r line; do
    finding "$line"
  done < <(
    texts | tr '\n' '\0' | xargs -0r wc -l | awk '$2 != "total" && $1 > 800 {
      print $2 ": " $1 " lines, at most 800" }'
    files | grep -E '(\.(h|c|cpp|cu|cuh|cmake|sh)|CMakeLists\.txt|^attnscope|^\.ci/run)$' |
      matches '^.{101,}$' 'over 100 columns'
  )
}

# ---- hygiene: text files are clean

check_hygiene() {
  local line
  while read -r line; do
    finding "$line"
  done < <(
    files | matches '[[:space:]]$' 'space at the end of the line'
    files | matches '^(<<<<<<<|>>>>>>>) ' 'conflict marker'
    sources | matches $'\t' 'tab'
    texts | tr '\n' '\0' | xargs -0r grep -lzP -e '[^\n]\z' |
      sed 's/$/: no newline at the end/'
  )
}

# matches PATTERN WHAT: the places in the text files named on standard input that match.
matches() {
  tr '\n' '\0' | xargs -0r grep -nIHE -e "$1" | sed -E "s/^([^:]*:[0-9]+):.*/\1: $2/"
}

# ---- said: what the program prints passes app/text/say.h, which escapes names of others

check_said() {
  local line
  while read -r line; do
    finding "$line"
  done < <(sources | grep -E '^app/' |
    grep -vxE 'app/text/say\.(h|cpp)|app/cli/(progress_bar\.h|plugin_host\.cpp)' |
    matches '(^|[^A-Za-z_])(fmt::print|std::cout|std::cerr|(std::)?(printf|fprintf|fputs|puts))\b' \
      'printed past say()')
  [ "$(sources | grep -c '^app/text/say.h$')" -gt 0 ] || nothing_seen say.h
}

# ---- manual: it explains every op

check_manual() {
  local op count=0
  while read -r op; do
    count=$((count + 1))
    grep -qF "\`$op\`" assets/manual.md || finding "assets/manual.md: does not mention \`$op\`"
  done < <(sed -nE 's/^ *ENTRY\(AS_OP_([A-Z0-9_]+),.*/\1/p' kernels/params/op_ids.h |
    tr '[:upper:]' '[:lower:]')
  [ "$count" -gt 0 ] || finding "no op seen: nothing was checked"
}

# ---- planted: bugs are lanes in folders named mutants, or patches in tests/bugs, nothing else

check_planted() {
  local line
  while read -r line; do
    finding "$line"
  done < <(sources | grep -E '^(kernels|engine|reference|app)/' | grep -v '/mutants/' |
    matches '(^|[^A-Za-z_.>])(planted|bug_chosen)\([^)]|chosen_bug' 'a planted bug')
  [ "$(sources | grep -c '/mutants/')" -gt 0 ] || nothing_seen 'folder of mutants'
}

# ---- families: what only DeepSeek-V4 has stands in its folders; all others ask the family

# Ops whose entry of the op table is for its compressed layers alone.
v4_ops() {
  awk '/^ *OP\(AS_OP_/ { split($0, part, /[(,]/); id = part[2]; entry = "" }
    id != "" {
      entry = entry $0
      if ($0 ~ /\),$/) {
        if (entry ~ /[, (](COMPRESSED|C4A|AS_LAYER_C4A|AS_LAYER_C128A)[, )]/) print id
        id = ""
      }
    }' kernels/params/op_table.c
}

# Kernels, references and planted bugs are of an op, whoever has it; engine/io/old_names.cpp maps
# names of before.
check_families() {
  local names file line
  names=$(v4_ops | paste -sd'|')
  [ -n "$names" ] || finding "no op of DeepSeek-V4 seen in kernels/params/op_table.c"
  names="\\b(c4|c128)_|C4A|C128A|\\bkC(4|128)|\\bratio [!=]= ([02-9]|1[0-9])|\\b($names)\\b"
  names="$names|\\bk(Swa|Main|Index|MainState|IndexState)Cache\\b"
  while IFS=: read -r file line; do
    finding "$file:$line: belongs to DeepSeek-V4: ask the family, or a role of the op table"
  done < <(sources | grep -E '^(app|engine)/' |
    grep -vE '/deepseek_v4/|^engine/mutants/|^engine/io/old_names\.' | tr '\n' '\0' |
    xargs -0r grep -nHE -e "$names" | sed 's|//.*||' |
    sed -nE "s/^([^:]*:[0-9]+):.*($names).*/\1/p")
  # Its own headers are for its folder and for the source beside it that asks each family.
  while IFS=: read -r file line; do
    finding "$file:$line: includes what only DeepSeek-V4 has: ask the hook beside that folder"
  done < <(sources | grep -E '^(app|engine)/' | grep -v '/deepseek_v4/' | tr '\n' '\0' |
    xargs -0r grep -nHE '^#include "(app|engine)/.*/deepseek_v4/' |
    sed -E 's|^(([^:]*)/[^/:]*\.cpp:[0-9]+):#include "\2/deepseek_v4/.*||
      s|^([^:]+:[0-9]+):.*|\1|' | grep .)
}

# ---- format: sources are as clang-format leaves them; versions differ, so one is chosen

check_format() {
  if ! command -v clang-format-16 >/dev/null; then
    finding "clang-format-16 is missing: install it; ./attnscope test does, where apt is"
    return
  fi
  local file
  while read -r file; do
    finding "$file: run clang-format-16 -i on it"
  done < <(sources | tr '\n' '\0' | xargs -0r clang-format-16 --dry-run -Werror 2>&1 |
    sed -nE 's/^([^: ]+):[0-9]+:[0-9]+: error: .*/\1/p' | sort -u)
}

# ---- commits: subjects of one topic, imperative, short; for commits since the rule was made

first_judged=83b8554bcb54
check_commits() {
  local hash subject range=$first_judged..HEAD
  if [ ! -e .git ]; then
    echo "no repository here, so no commits"
    return
  fi
  # A shallow clone may begin behind that commit: what it has is newer.
  git cat-file -e "$first_judged^{commit}" 2>/dev/null || range=HEAD
  while read -r hash subject; do
    [ "${#subject}" -le 72 ] || finding "$hash: the subject has ${#subject} characters, at most 72"
    case $subject in
      *';'*) finding "$hash: the subject joins topics with ';'" ;;
      *.) finding "$hash: the subject ends with '.'" ;;
    esac
    imperative "${subject%% *}" ||
      finding "$hash: the subject does not begin with a capitalised imperative: '${subject%% *}'"
  done < <(git log --no-merges --format='%h %s' "$range" --)
}

# imperative WORD: as far as its form tells: "Add", not "Added", "Adds", "Adding" or "add".
imperative() {
  [[ $1 =~ ^[A-Z][a-z-]+$ ]] || return 1
  case $1 in
    Need | Feed | Speed | Embed | Shed | Bring | String | Ring | *ss | Focus | Bias) return 0 ;;
    *ed | *ing | *s) return 1 ;;
  esac
}

case $check in
  layers) check_layers ;;
  c99) check_c99 ;;
  headers) check_headers ;;
  top_level) check_top_level ;;
  size) check_size ;;
  hygiene) check_hygiene ;;
  said) check_said ;;
  manual) check_manual ;;
  planted) check_planted ;;
  families) check_families ;;
  format) check_format ;;
  commits) check_commits ;;
  *)
    echo "unknown check: $check"
    exit 2
    ;;
esac
[ "$found" -eq 0 ] && echo "ok"
exit "$found"
