#!/usr/bin/env bash
# Tests of tidy.sh with a stand-in for clang-tidy: which sources it looks at where the build folder,
# with libraries in it, lies inside the tree, and how it exits.
#
# Usage: tidy_test.sh SOURCE_FOLDER
set -uo pipefail
root=$(mktemp -d) || exit 2
trap 'rm -rf "$root"' EXIT
failures=0

build=$root/build/tidy
mkdir -p "$root"/{bin,app,tests} "$root/build/deps/library" "$build/Unity" || exit 2
touch "$root/.clang-tidy" "$root/tests/.clang-tidy"
mkdir "$build/tests"
cat >"$root/bin/clang-tidy-16" <<'STAND_IN'
#!/usr/bin/env bash
for word in "$@"; do case $word in *.cpp | *.cxx) name=$word ;; esac done
echo "${name##*/}" >>"$SEEN"
[[ $name != *"${WRONG:-nothing}"* ]]
STAND_IN
chmod +x "$root/bin/clang-tidy-16"

units=''
unit() { # FILE [CONTENT]: a source that the build folder compiles
  printf '%s\n' "${2:-}" >"$root/$1"
  local entry="{\"directory\": \"$build\", \"command\": \"c++ -c $root/$1\""
  units+="${units:+,}$entry, \"file\": \"$root/$1\"}"
}
unit app/alone.cpp
unit build/deps/library/theirs.cpp
unit build/tidy/made.cpp
unit build/tidy/Unity/unity_0_cxx.cxx "#include \"$root/app/one.cpp\""
unit build/tidy/Unity/unity_1_cxx.cxx "#include \"$root/build/deps/library/theirs.cpp\""
printf '[%s]\n' "$units" >"$build/compile_commands.json"

run() { # SOURCE_FOLDER [VARIABLE=VALUE]: sources seen, in $seen; exit code in $status
  export SEEN=$root/seen
  : >"$SEEN"
  env PATH="$root/bin:$PATH" "${@:2}" bash "$1/tests/unit/repo/tidy.sh" "$root" "$build" \
    "${share:-1/1}" 1 >"$root/out" 2>&1
  status=$?
  seen=$(sort "$SEEN" | tr '\n' ' ')
}
check() { # DESCRIPTION COMMAND...
  local what=$1
  shift
  "$@" && return
  echo "FAILED: $what (exit code $status, looked at: $seen)"
  sed 's/^/    /' "$root/out"
  failures=$((failures + 1))
}

run "$1"
check 'looks at the sources of the tree, and at nothing else' \
  [ "$seen" = 'UnifiedSource_unity_0_cxx.cxx alone.cpp ' ]
check 'nothing found is no failure' [ "$status" -eq 0 ]
run "$1" WRONG=alone
check 'a finding is a failure' [ "$status" -eq 1 ]
share=2/2 run "$1"
check 'a share of them' [ "$(wc -w <<<"$seen")" -eq 1 ]
share=3/2 run "$1"
check 'no share beyond the last' [ "$status" -eq 2 ]

[ "$failures" -eq 0 ] && echo "tidy_test.sh: all checks hold"
[ "$failures" -eq 0 ]
